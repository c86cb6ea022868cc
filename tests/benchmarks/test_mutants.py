"""The mutation score: what a draw holds, its parts, the interval of its share."""

from __future__ import annotations

import pytest

from benchmarks.mutants import ROOT, Mutant, change_of, drawn, lower_bound, mutants_of, part_of


def test_the_parts_of_a_draw_hold_each_of_its_mutants_once() -> None:
    draw = drawn(["physics/collectives/__init__.py"], 17, seed=3)
    assert len(set(draw)) == 17 and drawn(["physics/collectives/__init__.py"], 17, seed=3) == draw
    parts = [part_of(draw, f"{n}/5") for n in range(1, 6)]
    assert [mutant for part in parts for mutant in part] == draw
    assert {len(part) for part in parts} == {3, 4}
    assert part_of(draw, "1/1") == draw


@pytest.mark.parametrize("part", ["0/5", "6/5", "2", "one/5"])
def test_what_is_no_part_is_refused(part: str) -> None:
    with pytest.raises(ValueError):
        part_of([Mutant("simcore/base/units.py", "core/AddNot", 0)], part)


def test_the_lower_bound_is_where_the_share_lies_on_the_edge_of_its_normal_interval() -> None:
    """Wilson's bound p of 8 of 10: 0.8 lies 1.96 standard deviations, those of p, above it."""
    p = lower_bound(8, 10)
    assert p < 0.8 and 0.8 - p == pytest.approx(1.959964 * (p * (1 - p) / 10) ** 0.5)
    assert lower_bound(0, 10) == pytest.approx(0.0, abs=1e-12)
    assert lower_bound(0, 0) == 0.0


@pytest.mark.parametrize(
    ("name", "stars"),
    [("step/program.py", "self, *, "), ("strategy/programs/mechanisms.py", ", **")],
)
def test_stars_that_are_no_operators_are_not_mutated(name: str, stars: str) -> None:
    """Between parameters and before a mapping: what is left is all Python, and differs."""
    file = ROOT / "simcore" / name
    assert stars in file.read_text(encoding="utf-8")
    changes = [change_of(m) for m in mutants_of(file) if "BinaryOperator" in m.operator]
    for change in changes:
        assert compile(change.after, name, "exec").co_code is not None
        assert change.after.count(stars) == change.before.count(stars)
