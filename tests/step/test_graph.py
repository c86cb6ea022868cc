"""Waits of a step graph: every one that is needed and none that another implies."""

from __future__ import annotations

import pytest

from simcore.step.graph import StepGraph, Task


def task(stream: str, deps: tuple[int, ...] = (), bounds: tuple[int, ...] = ()) -> Task:
    return Task(f"on {stream}", stream, "forward", deps, bounds)


def test_streams_and_their_last_tasks() -> None:
    graph = StepGraph((task("b"), task("a"), task("b"), task("c"), task("a")))
    assert graph.streams == ("b", "a", "c")
    assert graph.last_tasks.tolist() == [2, 4, 3]


def test_a_task_waits_for_its_stream_its_dependencies_and_its_bounds() -> None:
    """Tasks 0, 1 on a; 2 after 0; 3 after the other two streams, not done before 1 and 2."""
    graph = StepGraph((task("a"), task("a"), task("b", (0,)), task("c", (0,), (1, 2))))
    assert graph.waits == ((0, (), ()), (1, (0,), ()), (2, (0,), ()), (3, (0,), (1, 2)))


def test_waits_that_others_imply_are_left_out() -> None:
    """3 waits for 1 and so for 0; 4 for 1 again, as its stream has; 5 for a later task, 2."""
    graph = StepGraph((
        task("a"), task("a"), task("a"), task("b", (0, 1)), task("b", (1,), (0,)), task("b", (2,)),
        task("b", (3,)),
    ))  # fmt: skip
    waits = {number: (after, bounds) for number, after, bounds in graph.waits}
    assert waits[3] == ((1,), ())  # of a stream's tasks only the last
    assert waits[4] == ((3,), ())
    assert waits[5] == ((4, 2), ())
    assert waits[6] == ((5,), ())  # task 3 is of its own stream


def test_tasks_may_point_ahead() -> None:
    """Task 0 needs 2, and 1 cannot end before 3: both come after these."""
    graph = StepGraph((task("a", (2,)), task("a", (), (3,)), task("b"), task("b")))
    order = [number for number, _, _ in graph.waits]
    assert order == [2, 3, 0, 1]
    assert graph.waits[2:] == ((0, (2,), ()), (1, (0,), (3,)))


def test_a_cycle_is_named() -> None:
    loop = (Task("first", "a", "x", (1,)), Task("second", "b", "x", (0,)), Task("free", "c", "x"))
    with pytest.raises(ValueError, match=r"cycle through first, second$"):
        _ = StepGraph(loop).waits
    bound = (Task("own", "a", "x", (), (1,)), Task("late", "a", "x"))
    with pytest.raises(ValueError, match=r"cycle through own$"):
        _ = StepGraph(bound).waits


def test_lines_of_a_breakdown_by_rank_class() -> None:
    """Tasks of each class's compute stream, and last those of streams that all share."""
    graph = StepGraph((
        Task("issue", "host", "host"), Task("f", "compute 0", "forward"),
        Task("f", "compute 1", "forward"), Task("send", "comm", "communication"),
        Task("b", "compute 1", "backward"), Task("f", "compute 0", "forward"),
        Task("copy", "copy", "input copy"), Task("send", "comm", "communication"),
    ))  # fmt: skip
    assert graph.lines(2) == (
        {"forward": [1, 5]}, {"forward": [2], "backward": [4]},
        {"communication": [3, 7], "input copy": [6]},
    )  # fmt: skip
    alone = StepGraph((Task("f", "compute", "forward"), Task("issue", "host", "host")))
    assert alone.lines(1) == ({}, {"forward": [0]})
