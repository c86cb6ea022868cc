"""Terms of many steps together, against a count of every microsecond; costs by number of steps."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from costs import cost_ratio

from simcore.measurements.kineto.breakdown import Window, breakdown, take_apart, windows_of
from simcore.measurements.kineto.kinds import Kind
from simcore.measurements.kineto.trace import Mark, Trace, Work

MICRO = 1e-6
#: (kind, phase) of work in order of precedence, and the part that it counts to.
KINDS: list[tuple[Kind, str]] = [
    ("gemm", "forward"), ("collective", "communication_exposed"), ("copy", "input_copy"),
]  # fmt: skip


def work_of(kind: Kind, start: int, end: int, number: int = 0) -> Work:
    name, collective = f"kernel {number}", "all_reduce" if kind == "collective" else ""
    return Work(name, kind, collective, "forward", start * MICRO, end * MICRO, start * MICRO, "")


@pytest.mark.parametrize("seed", range(6))
def test_every_microsecond_counts_once(seed: int) -> None:
    """Work at random, overlapping itself and the windows' borders; idle time lies between."""
    random, length = Random(seed), 900
    work, loading = [], []
    for number in range(60):
        start = random.randrange(length)
        end = min(start + random.choice((0, 1, 5, 40)), length)
        work.append(work_of(random.choice(KINDS)[0], start, end, number))
    for start in (100, 130, 600):
        loading.append(Mark("enumerate(DataLoader)", start * MICRO, (start + 50) * MICRO))
    borders = [10, 200, 200, 480, 640, 850]  # two windows side by side, and a gap
    pairs = list(zip(borders[::2], borders[1::2], strict=True))
    windows = [Window("step", a * MICRO, b * MICRO) for a, b in pairs]

    expected: Counter[str] = Counter()
    by_name: Counter[str] = Counter()
    for tick in (t for a, b in pairs for t in range(a, b)):
        running = [w for w in work if w.start_s / MICRO <= tick + 0.5 < w.end_s / MICRO]
        waits = any(m.start_s / MICRO <= tick + 0.5 < m.end_s / MICRO for m in loading)
        part = next((part for kind, part in KINDS if any(w.kind == kind for w in running)),
                    "loader" if waits else "host")  # fmt: skip
        expected[part] += 1
        if part == "forward":
            by_name[
                min((w.start_s, work.index(w), w.name) for w in running if w.kind == "gemm")[2]
            ] += 1
    found, _ = take_apart(work, loading, windows)
    assert found.parts == pytest.approx(
        {k: expected[k] * MICRO for k in found.parts}, abs=1e-3 * MICRO
    )
    names = {name: s / MICRO for (name, _), s in found.names.items() if s > 1e-3 * MICRO}
    assert names == pytest.approx(dict(by_name), abs=1e-3)


def test_work_in_two_steps_counts_in_both() -> None:
    work = [work_of("gemm", 0, 10), work_of("collective", 10, 30), work_of("gemm", 40, 50)]
    windows = [Window("a", 0.0, 20 * MICRO), Window("b", 20 * MICRO, 40 * MICRO)]
    terms, n_pieces = take_apart(work, (), windows)
    assert n_pieces == 3  # the collective twice, the last product in none
    assert terms.collectives["all_reduce"] == pytest.approx([20 * MICRO, 20 * MICRO])
    assert list(terms.names) == [("kernel 0", "gemm")]


def trace_of(n_steps: int, n_work: int = 6000) -> Trace:
    """Equal work, marked as so many steps."""
    work = tuple(work_of(KINDS[i % 2][0], 10 * i, 10 * i + 8) for i in range(n_work))
    length = 10 * n_work * MICRO / n_steps
    steps = tuple(Mark(f"ProfilerStep#{i}", i * length, (i + 0.999) * length)
                  for i in range(n_steps))  # fmt: skip
    return Trace(Path("trace.json"), work, steps, (), (), 0, 1, "", False, False)


def test_the_number_of_steps_costs_little() -> None:
    """Every kernel is looked at once, not once for each step."""

    def taken_apart(trace: Trace) -> None:
        breakdown(trace, *windows_of(trace))

    few, many = trace_of(3), trace_of(1000)
    assert cost_ratio(lambda: taken_apart(few), lambda: taken_apart(many)) < 3.0
