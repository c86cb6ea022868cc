"""Max-plus schedule of a step graph over the configuration axis.

# C configs, T tasks. start = max(stream free, deps); finish = max(start + duration, bounds).

A run of n tasks on one stream solves in closed form. With D the running sum of durations,
finish_i - D_i = max(finish_{i-1} - D_{i-1}, ready_i - D_{i-1}, bound_i - D_i), a running maximum.
That takes few calls, whatever the tasks, but several passes over all of them: on a wide axis the
recurrence itself, a task at a time, is faster (``makespan_s``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from simcore.base.arrays import NDArray
from simcore.step.graph import StepGraph

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Timeline:
    """Start and finish of every task [s], arrays [T, C]."""

    graph: StepGraph
    start_s: Array
    finish_s: Array

    @property
    def makespan_s(self) -> Array:
        """When the last task ends, [C]."""
        return last_s(self.graph, self.finish_s)


def makespan_s(graph: StepGraph, duration_s: Array) -> Array:
    """When the last task ends, [C]; ``duration_s`` [T, C] becomes when each task does."""
    ends = list(duration_s)
    begin = np.empty(duration_s.shape[1])
    for task, after, bounds in graph.waits:
        end = ends[task]
        if len(after) == 1:
            end += ends[after[0]]
        elif after:
            np.maximum(ends[after[0]], ends[after[1]], out=begin)
            for other in after[2:]:
                np.maximum(begin, ends[other], out=begin)
            end += begin
        for bound in bounds:
            np.maximum(end, ends[bound], out=end)
    return reduce(np.maximum, (ends[task] for task in graph.last_tasks))


def last_s(graph: StepGraph, finish: Array) -> Array:
    """When the last task ends, [C], of when each does [T, C]."""
    found: Array = finish[graph.last_tasks].max(axis=0)
    return found


def schedule(graph: StepGraph, duration_s: Array) -> Timeline:
    """Schedule ``graph`` with task durations [T, C]."""
    start = np.empty(duration_s.shape)
    finish = finish_s(graph, duration_s, start)
    return Timeline(graph, start, finish)


def finish_s(graph: StepGraph, duration_s: Array, start: Array | None = None) -> Array:
    """When each task ends [T, C]; into ``start``, where given, when it begins."""
    n_tasks, n_configs = duration_s.shape
    finish = np.zeros((n_tasks + 1, n_configs))  # the last row is "no task": 0
    free = np.zeros((len(graph.streams), n_configs))
    for run in graph.runs:
        tasks = run.tasks
        last = free[run.stream]
        if len(tasks) == 1:
            task = tasks[0]
            begin = last
            if run.deps is not None:
                begin = _latest_one(finish, run.deps[0], begin)
            end = begin + duration_s[task]
            if run.bounds is not None:
                end = _latest_one(finish, run.bounds[0], end)
            if start is not None:
                start[task] = begin  # before its stream's ``free``, which it may be a view of
            finish[task] = free[run.stream] = end
            continue
        elapsed = np.add.accumulate(duration_s[tasks], axis=0)
        if run.deps is None and run.bounds is None:
            ready, ends = None, elapsed + last
        else:
            ready = None
            if run.deps is not None:
                ready = _latest(finish, run.deps)
                slack = np.empty_like(elapsed)
                slack[0] = ready[0]
                np.subtract(ready[1:], elapsed[:-1], out=slack[1:])
            else:
                slack = np.full_like(elapsed, -np.inf)
            if run.bounds is not None:
                np.maximum(slack, _latest(finish, run.bounds) - elapsed, out=slack)
            np.maximum(slack[0], last, out=slack[0])
            ends = elapsed + np.maximum.accumulate(slack, axis=0)
        if start is not None:
            begins = np.empty_like(ends)
            begins[0], begins[1:] = last, ends[:-1]
            if ready is not None:
                np.maximum(begins, ready, out=begins)
            start[tasks] = begins
        finish[tasks] = ends
        free[run.stream] = ends[-1]
    return finish[:-1]


def _latest_one(finish: Array, tasks: NDArray[np.intp], after: Array) -> Array:
    """The latest of ``after`` and of what one task waits for, [C]."""
    for task in tasks:
        after = np.maximum(after, finish[task])
    return after


def _latest(finish: Array, table: NDArray[np.intp]) -> Array:
    """The latest finish of each task's dependencies [n, C]."""
    result = finish[table[:, 0]]
    for column in range(1, table.shape[1]):
        np.maximum(result, finish[table[:, column]], out=result)
    return result
