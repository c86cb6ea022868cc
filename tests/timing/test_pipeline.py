"""Pipeline schedules: closed forms of their bubbles, order, and what a stage holds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.strategy.layout import Layout
from simcore.timing.in_flight import in_flight
from simcore.timing.pipeline import Slot, StageTimes, schedule_pipeline

degrees = st.integers(1, 6)
seconds = st.floats(0.1, 3.0)


def _end(slots: tuple[Slot, ...]) -> float:
    return max(s.finish_s for s in slots)


def _most_held(slots: tuple[Slot, ...], stage: int, vpp: int, last: str) -> float:
    """Micro-batches whose activations a stage holds at its fullest, in whole stages."""
    mine = [s for s in slots if s.stage == stage]
    events = [(s.start_s, 1) for s in mine if s.work.kind == "forward"]
    events += [(s.finish_s, -1) for s in mine if s.work.kind == last]
    held = np.cumsum([step for _, step in sorted(events)])
    return float(held.max()) / vpp


@given(pp=degrees, micro=st.integers(1, 12), forward=seconds, backward=seconds)
def test_1f1b_of_equal_stages_takes_m_plus_p_minus_1(
    pp: int, micro: int, forward: float, backward: float
) -> None:
    slots = schedule_pipeline(Layout(pp=pp), [StageTimes(forward, backward)] * pp, micro)
    assert _end(slots) == pytest.approx((micro + pp - 1) * (forward + backward))


@given(pp=st.integers(2, 5), vpp=st.integers(2, 4), groups=st.integers(1, 4), forward=seconds)
def test_interleaving_divides_the_bubble(pp: int, vpp: int, groups: int, forward: float) -> None:
    """Narayanan et al. 2021, section 2.2.2: a bubble of (p - 1)/v micro-steps."""
    micro = groups * pp
    layout = Layout(pp=pp, vpp=vpp)
    slots = schedule_pipeline(layout, [StageTimes(forward, 2 * forward)] * pp, micro)
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
    slots = schedule_pipeline(layout, times, micro)
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


@given(pp=st.integers(2, 5), micro=st.integers(1, 12))
def test_a_stage_of_1f1b_holds_what_the_memory_model_counts(pp: int, micro: int) -> None:
    layout = Layout(pp=pp)
    slots = schedule_pipeline(layout, [StageTimes(1.0, 2.0)] * pp, micro)
    for stage in range(pp):
        counted = in_flight(layout, stage, np.array([float(micro)]))[0]
        assert _most_held(slots, stage, 1, "backward") == counted


@pytest.mark.parametrize("limit", [1, 2])
def test_zero_bubble_fills_most_of_the_bubble(limit: int) -> None:
    """ZB-2p leaves at most the first forward's ramp; ZB-1p less than 1F1B of the same work."""
    pp, micro = 4, 16
    times = [StageTimes(1.0, 1.0, 1.0)] * pp
    layout = Layout(pp=pp, schedule="zb-1p" if limit == 1 else "zb-2p")
    slots = schedule_pipeline(layout, times, micro)
    assert len(slots) == 3 * pp * micro
    plain = schedule_pipeline(Layout(pp=pp), [StageTimes(1.0, 2.0)] * pp, micro)
    bubble, old = _end(slots) - 3 * micro, _end(plain) - 3 * micro
    assert 0 <= bubble < old / (1.2 if limit == 1 else 2.5)
    for stage in range(pp):
        assert _most_held(slots, stage, 1, "weights") <= limit * pp


def test_stages_that_are_not_there() -> None:
    with pytest.raises(ValueError, match="2 stages timed"):
        schedule_pipeline(Layout(pp=3), [StageTimes(1, 1)] * 2, 4)
