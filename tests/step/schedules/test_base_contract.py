"""What every registered pipeline schedule keeps, whatever it does."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from simcore.step.schedules import IN_CHUNKS, SCHEDULES, layout_violations, schedule_of
from simcore.step.schedules.base import Schedule, Slot, StageTimes, last_place
from simcore.strategy.layout import DEFAULT_SCHEDULE, Layout

#: Published waiting of 8 equal stages of F = B = W = 1 s, 32 micro-batches: Huang et al. 2019,
#: section 2.3; Narayanan et al. 2021; Qi et al. 2023, table 1; DeepSeek-AI 2024, table 2.
PUBLISHED = {"gpipe": 21.0, "1f1b": 21.0, "zb-1p": 7.0, "zb-2p": 0.0, "dualpipe": 3 * 2.0}
LAYOUTS = [
    *(Layout(pp=pp, schedule=name) for name in SCHEDULES for pp in (2, 4, 8)),
    Layout(pp=4, vpp=2), Layout(pp=4, vpp=3), Layout(pp=2, vpp=4),
]  # fmt: skip
EVERY = pytest.mark.parametrize("layout", LAYOUTS, ids=str)


def _micro_batches(layout: Layout) -> int:
    """Enough to fill the pipeline, whole rounds, and as many from either end."""
    return 4 * layout.pp


def _times(layout: Layout) -> StageTimes:
    """F = B = W = 1 s of each stage that a rank holds."""
    schedule = schedule_of(layout)
    ends = float(schedule.directions)
    return StageTimes(ends, ends, ends) if schedule.splits_backward else StageTimes(ends, 2 * ends)


def _played(layout: Layout) -> tuple[tuple[Slot, ...], ...]:
    return schedule_of(layout).play(layout, [_times(layout)] * layout.pp, _micro_batches(layout))


def _place(layout: Layout, slot: Slot) -> int:
    return schedule_of(layout).place_of(layout, slot.stage, slot.work.chunk)


def test_the_default_is_registered_and_comes_first() -> None:
    assert next(iter(SCHEDULES)) == DEFAULT_SCHEDULE
    assert all(SCHEDULES[name].name == name for name in SCHEDULES)
    assert set(IN_CHUNKS) == {name for name in SCHEDULES if SCHEDULES[name].chunked}


@EVERY
def test_it_says_what_it_is(layout: Layout) -> None:
    schedule = schedule_of(layout)
    assert schedule.meaning and schedule.formula and schedule.source
    assert (schedule.formula != Schedule.formula) is schedule.has_closed_form


@EVERY
def test_every_micro_batch_passes_every_chunk_once_each_way(layout: Layout) -> None:
    schedule, micro = schedule_of(layout), _micro_batches(layout)
    kinds = {
        "forward", "backward", *(["weights"] if schedule.splits_backward else [])
    }  # fmt: skip
    done = [
        (s.work.kind, s.work.micro_batch, _place(layout, s)) for row in _played(layout) for s in row
    ]
    places = range(last_place(layout) + 1)
    assert len(done) == len(set(done))
    assert set(done) == {(k, m, p) for k in kinds for m in range(micro) for p in places}


@EVERY
def test_nothing_starts_before_its_input_nor_beside_other_work(layout: Layout) -> None:
    rows, last = _played(layout), last_place(layout)
    ends = {
        (s.work.kind, s.work.micro_batch, _place(layout, s)): s.finish_s
        for row in rows
        for s in row
    }
    for row in rows:
        assert all(b.start_s >= a.finish_s - 1e-9 for a, b in pairwise(row))
        for s in row:
            m, place = s.work.micro_batch, _place(layout, s)
            if s.work.kind == "forward":
                before = ends.get(("forward", m, place - 1), 0.0)
            elif place == last or s.work.kind == "weights":
                before = ends["forward", m, place]
            else:
                before = ends["backward", m, place + 1]
            assert s.start_s >= before - 1e-9


@EVERY
def test_waiting_of_equal_stages_is_that_of_its_order(layout: Layout) -> None:
    """The closed form, and the longest time between a stage's first and last work."""
    schedule, micro, t = schedule_of(layout), _micro_batches(layout), _times(layout)
    count = np.array([micro / schedule.directions])
    forward, backward = np.array([[t.forward_s]]), np.array([[t.backward_s + t.weights_s]])
    words = (layout, forward, backward, [layout.pp], count)
    longest = max(row[-1].finish_s - row[0].start_s for row in _played(layout))
    waits = float(schedule.bubble_s(*words)[0, 0])
    assert waits == pytest.approx(longest - float(count[0] * (forward + backward)[0, 0]))
    assert Schedule.bubble_s(schedule, *words)[0, 0] == pytest.approx(waits)
    if layout.pp == 8:
        assert waits == pytest.approx(PUBLISHED[layout.schedule])


@EVERY
def test_a_stage_holds_what_its_order_makes_it_hold(layout: Layout) -> None:
    """No more than stated; what is stated for all stages alike is at most one more."""
    schedule, micro = schedule_of(layout), _micro_batches(layout)
    freed = "weights" if schedule.splits_backward and schedule.directions == 1 else "backward"
    for stage, row in enumerate(_played(layout)):
        changes = sorted(
            [(s.start_s, 1) for s in row if s.work.kind == "forward"]
            + [(s.finish_s, -1) for s in row if s.work.kind == freed]
        )
        counted = max(np.cumsum([step for _, step in changes])) / schedule_of(layout).parts(layout)
        stated = schedule.in_flight(layout, stage, np.array([float(micro)]))[0]
        assert counted <= stated + 1e-9
        assert counted >= stated - (schedule.splits_backward or 1e-9)


@EVERY
def test_a_few_micro_batches_are_all_in_flight(layout: Layout) -> None:
    schedule = schedule_of(layout)
    few = schedule.in_flight(layout, 0, np.array([1.0 * schedule.directions]))
    assert few.tolist() == [1.0]


@EVERY
def test_what_it_takes_it_draws(layout: Layout) -> None:
    schedule, micro = schedule_of(layout), _micro_batches(layout)
    assert schedule.refused(layout) == [] and schedule.undrawn(layout, micro) == ""
    assert micro % schedule.multiple_of == 0 == layout.pp % schedule.directions
    assert schedule.least_micro_batches(layout) % schedule.multiple_of == 0
    assert schedule.rounds_refused(layout, micro) == ""


@pytest.mark.parametrize("name", SCHEDULES)
def test_it_refuses_with_one_sentence_a_rule(name: str) -> None:
    """Every schedule but the default needs several stages; chunks where it has none are refused."""
    schedule = SCHEDULES[name]
    alone = schedule.refused(Layout(schedule=name))
    assert alone == ([] if name == DEFAULT_SCHEDULE else [f"schedule {name} needs pp above 1"]) or (
        alone == [f"schedule {name} needs pp above 1", f"schedule {name} needs an even pp, not 1"]
    )
    chunks = schedule.refused(Layout(pp=4, vpp=2, schedule=name))
    wanted = [] if schedule.chunked else [f"schedule {name} has no chunks: vpp=2 needs 1f1b"]
    assert chunks == wanted
    named = schedule.refused(Layout(pp=4, schedule=name, stages="auto"))
    assert bool(named) is not schedule.takes_stages


@EVERY
def test_no_division_into_stages_is_faster_than_its_bound(layout: Layout) -> None:
    """Equal stages take at least the bound over all divisions."""
    schedule, micro = schedule_of(layout), float(_micro_batches(layout) / 4)
    micro /= schedule.directions
    forward, backward = np.full((layout.pp, 1), 1.0), np.full((layout.pp, 1), 2.0)
    count, ones = np.array([micro]), [1] * layout.pp
    waits = schedule.bubble_s(layout, forward, backward, ones, count)
    whole = (micro * 3.0 + waits).max()
    bound = schedule.least_step_s(layout, np.array([3.0 * layout.pp]), count)
    assert bound[0] <= whole + 1e-9


def test_the_bound_of_two_stages_by_hand() -> None:
    """2 micro-batches: q = 1/2, stages of 2/3 and 1/3 of S both end after 4/3 S; chunks halve q's
    step: S / (2 (1 - (3/4)^2))."""
    schedule = SCHEDULES["1f1b"]
    one = schedule.least_step_s(Layout(pp=2), np.array([3.0]), np.array([2.0]))
    assert one.tolist() == pytest.approx([4.0])
    two = schedule.least_step_s(Layout(pp=2, vpp=2), np.array([3.0]), np.array([2.0]))
    assert two.tolist() == pytest.approx([3.0 / (2 * (1 - 0.75**2))])


def test_rules_of_degrees_and_of_the_schedule_are_told_together() -> None:
    found = layout_violations(Layout(tp=3, pp=3, vpp=2, schedule="dualpipe"), 8, 12)
    assert [f.split(":")[0] for f in found] == [
        "tp x pp = 9 does not divide 8 GPUs", "schedule dualpipe has no chunks",
        "schedule dualpipe needs an even pp, not 3",
    ]  # fmt: skip
    assert layout_violations(Layout(pp=-1, schedule="dualpipe"), 8, 12) == [
        "pp must be at least 1, not -1"
    ]
    assert layout_violations(Layout(pp=2, vpp=0, schedule="dualpipe"), 8, 12) == [
        "vpp must be at least 1, not 0"
    ]
    assert layout_violations(Layout(pp=2, vpp=0, stages="6,6"), 8, 12) == [
        "vpp must be at least 1, not 0"
    ]


def test_the_layers_of_all_stages_are_those_of_the_model() -> None:
    assert layout_violations(Layout(pp=2, stages="6,6"), 8, 12) == []
    (told,) = layout_violations(Layout(pp=2, stages="6,5"), 8, 12)
    assert told == "stages 6,5 have 11 layers, not the model's 12"
