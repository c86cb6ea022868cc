"""Compute and collective time of a step by kind of kernel and operation, as priced in the step."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from simcore.answer.result import Prediction
from simcore.request.resolved import Request
from simcore.step.graph import Timeline
from simcore.step.kernels import (
    BATCHED,
    DEPTHWISE_LAST,
    FEW_LOADED,
    KINDS,
    UNALIGNED,
    VECTOR_CONV,
    WIDE,
)
from simcore.timing.compute import phase_seconds
from simcore.timing.exchanges import data_points, exchanges_of
from simcore.timing.points import Points
from simcore.timing.steps import job_of, steps_of, values_of, with_library
from simcore.workload.graph import CONV_KINDS, FLASH_KINDS, RECURRENT

#: Kinds of compute kernel, by the name that reports use; all other kernels are memory-bound.
GROUPS: dict[str, tuple[str, ...]] = {
    "gemm": ("gemm", RECURRENT, WIDE, BATCHED, UNALIGNED, *FEW_LOADED),
    "conv": (*CONV_KINDS, DEPTHWISE_LAST, VECTOR_CONV), "attention": tuple(FLASH_KINDS),
}  # fmt: skip
MEMORY_BOUND = "memory_bound"


def compute_shares(request: Request) -> dict[str, float]:
    """Share of a micro-step's device time by kind of kernel, forward and backward together.

    They add up to one. Values are those of the slowest kind of GPU and, with a pipeline, of its
    first stage. Each kernel is priced as in the step; casts and copies into buckets are left out.
    """
    job = job_of(request)
    if request.placed is not None:
        job = replace(job, workload=request.placed.stages[0].workload)
    rates = min(job.classes, key=lambda c: c.peak_flop_per_s)
    table = job.table
    program = job.program
    weights = program.phases_run(0)
    points = Points.of(values_of(request), 1)
    batch = points.micro_batch / (request.placed.layout.cp if request.placed else 1)
    kinds = np.array([_group(k) for k in KINDS])[table["kind"]]
    seconds = {}
    for name in (*GROUPS, MEMORY_BOUND):
        mine = table.with_counts(np.where(kinds == name, table["count"], 0.0))
        phases = phase_seconds(mine, rates.kernels, batch, points.compute, points.memory)
        seconds[name] = float(weights @ phases[:, 0])
    total = sum(seconds.values())
    return {k: v / total for k, v in seconds.items()}


def _group(kind: str) -> str:
    return next((name for name, kinds in GROUPS.items() if kind in kinds), MEMORY_BOUND)


def device_timeline(request: Request) -> Timeline | None:
    """The step as the device alone would run it, without waiting for host or data loading.

    None for a job with a layout: its exchanges are part of its layers, not tasks of the timeline.
    """
    if request.placed is not None:
        return None
    values = values_of(request) | {"use_host": 0.0, "use_loader": 0.0}
    points = Points.of(values, 1)
    return steps_of(request, points, keep_timeline=True).timeline


def collective_seconds(request: Request, p: Prediction) -> dict[str, float]:
    """Seconds of a step's collectives by operation, hidden time included.

    Empty without a timeline. With a layout they are those of the stage that holds up the step:
    gradients are tasks of its own step, exchanges are parts of its layers (``timing.exchanges``).
    """
    timeline, placed, job = p.timeline, request.placed, job_of(request)
    if timeline is None:
        return {}
    found: dict[str, float] = defaultdict(float)
    if placed is not None:
        longest = sorted(p.stages, key=lambda s: -s.micro_step_s)
        stages = [placed.stages[s.first] for s in longest] or list(placed.stages)
        jobs = [replace(job, workload=s.workload) for s in stages]
        mine = [j.program.graph.tasks == timeline.graph.tasks for j in jobs].index(True)
        stage, job = stages[mine], jobs[mine]
        points = with_library(request, Points.of(values_of(request), 1))
        micro_steps = float(data_points(points, placed).grad_accum[0])
        for (_, op), seconds in exchanges_of(points, placed).collectives_s(stage.n_layers).items():
            found[op] += micro_steps * float(seconds[0])
    for cost in job.program.comm:
        found[cost.op] += float(timeline.finish_s[cost.task, 0] - timeline.start_s[cost.task, 0])
    return {k: v for k, v in found.items() if v > 0}
