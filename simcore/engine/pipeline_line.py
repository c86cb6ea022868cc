"""The step of a job that is cut over ranks, drawn micro-batch by micro-batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from simcore.engine import messages
from simcore.engine.evaluate import Steps, evaluate
from simcore.engine.exchanges import (
    TRANSFER,
    beside_host,
    data_points,
    exchange_passes,
    exchanges_s,
    exposed,
)
from simcore.engine.job_memory import memory_over
from simcore.engine.memory_parts import activation_profile
from simcore.engine.pace import stage_paces
from simcore.engine.pipeline import (
    PipelineLine,
    Slot,
    StageLine,
    StageTimes,
    Sync,
    schedule_pipeline,
)
from simcore.engine.placed import Placed
from simcore.engine.points import Points
from simcore.engine.predict import job_of, values_of, with_library
from simcore.engine.resolved import Request

#: Of a backward, what finds the weights' gradients: one of its two products a weight.
_WEIGHTS_FRAC = 0.5
#: Memory that comes and goes within a step; only activations are drawn.
_PASSING = ("activations", "working_set", "gradient_copies")
#: Lines of the time breakdown that the micro-batches themselves draw.
_DRAWN = ("forward", "backward", "accumulation", "host", "loader", "frozen", "input copy")


@dataclass(frozen=True)
class _Part:
    """What equal stages share: seconds of a micro-batch, exchanges, and the step's end."""

    times: StageTimes
    exchanges_s: dict[str, tuple[float, float]]
    syncs: tuple[Sync, ...]
    static_bytes: float
    micro_batch_bytes: float


def drawable(request: Request) -> bool:
    """Whether the schedule has an order for so few micro-batches: DualPipe's begins at 2 pp."""
    layout = request.placed.layout if request.placed else None
    return layout is not None and (
        layout.directions == 1 or request.grad_accum >= layout.directions * layout.pp
    )


def pipeline_line(request: Request) -> PipelineLine:
    """Schedule one step on every stage.

    Raises ValueError where the model is not cut, and for DualPipe below 2 pp micro-batches.
    """
    placed = request.placed
    if placed is None:
        raise ValueError("the model is not cut: its step has a timeline, not a pipeline")
    layout = placed.layout
    points = with_library(request, Points.of(values_of(request), 1))
    parts = _parts(request, placed, points)
    of_stage = [parts[id(s.workload)] for s in placed.stages]
    slots = schedule_pipeline(layout, [p.times for p in of_stage], request.grad_accum)
    per_stage = request.cluster.n_gpus // layout.pp
    stages = []
    for i, (stage, part) in enumerate(zip(placed.stages, of_stage, strict=True)):
        mine = tuple(s for s in slots if s.stage == i)
        end = max(s.finish_s for s in mine)
        syncs = tuple(
            replace(s, start_s=s.start_s + end, finish_s=s.finish_s + end)
            for s in part.syncs
            if s.start_s + end >= 0
        )
        stages.append(
            StageLine(
                n_gpus=per_stage,
                n_layers=stage.n_layers,
                slots=mine,
                exchanges_s=part.exchanges_s,
                syncs=syncs,
                held_bytes=_held(mine, part, layout.vpp * layout.directions),
            )
        )
    finish = max(max(s.slots[-1].finish_s, *(x.finish_s for x in s.syncs), 0.0) for s in stages)
    return PipelineLine(layout, tuple(stages), finish)


def _parts(request: Request, placed: Placed, points: Points) -> dict[int, _Part]:
    """What each distinct stage needs, by the identity of its workload."""
    local, layout = data_points(points, placed), placed.layout
    one = np.ones(1)
    memories = memory_over(
        request,
        one * request.micro_batch,
        one * request.grad_accum,
        one * request.cluster.n_gpus,
        one * request.cluster.n_nodes,
    )
    found = {}
    counts = tuple(count for _, count in placed.distinct_stages)
    whole_job = job_of(request)
    paces = stage_paces(points, layout, counts, whole_job.classes[0].device_sd_frac).slowest
    for (index, _), behind, memory, pace in zip(
        placed.distinct_stages, placed.behind, memories, paces, strict=True
    ):
        stage = placed.stages[index]
        job = replace(whole_job, workload=stage.workload)
        steps = evaluate(job, replace(local, compute=local.compute * pace), keep_timeline=True)
        forward, backward = _busy_s(steps, float(local.grad_accum[0]))
        busy = forward + backward
        waits = max(float(steps.host_micro_s[0]) - busy, 0.0)
        slowdown = job.classes[0].overlap_slowdown_frac / points.overlap
        whole = exchanges_s(points, placed, stage.n_layers)
        seen = exposed(whole, placed, np.array([busy]), slowdown)
        seen = beside_host(seen, placed, np.array([busy]), steps.host_micro_s)
        if placed.hides_messages:
            halves = np.array([forward]), np.array([backward])
            seen[TRANSFER] = messages.seen_s(
                layout, behind, local.grad_accum, seen[TRANSFER], halves, slowdown
            )
        forward, backward = (x * (1.0 + waits / busy) for x in (forward, backward))
        split = {name: _split(name, float(x[0]), placed) for name, x in seen.items()}
        forward += sum(f for f, _ in split.values())
        split_apart = layout.zero_bubble or layout.directions > 1
        weights = _WEIGHTS_FRAC * backward if split_apart else 0.0
        passing = sum(float(memory.terms[t][0]) for t in _PASSING)
        saved = activation_profile(
            stage.workload, request.strategy.precision, request.strategy.recompute == "full"
        )
        found[id(stage.workload)] = _Part(
            times=StageTimes(
                forward, backward - weights + sum(b for _, b in split.values()), weights
            ),
            exchanges_s=split,
            syncs=_syncs(steps),
            static_bytes=float(memory.device[0]) - passing,
            micro_batch_bytes=saved.kept * request.micro_batch / layout.cp,
        )
    return found


def _busy_s(steps: Steps, grad_accum: float) -> tuple[float, float]:
    """Seconds of compute in one micro-step's forward and backward."""
    forward, backward = (float(steps.terms_s[t][0]) for t in ("forward", "backward"))
    if grad_accum > 1:  # with the summing up of gradients, and where the host holds it up
        once = float(steps.terms_s["accumulation"][0]) / (grad_accum - 1)
        scale = once / (forward + backward)
        return forward * scale, backward * scale
    return forward, backward


def _split(name: str, seconds: float, placed: Placed) -> tuple[float, float]:
    """Seconds of an exchange in forward and in backward, by how often each runs it."""
    forward, backward = exchange_passes(placed).get(name, (1.0, 1.0))
    forward_frac = forward / (forward + backward)
    return seconds * forward_frac, seconds * (1.0 - forward_frac)


def _syncs(steps: Steps) -> tuple[Sync, ...]:
    """Collectives and updates of a step, counted from the end of its last backward [s]."""
    line = steps.timeline
    assert line is not None
    tasks = line.graph.tasks
    end = max(float(line.finish_s[i, 0]) for i, t in enumerate(tasks) if t.term == "backward")
    return tuple(
        Sync(t.name, t.stream, t.term, start - end, finish - end)
        for i, t in enumerate(tasks)
        if t.term not in _DRAWN
        and (finish := float(line.finish_s[i, 0])) > (start := float(line.start_s[i, 0]))
    )


def _held(slots: tuple[Slot, ...], part: _Part, parts: int) -> tuple[tuple[float, float], ...]:
    """Bytes on the device whenever a micro-batch's activations come or go."""
    last = "weights" if part.times.weights_s else "backward"
    changes = [(s.start_s, 1.0) for s in slots if s.work.kind == "forward"]
    changes += [(s.finish_s, -1.0) for s in slots if s.work.kind == last]
    changes.sort()
    live = accumulate(step for _, step in changes)
    return tuple(
        (at, part.static_bytes + n / parts * part.micro_batch_bytes)
        for (at, _), n in zip(changes, live, strict=True)
    )
