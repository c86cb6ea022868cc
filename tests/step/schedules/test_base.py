"""Playing a schedule: closed forms of bubbles, order, and what a stage holds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import on_by_default

from simcore.step.schedules import schedule_of
from simcore.step.schedules.base import Schedule, Slot, StageTimes, Work, last_place
from simcore.strategy.layout import Layout

degrees = st.integers(1, 6)
seconds = st.floats(0.1, 3.0)


def _play(layout: Layout, times: list[StageTimes], micro: int) -> tuple[tuple[Slot, ...], ...]:
    return schedule_of(layout).play(layout, times, micro)


def _played(layout: Layout, times: list[StageTimes], micro: int) -> tuple[Slot, ...]:
    return tuple(slot for row in _play(layout, times, micro) for slot in row)


def _end(slots: tuple[Slot, ...]) -> float:
    return float(max(s.finish_s for s in slots))


@given(pp=degrees, micro=st.integers(1, 12), forward=seconds, backward=seconds)
def test_1f1b_of_equal_stages_takes_m_plus_p_minus_1(
    pp: int, micro: int, forward: float, backward: float
) -> None:
    slots = _played(Layout(pp=pp), [StageTimes(forward, backward)] * pp, micro)
    assert _end(slots) == pytest.approx((micro + pp - 1) * (forward + backward))


@given(pp=st.integers(2, 5), vpp=st.integers(2, 4), groups=st.integers(1, 4), forward=seconds)
def test_interleaving_divides_the_bubble(pp: int, vpp: int, groups: int, forward: float) -> None:
    """Narayanan et al. 2021, section 2.2.2: a bubble of (p - 1)/v micro-steps."""
    micro = groups * pp
    layout = Layout(pp=pp, vpp=vpp)
    slots = _played(layout, [StageTimes(forward, 2 * forward)] * pp, micro)
    assert _end(slots) == pytest.approx((micro + (pp - 1) / vpp) * 3 * forward)


@given(
    pp=st.integers(2, 6),
    vpp=st.integers(1, 3),
    micro=st.integers(1, 13),
    parts=st.lists(st.tuples(seconds, seconds), min_size=6, max_size=6),
)
def test_every_schedule_keeps_its_promises(
    pp: int, vpp: int, micro: int, parts: list[tuple[float, float]]
) -> None:
    """Each chunk of each micro-batch once, nothing at the same time, nothing before its input."""
    layout = Layout(pp=pp, vpp=vpp)
    times = [StageTimes(f, b) for f, b in parts[:pp]]
    slots = _played(layout, times, micro)
    assert len({(s.stage, s.work) for s in slots}) == len(slots) == 2 * pp * vpp * micro
    at = {(s.work.kind, s.work.micro_batch, s.work.chunk * pp + s.stage): s for s in slots}
    for (kind, m, place), slot in at.items():
        if kind == "forward" and place:
            assert slot.start_s >= at["forward", m, place - 1].finish_s
        if kind == "backward":
            last = place == pp * vpp - 1
            before = at["forward", m, place] if last else at["backward", m, place + 1]
            assert slot.start_s >= before.finish_s
    for stage in range(pp):
        mine = [s for s in slots if s.stage == stage]
        assert all(b.start_s >= a.finish_s - 1e-12 for a, b in pairwise(mine))
    # No step is shorter than its slowest stage, nor than one micro-batch through all of them.
    busy = [micro * (t.forward_s + t.backward_s) for t in times]
    assert _end(slots) >= max(busy) - 1e-9
    assert _end(slots) >= sum(t.forward_s + t.backward_s for t in times) - 1e-9


def test_stages_that_are_not_there() -> None:
    with pytest.raises(ValueError, match="2 stages timed"):
        _played(Layout(pp=3), [StageTimes(1, 1)] * 2, 4)


def test_the_last_micro_batch_takes_longer_and_the_first_begins_late() -> None:
    """Two micro-batches on one stage from 5 s on: 1 + 2, then 1 + 2 + 0.5."""
    (row,) = _play(Layout(), [StageTimes(1.0, 2.0, begin_s=5.0, last_s=0.5)], 2)
    assert [(s.start_s, s.finish_s) for s in row] == [(5, 6), (6, 8), (8, 9), (9, 11.5)]
    (row,) = _play(Layout(), [StageTimes(1.0, 2.0, last_s=-3.0)], 1)
    assert row[-1].finish_s == 1.0  # no work takes less than no time


def test_the_last_piece_of_a_split_backward_is_that_of_the_weights() -> None:
    rows = _play(Layout(pp=2, schedule="zb-1p"), [StageTimes(1.0, 1.0, 1.0, last_s=0.5)] * 2, 2)
    longer = [s.work for s in rows[0] if s.finish_s - s.start_s == 1.5]
    assert longer == [Work("weights", 1)]


def test_the_last_micro_batch_of_either_end() -> None:
    """Of 8 micro-batches on 2 ranks the first 4 enter at rank 0: the last are 3 and 7."""
    times = [StageTimes(2.0, 2.0, 2.0, last_s=1.0)] * 2
    rows = _play(Layout(pp=2, schedule="dualpipe"), times, 8)
    longer = {(s.work.kind, s.work.micro_batch) for s in rows[1] if s.finish_s - s.start_s > 1.25}
    assert longer == {("weights", 3), ("weights", 7)}


def test_places_and_stages() -> None:
    """Chunk v of stage s is place v pp + s; from the far end ranks are passed backwards."""
    chunks, ends = Layout(pp=4, vpp=3), Layout(pp=4, schedule="dualpipe")
    several, both = schedule_of(chunks), schedule_of(ends)
    assert (several.place_of(chunks, 2, 1), several.stage_at(chunks, 6, 1)) == (6, 2)
    assert [both.place_of(ends, 1, end) for end in (0, 1)] == [1, 2]
    assert [both.stage_at(ends, 3, end) for end in (0, 1)] == [3, 0]
    assert (several.parts(chunks), both.parts(ends), last_place(chunks)) == (3, 2, 11)


def test_waiting_without_a_closed_form_is_that_of_the_order_played() -> None:
    """Each configuration by its own number of micro-batches; equal neighbours are one run."""
    layout, count = Layout(pp=4), np.array([1.0, 5.0, 5.0])
    forward, backward = np.array([[1.0, 1.0, 2.0]]), np.array([[2.0, 2.0, 1.0]])
    plain = schedule_of(layout)
    waits = Schedule.bubble_s(plain, layout, forward, backward, [4], count)
    assert waits.tolist() == [pytest.approx([9.0, 9.0, 9.0])]
    forward, backward = np.array([[1.0], [2.0]]), np.array([[2.0], [2.0]])
    waits = Schedule.bubble_s(plain, layout, forward, backward, [3, 1], np.ones(1))
    assert waits[:, 0].tolist() == [13.0 - 3.0, 13.0 - 4.0]  # 5 s of forwards, 8 s of backwards


def test_split_backwards_are_played_in_halves() -> None:
    """ZB-1p of two stages with F = 1, B = W = 1: p - 1 = 1 s."""
    layout = Layout(pp=2, schedule="zb-1p")
    waits = Schedule.bubble_s(
        schedule_of(layout), layout, np.ones((1, 1)), np.full((1, 1), 2.0), [2], np.array([8.0])
    )
    assert waits.tolist() == [[1.0]]


def test_numbers_and_arrays_are_played_alike() -> None:
    layout = Layout(pp=4, schedule="zb-2p")
    alone = _play(layout, [StageTimes(1.0, 1.5, 0.7)] * 4, 9)
    twice = StageTimes(np.full(2, 1.0), np.full(2, 1.5), np.full(2, 0.7))
    many = _play(layout, [twice] * 4, 9)
    for one, other in zip(alone, many, strict=True):
        assert [s.work for s in one] == [s.work for s in other]
        assert [s.finish_s for s in one] == pytest.approx([s.finish_s[1] for s in other])


def test_the_last_micro_batch_of_every_chunk_takes_longer() -> None:
    """Of 4 micro-batches on 2 chunks a stage, the backward of the last on either chunk."""
    layout = Layout(pp=2, vpp=2)
    rows = _play(layout, [StageTimes(2.0, 4.0, last_s=1.0)] * 2, 4)
    longer = [s.work for s in rows[0] if s.finish_s - s.start_s == 2.5]
    assert sorted((w.kind, w.micro_batch, w.chunk) for w in longer) == [
        ("backward", 3, 0), ("backward", 3, 1),
    ]  # fmt: skip


def test_work_is_of_the_first_chunk_and_stages_have_no_edges_by_default() -> None:
    assert on_by_default(Work, StageTimes) == {}
