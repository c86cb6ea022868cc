"""What a step's compute and its collectives consist of, by kind, as they were priced."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from simcore.base.arrays import NDArray
from simcore.engine.compute import phase_seconds
from simcore.engine.points import Points
from simcore.engine.predict import Request, job_of, steps_of, values_of
from simcore.engine.timeline import Timeline
from simcore.step.kernels import KINDS, WIDE
from simcore.workload.graph import FLASH_KINDS

Array = NDArray[np.float64]
#: Kinds of compute as people name them; every other kernel is bound by memory.
GROUPS: dict[str, tuple[str, ...]] = {
    "gemm": ("gemm", WIDE), "conv": ("conv",), "attention": tuple(FLASH_KINDS),
}  # fmt: skip
MEMORY_BOUND = "memory_bound"


def compute_shares(request: Request) -> dict[str, float]:
    """Shares of a micro-step's device time by kind of kernel, forward and backward together.

    Of the slowest kind of GPU; with a pipeline of its first stage. They add up to one. What a
    kernel costs is priced as in the step; casts and copies into buckets are in none of them.
    """
    job = job_of(request)
    if request.placed is not None:
        job = replace(job, workload=request.placed.stages[0].workload)
    rates = min(job.classes, key=lambda c: c.peak_flop_per_s)
    table = job.table
    program = job.program
    weights = program.weights[program.compute_class == 0].sum(axis=0)
    points = Points.of(values_of(request), 1)
    batch = points.micro_batch / (request.placed.layout.cp if request.placed else 1)
    kinds = np.array([_group(k) for k in KINDS])[table.kind]
    seconds = {}
    for name in (*GROUPS, MEMORY_BOUND):
        mine = replace(table, count=np.where(kinds == name, table.count, 0.0))
        phases = phase_seconds(mine, rates, batch, points.compute, points.memory)
        seconds[name] = float(weights @ phases[:, 0])
    total = sum(seconds.values())
    return {k: v / total for k, v in seconds.items()}


def _group(kind: str) -> str:
    return next((name for name, kinds in GROUPS.items() if kind in kinds), MEMORY_BOUND)


def device_timeline(request: Request) -> Timeline | None:
    """The step as the device alone would run it: neither host nor loader ever binds.

    None where the model is cut: its layers hold exchanges that are no tasks.
    """
    if request.placed is not None:
        return None
    values = values_of(request) | {"use_host": 0.0, "use_loader": 0.0}
    points = Points.of(values, 1)
    return steps_of(request, points, keep_timeline=True).timeline


def collective_seconds(request: Request, timeline: Timeline | None) -> dict[str, float]:
    """Seconds of a step's collectives by operation; empty where the model is cut.

    There exchanges are parts of their layers (``engine.layout``), not tasks of their own.
    """
    if request.placed is not None or timeline is None:
        return {}
    found: dict[str, float] = defaultdict(float)
    for cost in job_of(request).program.comm:
        found[cost.op] += float(timeline.finish_s[cost.task, 0] - timeline.start_s[cost.task, 0])
    return {k: v for k, v in found.items() if v > 0}
