"""The part of a job's device time that kernels take which its profile timed by shape."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simcore.base.units import PERCENT
from simcore.request.resolved import Request
from simcore.timing.compute import kernel_seconds
from simcore.timing.points import Points
from simcore.timing.steps import job_of, values_of
from simcore.timing.timed import timed_here


def timed_frac(request: Request) -> float | None:
    """Share of a micro-step's device time in kernels that were timed at their very shapes.

    None where the profile has no timed kernels of one of the job's devices. With a pipeline it is
    that of the first stage.
    """
    job = job_of(request)
    if any(c.kernels.timed is None for c in job.classes):
        return None
    placed = request.placed
    if placed is not None:
        job = replace(job, workload=placed.stages[0].workload)
    rates = job.classes[0].kernels
    points = Points.of(values_of(request), 1)
    batch = points.micro_batch / (placed.layout.cp if placed else 1)
    table, program = job.table, job.program
    weights = program.phases_run(0)
    phase = np.searchsorted(table.phase_start, np.arange(len(table.kernels)), side="right") - 1
    one = np.ones(1)
    seconds = kernel_seconds(table, rates, batch, one, one)[:, 0] * weights[phase]
    assert rates.timed is not None
    here = timed_here(table, rates.timed, float(batch[0]))
    total = float(seconds.sum())
    return float(seconds[here].sum()) / total if total else 0.0


def timed_note(request: Request) -> tuple[str, ...]:
    """What an answer says of it; empty without timed kernels."""
    frac = timed_frac(request)
    if frac is None:
        return ()
    gpu = request.cluster.groups[0].gpu.name
    return (
        f"{frac * PERCENT:.0f} % of the device's kernel time was measured at these very shapes on "
        f"{gpu} (calibration {request.profile.name}); other kernels follow the nearest ones",
    )
