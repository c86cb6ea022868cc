"""1F1B: its order by hand; waiting against the schedule itself, task by task."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.step.schedules import SCHEDULES, schedule_of
from simcore.step.schedules.one_f_one_b import OneFOneB, waiting_s
from simcore.strategy.layout import Layout

Task = tuple[str, int, int]  # "F" or "B", chunk, micro-batch


def one_f_one_b(n_stages: int, stage: int, n: int, chunks: int) -> list[Task]:
    """The order of one rank in Megatron-LM's schedules.py: warm-up, one forward one backward,
    cool-down; interleaved, rounds of as many micro-batches as stages go through chunk by chunk, of
    all where there are fewer (PyTorch's ScheduleInterleaved1F1B; Megatron-LM refuses these)."""
    each = min(n_stages, n)

    def forward(k: int) -> tuple[int, int]:
        within = k % (each * chunks)
        return within // each, k // (each * chunks) * each + k % each

    total = n * chunks
    left = n_stages - 1 - stage
    warm = min(total, left if chunks == 1 else 2 * left + (chunks - 1) * each)
    place = (lambda k: (0, k)) if chunks == 1 else forward
    forwards = [("F", *place(k)) for k in range(total)]
    backwards = [("B", chunks - 1 - place(k)[0], place(k)[1]) for k in range(total)]
    order = list(forwards[:warm])
    for k in range(total - warm):
        order += [forwards[warm + k], backwards[k]]
    return order + backwards[total - warm :]


def makespan_s(
    forward: Sequence[float], backward: Sequence[float], n: int, chunks: int = 1
) -> float:
    """Plays the schedule: a task starts when its rank is free and its neighbour is done."""
    p = len(forward)
    orders = [one_f_one_b(p, s, n, chunks) for s in range(p)]
    done: dict[Task, float] = {}
    at, free = [0] * p, [0.0] * p
    while any(at[s] < len(orders[s]) for s in range(p)):
        before = list(at)
        for s in range(p):
            while at[s] < len(orders[s]):
                kind, chunk, i = orders[s][at[s]]
                place = chunk * p + s  # among all chunks, from the input on
                if kind == "F":
                    wait = ("F", place - 1, i) if place else None
                else:
                    wait = ("B", place + 1, i) if place < p * chunks - 1 else ("F", place, i)
                if wait is not None and wait not in done:
                    break
                spent = (forward if kind == "F" else backward)[s] / chunks
                free[s] = max(free[s], done[wait] if wait else 0.0) + spent
                done[kind, place, i] = free[s]
                at[s] += 1
        assert at != before, "the schedule is stuck"
    return max(free)


def closed_s(forward: Sequence[float], backward: Sequence[float], n: int, chunks: int = 1) -> float:
    """The makespan that ``waiting_s`` implies; equal neighbours are given as one run."""
    runs = [(pair, len(list(g))) for pair, g in groupby(zip(forward, backward, strict=True))]
    f, b = (np.array([[pair[i]] for pair, _ in runs]) for i in (0, 1))
    waits = waiting_s(f, b, [n_stages for _, n_stages in runs], np.array([float(n)]), chunks)
    return float((n * (f + b) + waits).max())


@pytest.mark.parametrize("p", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [1, 2, 7, 8, 64])
def test_equal_stages_are_the_closed_form(p: int, n: int) -> None:
    """Huang et al. 2019, Narayanan et al. 2021: (n + p - 1)(f + b)."""
    assert closed_s([1.0] * p, [2.0] * p, n) == pytest.approx(3.0 * (n + p - 1))
    assert makespan_s([1.0] * p, [2.0] * p, n) == pytest.approx(3.0 * (n + p - 1))


@pytest.mark.parametrize("chunks", [2, 3, 4])
@pytest.mark.parametrize("p", [2, 4, 8])
def test_equal_chunks_are_the_closed_form(p: int, chunks: int) -> None:
    """Narayanan et al. 2021, 2.2: a bubble of (p - 1)/chunks micro-batches."""
    want = 3.0 * (4 * p + (p - 1) / chunks)
    assert closed_s([1.0] * p, [2.0] * p, 4 * p, chunks) == pytest.approx(want)
    assert makespan_s([1.0] * p, [2.0] * p, 4 * p, chunks) == pytest.approx(want)


@pytest.mark.parametrize("chunks", [1, 2, 3, 4])
@pytest.mark.parametrize(("p", "n"), [(2, 1), (4, 1), (4, 3), (8, 2), (8, 7), (16, 4), (64, 16)])
def test_no_chunks_shorten_the_way_of_one_micro_batch(p: int, n: int, chunks: int) -> None:
    """All stages in turn, p (f + b), and the others a chunk apart: fewer micro-batches than stages
    keep most of the bubble."""
    want = 3.0 * (p + (n - 1) / chunks)
    assert makespan_s([1.0] * p, [2.0] * p, n, chunks) == pytest.approx(want)
    assert closed_s([1.0] * p, [2.0] * p, n, chunks) == pytest.approx(want)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.floats(0.9, 1.1), min_size=1, max_size=8), st.integers(1, 40), st.data())
def test_stages_that_differ_by_a_tenth_are_exact(
    f: list[float], n: int, data: st.DataObject
) -> None:
    b = data.draw(st.lists(st.floats(1.8, 2.2), min_size=len(f), max_size=len(f)))
    assert closed_s(f, b, n) == pytest.approx(makespan_s(f, b, n), rel=1e-9)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=8), st.floats(0.0, 3.0), st.floats(0.0, 3.0),
    st.integers(1, 40),
)  # fmt: skip
def test_whole_layers_embedding_and_head(
    layers: list[int], first: float, last: float, n: int
) -> None:
    """Layers of 1 + 2, any number a stage: never above the schedule, at most a tenth below."""
    f = [float(x) for x in layers]
    f[0] += first
    f[-1] += last
    b = [2.0 * x for x in f]
    exact = makespan_s(f, b, n)
    assert 0.9 * exact <= closed_s(f, b, n) <= exact * (1 + 1e-9)


@pytest.mark.parametrize(("first", "last"), [(1.0, 1.8), (1.0, 1.0), (0.9, 1.0), (1.0, 0.7)])
@pytest.mark.parametrize("p", [2, 4, 16])
@pytest.mark.parametrize("n", [1, 3, 16, 64])
def test_one_longer_or_shorter_end_is_exact(first: float, last: float, p: int, n: int) -> None:
    """What a head on the last stage and a layer less on the ends make."""
    f = [first, *[1.0] * (p - 2), last]
    b = [2.0 * x for x in f]
    assert closed_s(f, b, n) == pytest.approx(makespan_s(f, b, n), rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([2, 4, 8]), st.integers(2, 4), st.sampled_from([2, 4, 8]), st.data()
)  # fmt: skip
def test_uneven_chunks_are_within_some_percent(
    p: int, chunks: int, rounds: int, data: st.DataObject
) -> None:
    f = data.draw(st.lists(st.floats(0.8, 1.2), min_size=p, max_size=p))
    b = [2.0 * x for x in f]
    exact = makespan_s(f, b, rounds * p, chunks)
    assert 0.95 * exact <= closed_s(f, b, rounds * p, chunks) <= exact * (1 + 1e-9)
    few = data.draw(st.integers(1, p - 1))
    exact = makespan_s(f, b, few, chunks)
    assert 0.95 * exact <= closed_s(f, b, few, chunks) <= exact * (1 + 1e-9)


def test_the_last_of_equal_neighbours_waits_longest() -> None:
    """Why a run of equal stages needs one figure."""
    f, n = [1.0, 1.0, 1.0, 1.6], np.array([1.0, 4.0, 32.0])
    ones = np.ones((1, 3))
    single = waiting_s(np.array(f)[:, None] * ones, 2 * np.array(f)[:, None] * ones, [1] * 4, n, 1)
    joined = waiting_s(
        np.array([[1.0], [1.6]]) * ones, np.array([[2.0], [3.2]]) * ones, [3, 1], n, 1
    )
    assert (single[:3].max(axis=0) == single[2]).all()
    assert joined == pytest.approx(single[[2, 3]])


def test_its_order_by_hand() -> None:
    """Stage 1 of 3: one forward ahead, then one forward and one backward in turn."""
    order = SCHEDULES["1f1b"].order(Layout(pp=3), 1, 3)
    assert [f"{w.kind[0]}{w.micro_batch}" for (w,) in order] == ["f0", "f1", "b0", "f2", "b1", "b2"]


def test_what_a_stage_holds_and_what_it_refuses() -> None:
    """p - k micro-batches, never more than there are; one stage alone is a pipeline too."""
    schedule, many = SCHEDULES["1f1b"], np.array([64.0])
    assert [schedule.in_flight(Layout(pp=4), s, many)[0] for s in range(4)] == [4, 3, 2, 1]
    assert schedule.in_flight(Layout(pp=4), 0, np.array([2.0]))[0] == 2
    assert schedule.in_flight(Layout(pp=4), np.array([1.0, 3.0]), 2 * many).tolist() == [3, 1]
    assert schedule.refused(Layout()) == [] == schedule.refused(Layout(pp=4, vpp=2))
    assert schedule.waiting_head == "kept" and not schedule.whole_rounds


def test_with_chunks_it_is_the_interleaved_schedule() -> None:
    assert type(schedule_of(Layout(pp=4))) is OneFOneB
    assert schedule_of(Layout(pp=4, vpp=2)).whole_rounds


def test_of_one_micro_batch_each_stage_waits_for_all_others() -> None:
    """It passes all stages once each way, whichever of them is asked."""
    f, b = np.array([[1.0], [4.0], [2.0], [0.5]]), np.array([[2.0], [3.0], [7.0], [1.0]])
    waits = waiting_s(f, b, [1] * 4, np.ones(1), 1)
    assert waits[:, 0] == pytest.approx(((f + b).sum() - (f + b))[:, 0])


@pytest.mark.parametrize("n", [2, 8])
@pytest.mark.parametrize(
    ("forward", "backward"),
    [([10.0, 1.0], [20.0, 2.0]), ([1.0, 10.0], [2.0, 20.0]), ([1.0, 30.0, 2.0], [2.0, 50.0, 3.0])],
)
def test_a_stage_much_slower_than_others_waits_for_none_of_them_but_to_start(
    forward: list[float], backward: list[float], n: int
) -> None:
    exact = makespan_s(forward, backward, n)
    slow = int(np.argmax(forward))
    start = sum(forward[:slow]) + sum(backward[:slow])
    assert exact == pytest.approx(n * (forward[slow] + backward[slow]) + start)
    assert closed_s(forward, backward, n) == pytest.approx(exact)
