"""The step graph: tasks on streams, in issue order, with dependencies.

A stream runs its tasks one after another in issue order (a CUDA stream, the host thread, a NIC).
A task starts when its stream is free and its ``deps`` have finished; it finishes no sooner than
its ``finish_after`` tasks (a kernel cannot end before the host has issued it).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simcore.base.arrays import NDArray


@dataclass(frozen=True, slots=True)
class Task:
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
        """The last task of each stream: no other of it ends later."""
        return np.array([queue[-1] for queue in self._queues.values()])

    @cached_property
    def _stretches(self) -> list[tuple[str, list[int]]]:
        """Stretches of a stream that wait on earlier stretches only. Raises ValueError."""
        queues = self._queues
        head = dict.fromkeys(queues, 0)
        done: set[int] = set()
        found: list[tuple[str, list[int]]] = []
        more = True
        while more:
            more = False
            for stream, queue in queues.items():
                begin = at = head[stream]
                while at < len(queue):
                    task = self.tasks[queue[at]]
                    if not (done.issuperset(task.deps) and done.issuperset(task.finish_after)):
                        break
                    done.add(queue[at])
                    at += 1
                if at > begin:
                    found.append((stream, queue[begin:at]))
                    head[stream], more = at, True
        if stuck := [self.tasks[q[head[s]]].name for s, q in queues.items() if head[s] < len(q)]:
            raise ValueError(f"the step graph has a cycle through {', '.join(stuck)}")
        return found

    @cached_property
    def waits(self) -> tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]:
        """(task, after which it starts, before which it cannot end), each task after those.

        The task before on the same stream is among the first; what an earlier task of a stream
        has waited for already, or for a later one of the same stream, is left out.
        """
        place = {t: i for queue in self._queues.values() for i, t in enumerate(queue)}
        streams = [task.stream for task in self.tasks]
        before: dict[str, tuple[int, ...]] = dict.fromkeys(self._queues, ())
        seen: dict[str, dict[str, int]] = {s: {} for s in self._queues}

        def waits(stream: str, others: tuple[int, ...]) -> tuple[int, ...]:
            known = seen[stream]  # by stream: the last place waited for
            last: dict[str, int] = {}
            for other in others:
                theirs = streams[other]
                if theirs != stream and place[other] > known.get(theirs, -1):
                    known[theirs] = place[other]
                    last[theirs] = other
            return tuple(last.values())

        found = []
        for stream, run in self._stretches:
            for number in run:
                task = self.tasks[number]
                after, bounds = waits(stream, task.deps), waits(stream, task.finish_after)
                found.append((number, before[stream] + after, bounds))
                before[stream] = (number,)
        return tuple(found)

    @cached_property
    def _queues(self) -> dict[str, list[int]]:
        """The tasks of each stream, in issue order."""
        found: dict[str, list[int]] = {}
        for i, task in enumerate(self.tasks):
            found.setdefault(task.stream, []).append(i)
        return found
