"""What a stage does before its first micro-batch and after its last, taken from its timeline."""

from __future__ import annotations

from collections.abc import Iterator

from simcore.base.record import dataclass
from simcore.step.graph import Timeline
from simcore.timing.evaluate import Job, Steps

#: Terms of the time breakdown that are drawn as micro-batches.
_DRAWN = ("forward", "backward", "accumulation", "host", "frozen")
#: Terms of the update; a tied table is summed up before it.
_UPDATE = ("optimizer", "ema")


@dataclass(frozen=True)
class Sync:
    """Something a stage does once a step on one of its streams, with begin and end [s]."""

    name: str
    stream: str
    term: str
    start_s: float
    finish_s: float


@dataclass(frozen=True)
class StepEdges:
    """The begin and the end of a step.

    ``begins``: tasks with times from the step's begin; ``ends``: from the end of the last backward.
    ``begin_s``: time by which they delay the first micro-batch; ``end_s``: time that they take
    after the last one; ``update_at_s``: when in that time the update begins.
    """

    begins: tuple[Sync, ...]
    ends: tuple[Sync, ...]
    begin_s: float
    end_s: float
    update_at_s: float


def step_edges(job: Job, steps: Steps, forward_s: float, micro_steps: float) -> StepEdges:
    """Begin and end of a stage's step. ``forward_s``: its forward of one micro-batch alone."""
    line = steps.timeline
    assert line is not None
    tasks, phases = line.graph.tasks, set(job.program.compute_tasks)
    first = next(i for i, task in enumerate(tasks) if task.term == "accumulation")
    backward = [i for i, task in enumerate(tasks) if task.term == "backward"]
    back_s = float(line.finish_s[backward, 0].max())
    # Parameters gathered under forward delay the first forward, which is before the others.
    early = any(i in phases and tasks[i].term == "forward" for i in range(first))
    before_s = forward_s * early
    if micro_steps > 1:  # each micro-batch runs the frozen networks
        before_s += float(steps.terms_s["frozen"][0]) if "frozen" in steps.terms_s else 0.0
    updates = [i for i in range(backward[-1], len(tasks))
               if tasks[i].term in _UPDATE or tasks[i].stream == "host cpu"]  # fmt: skip
    update_s = float(line.start_s[updates, 0].min()) if updates else back_s
    begins = [i for i in range(first) if i not in phases and tasks[i].term != "host"]
    ends = [i for i in range(first, len(tasks)) if tasks[i].term not in _DRAWN]
    return StepEdges(
        begins=tuple(_shown(line, begins, 0.0)),
        ends=tuple(_shown(line, ends, back_s)),
        begin_s=max(float(line.start_s[first, 0]) - before_s, 0.0),
        end_s=float(line.makespan_s[0]) - back_s,
        update_at_s=update_s - back_s,
    )


def _shown(line: Timeline, tasks: list[int], zero_s: float) -> Iterator[Sync]:
    """Tasks with a duration above zero, with times from ``zero_s``."""
    for i in tasks:
        start, finish = float(line.start_s[i, 0]), float(line.finish_s[i, 0])
        if finish > start:
            task = line.graph.tasks[i]
            yield Sync(task.name, task.stream, task.term, start - zero_s, finish - zero_s)
