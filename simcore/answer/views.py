"""Data for charts of a prediction: its operators on the roofline, and its sensitivity.

Both use the same pricing and scheduling as predictions.

# C configurations, O operators
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np

from simcore.answer.predict import RESOURCES, knobs_of
from simcore.base.record import dataclass
from simcore.request.resolved import Request
from simcore.step.kernels import KINDS, kernel_table
from simcore.step.transients import context_of
from simcore.timing.compute import phase_seconds
from simcore.timing.points import Points
from simcore.timing.rates import ClassRates
from simcore.timing.steps import job_of, steps_of, values_of
from simcore.workload.graph import Block, KernelKind, Op, Workload

Pass = Literal["forward", "backward", "frozen forward"]


@dataclass(frozen=True, kw_only=True)
class OpPoint:
    """All calls of one operator in one micro-step on one GPU: work, traffic and time in total."""

    name: str
    kind: KernelKind
    part: Pass
    calls: int
    flop: float
    n_bytes: float
    time_s: float

    @property
    def intensity_flop_per_byte(self) -> float:
        """Arithmetic intensity [FLOP/byte]; 0 for an op that only moves data."""
        return self.flop / self.n_bytes if self.n_bytes else float("inf")

    @property
    def achieved_flop_per_s(self) -> float:
        """FLOP/s that the op is predicted to reach."""
        return self.flop / self.time_s if self.time_s else 0.0


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """The ops of one micro-step, with the peaks of the datasheet.

    ``peak_flop_per_s``: dense peak of the precision, the highest where it has several;
    ``bw_bytes_per_s``: memory bandwidth. With a pipeline the ops are those of its first stage.
    Autocast's casts of weights belong to no op.
    """

    model: str
    gpu: str
    precision: str
    micro_batch: float
    peak_flop_per_s: float
    bw_bytes_per_s: float
    ops: tuple[OpPoint, ...]

    @property
    def ridge_flop_per_byte(self) -> float:
        """Intensity at which compute and memory bandwidth limit equally."""
        return self.peak_flop_per_s / self.bw_bytes_per_s


def roofline(request: Request) -> Roofline:
    """Work, traffic and predicted time of every operator, on the slowest kind of GPU."""
    rates = min(job_of(request).classes, key=lambda c: c.peak_flop_per_s)
    workload, batch = request.workload, float(request.micro_batch)
    if request.placed is not None:
        workload = request.placed.stages[0].workload
        batch /= request.placed.layout.cp
    conv_peak = rates.conv_peak_flop_per_s if workload.conv_frac else 0.0
    points = [
        *_points([b.ops for b in workload.instances()], request, rates, batch,
                 ("forward", "backward")),
        *_points([net.ops for net in workload.frozen], request, rates, batch,
                 ("frozen forward",)),
    ]  # fmt: skip
    return Roofline(
        model=workload.name,
        gpu=rates.gpu.name,
        precision=request.strategy.precision.name,
        micro_batch=batch,
        peak_flop_per_s=max(rates.peak_flop_per_s, conv_peak),
        bw_bytes_per_s=rates.gpu.memory_bw.value,
        ops=tuple(sorted(points, key=lambda p: -p.time_s)),
    )


def _points(
    runs: Sequence[Sequence[Op]], request: Request, rates: ClassRates, batch: float,
    parts: tuple[Pass, ...],
) -> list[OpPoint]:  # fmt: skip
    """One point for each op name, kind and pass of ops that run in these orders.

    An op's time is that of its context (``step.transients.context_of``) less that of the rest.
    """
    found: dict[tuple[str, KernelKind, Pass], list[float]] = {}
    precision = request.strategy.precision
    for backward, part in enumerate(parts):
        calls = Counter(
            context_of(ops, j, precision, bool(backward)) for ops in runs for j in range(len(ops))
        )
        rest_of = {c: c[1:] if backward else c[:-1] for c in calls}
        own_of = {c: c[:1] if backward else c[-1:] for c in calls}
        alone = [c for c in {*calls, *rest_of.values(), *own_of.values()} if c]
        work = _work_of(alone, request, rates, batch, backward)
        for context, n in calls.items():
            (op,), rest = own_of[context], rest_of[context]
            if not (kernels := op.bwd if backward else op.fwd):
                continue
            flop, n_bytes, _ = work[own_of[context]]
            seconds = work[context][2] - (work[rest][2] if rest else 0.0)
            kind = max(kernels, key=lambda k: (k.flop, -KINDS.index(k.kind))).kind
            sums = found.setdefault((op.name, kind, part), [0.0] * 4)
            for i, value in enumerate((1.0, flop, n_bytes, seconds)):
                sums[i] += n * value
    return [
        OpPoint(name=name, kind=kind, part=part, calls=round(n), flop=f, n_bytes=b, time_s=s)
        for (name, kind, part), (n, f, b, s) in found.items()
    ]


def _work_of(
    several: Sequence[tuple[Op, ...]], request: Request, rates: ClassRates, batch: float, phase: int
) -> dict[tuple[Op, ...], tuple[float, float, float]]:
    """FLOP, bytes and seconds of the forward (0) or backward (1) of ops that run one by one."""
    if not several:
        return {}
    workload = Workload(
        name="ops",
        sample_unit=request.workload.sample_unit,
        blocks=tuple(Block(name=ops[-1].name, ops=ops) for ops in several),
        order=tuple(range(len(several))),
    )
    table = kernel_table(workload, request.strategy.precision)
    one = np.ones(1)
    seconds = phase_seconds(table, rates.kernels, batch * one, one, one)[:, 0]
    flop = np.add.reduceat(table["count"] * table["flop"], table.phase_start) * batch
    moved = table["n_bytes"] @ (1.0, batch)
    n_bytes = np.add.reduceat(table["count"] * moved, table.phase_start)
    own = slice(phase * len(several), (phase + 1) * len(several))
    rows = zip(flop[own].tolist(), n_bytes[own].tolist(), seconds[own].tolist(), strict=True)
    return dict(zip(several, rows, strict=True))


@dataclass(frozen=True, kw_only=True)
class Swing:
    """The step time with half and with twice as much of one resource."""

    resource: str
    half_s: float
    double_s: float


def sensitivity(request: Request) -> tuple[float, tuple[Swing, ...]]:
    """(step time [s], its change with each resource, the largest first)."""
    knobs = knobs_of(request)
    size = 1 + 2 * len(knobs)
    points = Points.of(values_of(request), size)
    for i, knob in enumerate(knobs):
        for column, factor in ((1 + 2 * i, 0.5), (2 + 2 * i, 2.0)):
            points = points.with_columns(column, **{knob: factor * getattr(points, knob)[column]})
    step = steps_of(request, points).step_s
    swings = (
        Swing(
            resource=RESOURCES[knob],
            half_s=float(step[1 + 2 * i]),
            double_s=float(step[2 + 2 * i]),
        )
        for i, knob in enumerate(knobs)
    )
    ordered = sorted(swings, key=lambda s: s.double_s - s.half_s)
    return float(step[0]), tuple(ordered)
