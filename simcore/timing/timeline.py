"""Max-plus schedule of a step graph over the configuration axis.

# C configs, T tasks. start = max(stream free, deps); finish = max(start + duration, bounds).

Tasks are scheduled one after another, each for all configurations at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.record import dataclass
from simcore.step.graph import StepGraph

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Timeline:
    """Start and finish of every task [s], arrays [T, C].

    ``duration_s``: of its own work, without the time that it waits for tasks that bound it.
    """

    graph: StepGraph
    start_s: Array
    finish_s: Array
    duration_s: Array | None = None

    @property
    def makespan_s(self) -> Array:
        """End of the last task [C]."""
        found: Array = self.finish_s[self.graph.last_tasks].max(axis=0)
        return found


def makespan_s(graph: StepGraph, duration_s: Sequence[Array]) -> Array:
    """End of the last task [C]; ``duration_s``: of each task [C], one array for equal ones."""
    ends = list(duration_s)
    for task, after, bounds in graph.waits:
        end = ends[task]
        if len(after) == 1:
            end = ends[after[0]] + end
        elif after:
            begin = np.maximum(ends[after[0]], ends[after[1]])
            for other in after[2:]:
                np.maximum(begin, ends[other], out=begin)
            end = np.add(begin, end, out=begin)
        for bound in bounds:
            end = np.maximum(end, ends[bound], out=end if after else None)
        ends[task] = end
    return reduce(np.maximum, (ends[task] for task in graph.last_tasks))


def schedule(graph: StepGraph, duration_s: Array) -> Timeline:
    """The schedule of ``graph`` with task durations [T, C]."""
    start, finish = np.zeros(duration_s.shape), duration_s.copy()
    for task, after, bounds in graph.waits:
        begin, end = start[task], finish[task]
        for other in after:
            np.maximum(begin, finish[other], out=begin)
        end += begin
        for bound in bounds:
            np.maximum(end, finish[bound], out=end)
    return Timeline(graph, start, finish, duration_s)
