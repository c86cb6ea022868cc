"""The closed-form schedule against the recurrence it solves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import Array, step_graphs

from simcore.step.graph import StepGraph, Task, makespan_s, schedule


def recurrence(graph: StepGraph, duration_s: Array) -> tuple[Array, Array]:
    """start = max(stream free, deps); finish = max(start + duration, finish_after)."""
    start, finish = np.zeros_like(duration_s), np.zeros_like(duration_s)
    for c in range(duration_s.shape[1]):
        free: dict[str, float] = {}
        for i, task in enumerate(graph.tasks):
            begin = max([free.get(task.stream, 0.0), *(finish[d, c] for d in task.deps)])
            end = max([begin + duration_s[i, c], *(finish[d, c] for d in task.finish_after)])
            start[i, c], finish[i, c], free[task.stream] = begin, end, end
    return start, finish


@given(step_graphs())
def test_closed_form_equals_the_recurrence(given_: tuple[StepGraph, Array]) -> None:
    graph, seconds = given_
    start, finish = recurrence(graph, seconds)
    timeline = schedule(graph, seconds)
    np.testing.assert_allclose(timeline.start_s, start, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(timeline.finish_s, finish, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(timeline.makespan_s, finish.max(axis=0), rtol=1e-12, atol=1e-9)


@given(step_graphs())
def test_a_task_at_a_time_ends_when_the_closed_form_does(given_: tuple[StepGraph, Array]) -> None:
    graph, seconds = given_
    line, each = schedule(graph, seconds), list(seconds.copy())
    np.testing.assert_allclose(makespan_s(graph, each), line.makespan_s, rtol=1e-12)
    np.testing.assert_array_equal(each, seconds)  # equal tasks share an array: it must not change


@given(step_graphs(), st.data())
def test_a_longer_task_never_ends_the_step_sooner(
    given_: tuple[StepGraph, Array], data: st.DataObject
) -> None:
    graph, seconds = given_
    i = data.draw(st.integers(0, len(graph.tasks) - 1))
    longer = seconds.copy()
    longer[i] += data.draw(st.floats(0.0, 50.0))
    before, after = (schedule(graph, s).makespan_s for s in (seconds, longer))
    assert (after >= before - 1e-9).all()


@given(step_graphs())
def test_makespan_is_bounded_by_streams_and_by_the_sum(given_: tuple[StepGraph, Array]) -> None:
    graph, seconds = given_
    makespan = schedule(graph, seconds).makespan_s
    assert (makespan <= seconds.sum(axis=0) + 1e-9).all()
    for stream in graph.streams:
        mine = [i for i, t in enumerate(graph.tasks) if t.stream == stream]
        assert (makespan >= seconds[mine].sum(axis=0) - 1e-9).all()


@given(step_graphs())
def test_configurations_do_not_see_each_other(given_: tuple[StepGraph, Array]) -> None:
    graph, seconds = given_
    together = schedule(graph, seconds)
    for c in range(3):
        alone = schedule(graph, seconds[:, c : c + 1])
        np.testing.assert_allclose(alone.finish_s[:, 0], together.finish_s[:, c], rtol=1e-12)


def test_host_bound_by_hand() -> None:
    """A kernel of 1 s whose issue ends at 5 s finishes at 5 s; the next starts there."""
    graph = StepGraph(
        (
            Task("issue", "host", "host"),
            Task("kernel", "compute", "forward", (), (0,)),
            Task("next", "compute", "forward"),
        )
    )
    timeline = schedule(graph, np.array([[5.0], [1.0], [2.0]]))
    assert timeline.start_s[:, 0].tolist() == [0.0, 0.0, 5.0]
    assert timeline.finish_s[:, 0].tolist() == [5.0, 5.0, 7.0]


def test_dependencies_may_point_forward_across_streams() -> None:
    """Issue order within a stream is all that counts, not the order of the list."""
    graph = StepGraph((Task("late", "a", "x", deps=(1,)), Task("early", "b", "x")))
    assert schedule(graph, np.array([[1.0], [2.0]])).finish_s[:, 0].tolist() == [3.0, 2.0]


@pytest.mark.parametrize("kind", ["deps", "finish_after"])
def test_a_cycle_is_an_error_that_names_its_tasks(kind: str) -> None:
    def task(name: str, stream: str, on: int) -> Task:
        return Task(name, stream, "x", **{kind: (on,)})

    graph = StepGraph((task("one", "a", 1), task("two", "b", 0)))
    with pytest.raises(ValueError, match="one, two"):
        schedule(graph, np.ones((2, 1)))
    within = StepGraph((task("first", "a", 1), task("second", "a", 0)))
    with pytest.raises(ValueError, match="first"):
        schedule(within, np.ones((2, 1)))
