"""The step graph, tasks on streams with dependencies, and when each task starts and finishes.

A stream runs its tasks one after another in issue order (a CUDA stream, the host thread, a NIC).
A task starts when its stream is free and its ``deps`` have finished; it finishes no sooner than
its ``finish_after`` tasks (a kernel cannot end before the host has issued it).

# C configs, T tasks. start = max(stream free, deps); finish = max(start + duration, finish_after)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, reduce
from typing import NamedTuple

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.record import dataclass


class Task(NamedTuple):
    """One node of the graph. ``term`` is the line of the time breakdown it belongs to."""

    name: str
    stream: str
    term: str
    deps: tuple[int, ...] = ()
    finish_after: tuple[int, ...] = ()


@dataclass(frozen=True)
class StepGraph:
    """Tasks in issue order; dependencies may point at any task but must not form a cycle."""

    tasks: tuple[Task, ...]

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """Stream names in order of first use."""
        return tuple(self._queues)

    @cached_property
    def last_tasks(self) -> NDArray[np.intp]:
        """The last task of each stream, which is also the last of its stream to finish."""
        return np.array([queue[-1] for queue in self._queues.values()])

    def lines(self, n_classes: int) -> tuple[dict[str, list[int]], ...]:
        """The tasks of each line of the time breakdown, without the host's.

        Of each rank class, and last of the streams that all of them share.
        """
        alike: dict[tuple[str, str], list[int]] = {}
        for number, task in enumerate(self.tasks):
            alike.setdefault((task.stream, task.term), []).append(number)
        found: tuple[dict[str, list[int]], ...] = tuple({} for _ in range(n_classes + 1))
        for (stream, term), numbers in alike.items():
            if term != "host":
                _, _, rank_class = stream.partition("compute ")
                of_class = found[int(rank_class) if rank_class else n_classes]
                of_class.setdefault(term, []).extend(numbers)
        return found

    @cached_property
    def _runs(self) -> list[tuple[str, list[int]]]:
        """Runs: consecutive tasks of one stream that depend on each other or on earlier runs only.

        Raises ValueError if the dependencies form a cycle.
        """
        queues = self._queues
        head = dict.fromkeys(queues, 0)
        done: set[int] = set()
        runs: list[tuple[str, list[int]]] = []
        advanced = True
        while advanced:
            advanced = False
            for stream, queue in queues.items():
                begin = end = head[stream]
                while end < len(queue):
                    task = self.tasks[queue[end]]
                    if not (done.issuperset(task.deps) and done.issuperset(task.finish_after)):
                        break
                    done.add(queue[end])
                    end += 1
                if end > begin:
                    runs.append((stream, queue[begin:end]))
                    head[stream], advanced = end, True
        if stuck := [self.tasks[q[head[s]]].name for s, q in queues.items() if head[s] < len(q)]:
            raise ValueError(f"the step graph has a cycle through {', '.join(stuck)}")
        return runs

    @cached_property
    def waits(self) -> tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]:
        """Triples (task, tasks it starts after, tasks it cannot finish before), without redundancy.

        A triple comes after those of all the tasks that it names. The second entry includes the
        previous task on the same stream. A dependency is omitted if an earlier task of this stream
        already waits for it, or if this stream waits for a later task of the dependency's stream.
        """
        position = {t: i for queue in self._queues.values() for i, t in enumerate(queue)}
        streams = [task.stream for task in self.tasks]
        previous: dict[str, tuple[int, ...]] = dict.fromkeys(self._queues, ())
        waited: dict[str, dict[str, int]] = {s: {} for s in self._queues}

        def new_waits(stream: str, others: tuple[int, ...]) -> tuple[int, ...]:
            last_waited = waited[stream]  # by other stream: the last position waited for
            last: dict[str, int] = {}
            for other in others:
                other_stream = streams[other]
                if other_stream != stream and position[other] > last_waited.get(other_stream, -1):
                    last_waited[other_stream] = position[other]
                    last[other_stream] = other
            return tuple(last.values())

        triples = []
        for stream, run in self._runs:
            for number in run:
                task = self.tasks[number]
                after, bounds = new_waits(stream, task.deps), new_waits(stream, task.finish_after)
                triples.append((number, previous[stream] + after, bounds))
                previous[stream] = (number,)
        return tuple(triples)

    @cached_property
    def _queues(self) -> dict[str, list[int]]:
        """The tasks of each stream, in issue order."""
        queues: dict[str, list[int]] = {}
        for i, task in enumerate(self.tasks):
            queues.setdefault(task.stream, []).append(i)
        return queues


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
        return self.finish_s[self.graph.last_tasks].max(axis=0)


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
