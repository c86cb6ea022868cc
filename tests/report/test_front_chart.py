"""Ends of a front are in the corners of its chart; equal ratios are equal distances."""

from __future__ import annotations

from simcore.report.front_chart import HEIGHT, WIDTH, front_chart


def test_points_are_where_their_logarithms_are() -> None:
    lines = front_chart(
        [(1, 10), (10, 100), (100, 1000)], lambda x: f"{x:g} s", lambda y: f"${y:g}"
    )
    rows = [line.partition("|")[2] for line in lines[:HEIGHT]]
    assert lines[0].startswith("$1000 |") and lines[HEIGHT - 1].startswith("  $10 |*")
    assert rows[0].index("*") == WIDTH - 1 and rows[-1].index("*") == 0
    assert rows[HEIGHT // 2].index("*") in (WIDTH // 2 - 1, WIDTH // 2)
    assert lines[-1].split() == ["1", "s", "100", "s"]
    assert max(map(len, lines)) <= 80


def test_a_point_may_be_marked_and_few_points_are_no_curve() -> None:
    points = [(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)]
    drawn = "\n".join(front_chart(points, str, str, marked=1))
    assert drawn.count("#") == 1 and drawn.count("*") == 2
    assert front_chart(points[:2], str, str) == []
    assert front_chart([*points, (0.0, 1.0)], str, str) == []
