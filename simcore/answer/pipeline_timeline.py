"""The step of a job with a pipeline, drawn micro-batch by micro-batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate

import numpy as np

from simcore.base.record import dataclass
from simcore.memory.job import axis_of, memory_over
from simcore.memory.parts import saved_activations
from simcore.memory.terms import Memory
from simcore.request.placed import Placed
from simcore.request.resolved import Request
from simcore.step.schedules.base import WEIGHTS_FRAC, Slot, StageTimes
from simcore.strategy.layout import Layout
from simcore.timing.evaluate import Job
from simcore.timing.points import Points
from simcore.timing.stage_steps import StageSteps, stage_steps
from simcore.timing.step_edges import Sync, step_edges
from simcore.timing.steps import divided, steps_of, values_of, with_library

#: Memory terms that come and go within a step; of these only activations are drawn.
_PASSING = ("activations", "working_set", "gradient_copies")
#: Name of the time that the last backward takes longer than others, because it sends gradients.
SLOWED = "backward beside gradients"
#: Name of the wait for the next batch, with the loader's restart at each epoch.
LOADING = "waiting for data"
#: Name of the all-reduce of the gradients of a table that both ends of a pipeline hold.
TIED = "all-reduce of the tied table"


@dataclass(frozen=True)
class StageLine:
    """One step of a pipeline stage, on each of its ``n_gpus`` equal ranks.

    ``exchanges_s``: exposed seconds of tensor, context, expert and pipeline exchanges in a forward
    and in a backward of the whole stage. ``begins``: tasks before the first micro-batch; ``ends``:
    gradients, update and what follows. ``held_bytes``: (time, bytes on the device) at each change.
    """

    n_gpus: int
    n_layers: int
    slots: tuple[Slot, ...]
    exchanges_s: dict[str, tuple[float, float]]
    begins: tuple[Sync, ...]
    ends: tuple[Sync, ...]
    held_bytes: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class PipelineLine:
    """One step of a job with a layout, micro-batch by micro-batch.

    ``finish_s``: end of the schedule that is drawn. The predicted step time is the closed form's,
    not this value.
    """

    layout: Layout
    stages: tuple[StageLine, ...]
    finish_s: float


@dataclass(frozen=True)
class _Part:
    """Values that equal stages share: times of a micro-batch, exchanges, begin and end of the step.

    ``begins``: tasks before the first micro-batch, with times from the step's begin; ``ends``:
    tasks after the last backward, with times from its end. ``slowed_s``: extra time of the last
    backward, during which gradients are sent. ``tied_at_s``: time among ``ends`` at which both ends
    of the pipeline all-reduce their tied table, before the update.
    """

    times: StageTimes
    exchanges_s: dict[str, tuple[float, float]]
    begins: tuple[Sync, ...]
    ends: tuple[Sync, ...]
    slowed_s: float
    tied_at_s: float
    tied_s: float
    static_bytes: float
    micro_batch_bytes: float


#: Most forwards and backwards of all stages that are drawn: 130,000 take 5 s and 0.8 GB to draw.
MOST_DRAWN = 250_000


def undrawn(request: Request) -> str:
    """Why the step of a job with a layout cannot be drawn; "" where it can."""
    placed = request.placed
    if placed is None:
        return ""
    n = 2 * placed.layout.pp * placed.schedule.parts(placed.layout) * request.grad_accum
    if n > MOST_DRAWN:
        return (
            f"a step with {n:,} forwards and backwards is not drawn (at most {MOST_DRAWN:,}): "
            "give a smaller --grad-accum"
        )
    return placed.schedule.undrawn(placed.layout, request.grad_accum)


def pipeline_line(request: Request) -> PipelineLine:
    """One step scheduled on every stage.

    Raises ValueError for a job without a layout, and for one that ``undrawn`` refuses.
    """
    placed = request.placed
    if placed is None:
        raise ValueError("this job has no layout: its step has a timeline, not a pipeline")
    layout = placed.layout
    values = values_of(request)
    points = with_library(request, Points.of({**values, "use_loader": 0.0}, 1))
    parts = _parts(request, placed, points)
    of_stage = [parts[id(s.workload)] for s in placed.stages]
    of_slots = placed.schedule.play(layout, [p.times for p in of_stage], request.grad_accum)
    per_stage = request.cluster.n_gpus // layout.pp
    ends_s = [max(s.finish_s for s in mine) for mine in of_slots]
    # Both ends of the pipeline have their table's gradients before the all-reduce begins.
    together_s = max(
        end + part.slowed_s + part.tied_at_s for end, part in zip(ends_s, of_stage, strict=True)
    )
    stages = [
        StageLine(
            n_gpus=per_stage,
            n_layers=stage.n_layers,
            slots=mine,
            exchanges_s=part.exchanges_s,
            begins=part.begins,
            ends=tuple(_placed_ends(part, end, together_s if part.tied_s else None)),
            held_bytes=_held(mine, part, placed.schedule.parts(layout)),
        )
        for stage, part, mine, end in zip(placed.stages, of_stage, of_slots, ends_s, strict=True)
    ]
    after = [sync.finish_s for stage in stages for sync in stage.ends]
    finish = max(*ends_s, *after)
    if request.loading is not None:
        both = Points.of({**values, "use_loader": np.array([1.0, 0.0])}, 2)
        slow_s, fast_s = steps_of(request, both, terms=()).step_s.tolist()
        if slow_s > fast_s:
            waits = Sync(LOADING, "host", "loader", finish, finish + slow_s - fast_s)
            stages = [replace(stage, ends=(*stage.ends, waits)) for stage in stages]
            finish = waits.finish_s
    return PipelineLine(layout, tuple(stages), finish)


def _placed_ends(part: _Part, end_s: float, tied_s: float | None) -> Iterator[Sync]:
    """The tasks after a stage's micro-batches, with times from the step's begin.

    ``tied_s``: when its tied table is summed up, None for a stage without one.
    """
    if part.slowed_s > 0:
        yield Sync(SLOWED, "compute", "backward", end_s, end_s + part.slowed_s)
    end_s += part.slowed_s
    later_s = 0.0
    if tied_s is not None:
        later_s = tied_s + part.tied_s - (end_s + part.tied_at_s)
        yield Sync(TIED, "comm", "communication", tied_s, tied_s + part.tied_s)
    for sync in part.ends:
        shift_s = end_s + (later_s if sync.start_s >= part.tied_at_s else 0.0)
        if sync.start_s + shift_s >= 0.0:
            yield replace(sync, start_s=sync.start_s + shift_s, finish_s=sync.finish_s + shift_s)


def _parts(request: Request, placed: Placed, points: Points) -> dict[int, _Part]:
    """The ``_Part`` of each distinct stage, by the identity of its workload."""
    memories = memory_over(request, *axis_of(request))
    one = divided(request)
    steps = stage_steps([one], points, keep_timeline=True)
    micro_steps = request.micro_steps
    return {
        id(job.workload): _part(request, placed, job, steps.of(kind), memory, micro_steps)
        for kind, (job, memory) in enumerate(zip(one.jobs, memories, strict=True))
    }


def _part(
    request: Request, placed: Placed, job: Job, step: StageSteps, memory: Memory, micro_steps: float
) -> _Part:
    layout = placed.layout
    forward_s, backward_s = (
        float(max(step.busy_s[0], step.steps.host_micro_s[0]) * share)
        for share in (step.forward_frac[0], 1.0 - step.forward_frac[0])
    )
    split = {name: _split(name, float(x[0]), placed) for name, x in step.exchanges_s.items()}
    weights_s = WEIGHTS_FRAC * backward_s if placed.schedule.splits_backward else 0.0
    once_s = forward_s + backward_s + sum(sum(halves) for halves in split.values())
    edges = step_edges(job, step.steps, forward_s, micro_steps)
    # The last micro-batch does not add its gradients to a sum; it sends them.
    between_s = float(step.total_s[0]) - edges.begin_s - edges.end_s - float(step.tied_s[0])
    longer_s = between_s - micro_steps * once_s
    # A slow host issues the first micro-batches while the device waits for earlier work. What
    # exceeds the last backward is such time.
    issued_s = max(-longer_s - (backward_s - weights_s), 0.0)
    passing = sum(float(memory.terms[t][0]) for t in _PASSING)
    saved = saved_activations(
        job.workload, request.strategy.precision, request.strategy.recompute == "full"
    )
    return _Part(
        times=StageTimes(
            forward_s + sum(f for f, _ in split.values()),
            backward_s - weights_s + sum(b for _, b in split.values()),
            weights_s,
            begin_s=max(edges.begin_s - issued_s, 0.0),
            last_s=min(longer_s + issued_s, 0.0),
        ),
        exchanges_s=split,
        begins=edges.begins,
        ends=edges.ends,
        slowed_s=max(longer_s, 0.0),
        tied_at_s=edges.update_at_s,
        tied_s=float(step.tied_s[0]),
        static_bytes=float(memory.device[0]) - passing,
        micro_batch_bytes=saved.kept * request.micro_batch / layout.cp,
    )


def _split(name: str, seconds: float, placed: Placed) -> tuple[float, float]:
    """Seconds of an exchange in forward and in backward, divided by how often each runs it."""
    passes = {ranks.name: ranks.passes for ranks in placed.dimensions}
    forward, backward = passes.get(name, (1.0, 1.0))
    forward_frac = forward / (forward + backward)
    return seconds * forward_frac, seconds * (1.0 - forward_frac)


def _held(slots: tuple[Slot, ...], part: _Part, parts: int) -> tuple[tuple[float, float], ...]:
    """(time, bytes on the device) whenever activations of a micro-batch appear or are freed."""
    last = "weights" if part.times.weights_s else "backward"
    changes = [(s.start_s, 1.0) for s in slots if s.work.kind == "forward"]
    changes += [(s.finish_s, -1.0) for s in slots if s.work.kind == last]
    changes.sort()
    live = accumulate(step for _, step in changes)
    return tuple(
        (at, part.static_bytes + n / parts * part.micro_batch_bytes)
        for (at, _), n in zip(changes, live, strict=True)
    )
