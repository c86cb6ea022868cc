"""The model of a fit of steps: parameters with priors, and rows with their response to them.

The engine computes the response of a step's time to multipliers on the hardware's figures. With
several GPU types, compute and host have one axis per rank class besides the common one.

# R rows, P parameters, X axes of a row's response
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from simcore.base.arrays import Array
from simcore.base.record import dataclass
from simcore.calibrate.steps.residual import Features, Traits
from simcore.hardware.calibrations import CalibratedKnob, Knob
from simcore.request.resolved import Request, rank_groups
from simcore.timing.points import KNOBS, Points
from simcore.timing.steps import steps_of, values_of

#: The change of a multiplier's logarithm with which slopes are computed.
_MOVE_LOG = 0.02


@dataclass(frozen=True)
class Parameter:
    """One parameter: a multiplier, whose logarithm is fitted, or added seconds.

    ``knob``: the figure of hardware that it multiplies; None for a run's amount of work
    (``workload``) or added seconds. ``level``: the priors of the parameters of one level are
    widened by a common factor. ``may_bind``: the time may not depend on it at first, though it
    limits the step at other values (a host). ``seconds``: it is in seconds, as is then
    ``prior_sd_log``. ``prior_mean_log``: the prior's mean; zero is the blind profile's figure.
    """

    name: str
    knob: CalibratedKnob | None
    prior_sd_log: float
    gpu: str = ""
    node: str = ""
    link: str = ""
    workload: str = ""
    level: str = ""
    may_bind: bool = False
    seconds: bool = False
    prior_mean_log: float = 0.0

    def as_knob(self, value: float, sd_log: float) -> Knob | None:
        """The knob of a profile for this parameter; None if it is no figure of hardware."""
        if self.knob is None:
            return None
        return Knob(
            knob=self.knob, value=value, sd_log=sd_log,
            gpu=self.gpu, node=self.node, link=self.link, workload=self.workload,
        )  # fmt: skip


@dataclass(frozen=True)
class FitRow:
    """One measured step or run.

    ``log_s`` maps shifts [X, C] of the row's axes to ln(seconds) [C]; ``uses``: parameter -> the
    axes that it shifts. Rows of equal ``group`` measure one configuration, so they are left out
    together. Rows of different ``block`` share no parameter. ``shares``: index of the resource of
    each axis, -1 for none. ``residual_sd_log``: the error of such a step in a blind prediction.
    """

    key: str
    group: Hashable
    measured_s: float
    uses: Mapping[str, tuple[int, ...]]
    n_axes: int
    log_s: Callable[[Array], Array]
    block: str = ""
    shares: tuple[int, ...] = ()
    traits: Traits | None = None
    residual_sd_log: float | None = None


@dataclass(frozen=True)
class Line:
    """A row's linearised response at a point: ln(seconds) there, and its slopes [X]."""

    log_s: float
    slopes: Array


def line_of(row: FitRow, shifts: Array) -> Line:
    """The linearised response of a row at ``shifts`` [X]."""
    n = row.n_axes
    columns = np.repeat(shifts[:, None], 1 + 2 * n, axis=1)
    for i in range(n):
        columns[i, 1 + 2 * i] += _MOVE_LOG
        columns[i, 2 + 2 * i] -= _MOVE_LOG
    log_s = row.log_s(columns)
    return Line(float(log_s[0]), (log_s[1::2] - log_s[2::2]) / (2.0 * _MOVE_LOG))


@dataclass(frozen=True)
class Block:
    """Rows that share parameters, linearised at a point.

    The linear model is ``z`` = ``slopes_of`` @ (parameters - prior means) + residual + noise, with
    ``slopes_of`` [R, P]. ``off`` [R] is ln(measured / predicted) at the point. ``slopes`` are those
    of each row by its axes; ``parts`` are correlations [R, R] of the parts of the residual.
    """

    rows: tuple[FitRow, ...]
    slopes_of: Array
    z: Array
    off: Array
    slopes: tuple[Array, ...]
    parts: dict[str, Array]


def shifts_of(row: FitRow, theta: Mapping[str, float]) -> Array:
    """The logarithmic shift of each of the row's axes at the parameters ``theta`` [X]."""
    shifts = np.zeros(row.n_axes)
    for name, axes in row.uses.items():
        for axis in axes:
            shifts[axis] += theta.get(name, 0.0)
    return shifts


def row_of(row: FitRow, slopes: Array, index: Mapping[str, int]) -> Array:
    """The slopes of the row's ln(seconds) along the parameters [P], from those along its axes."""
    by_parameter = np.zeros(len(index))
    for name, axes in row.uses.items():
        if name in index:
            by_parameter[index[name]] = sum(slopes[a] for a in axes)
    return by_parameter


def features_of(rows: Sequence[FitRow], slopes: Sequence[Array]) -> Features | None:
    """The features that determine the residual's covariance; None if a row has no traits."""
    traits = [r.traits for r in rows]
    if not traits or any(t is None for t in traits):
        return None
    n = 1 + max(max(r.shares, default=0) for r in rows)
    shares = np.zeros((len(rows), n))
    for i, row in enumerate(rows):
        for axis, resource in enumerate(row.shares):
            if resource >= 0:
                shares[i, resource] += slopes[i][axis]
    return Features.of([t for t in traits if t is not None], shares)


#: Axes of a response: first the multipliers of KNOBS, then the amount of work of a run, and the
#: seconds that a program adds to each step and to each micro-step.
WORK, STEP, MICRO_STEP = len(KNOBS), len(KNOBS) + 1, len(KNOBS) + 2
N_AXES = len(KNOBS) + 3
#: The resource of each axis, as in ``FitRow.shares``.
SHARES = (*range(len(KNOBS)), -1, -1, -1)
#: The least share of a step's time that remains if the added seconds are negative.
_LEAST_FRAC = 0.2

#: A function from points, seconds of a step and amount of work, all [C], to the seconds of a run.
RunTime = Callable[[Points, Array, Array], Array]


#: Multipliers that have one axis per rank class, after the common axes.
_BY_CLASS: tuple[CalibratedKnob, ...] = ("compute", "host")


def axis_of(knob: CalibratedKnob) -> int:
    """The axis that a multiplier shifts."""
    return KNOBS.index(knob)


def axes_of(knob: CalibratedKnob, request: Request, gpu: str) -> tuple[int, ...]:
    """The axes that a multiplier shifts; if it is for one GPU type, those of its rank classes."""
    groups = rank_groups(request.cluster)
    if knob not in _BY_CLASS or not gpu or len(groups) == 1:
        return (axis_of(knob),)
    first = N_AXES + _BY_CLASS.index(knob) * len(groups)
    return tuple(first + i for i, group in enumerate(groups) if group.gpu.name == gpu)


def shares_of(request: Request) -> tuple[int, ...]:
    """The resource of each axis of a request's response, as in ``FitRow.shares``."""
    classes = len(rank_groups(request.cluster))
    own = [axis_of(k) for k in _BY_CLASS for _ in range(classes)] if classes > 1 else []
    return (*SHARES, *own)


def points_at(request: Request, shifts: Array) -> Points:
    """The engine's points for a request with logarithmic shifts [axes, C] of its multipliers."""
    size = shifts.shape[1]
    columns: dict[str, Any] = dict(values_of(request))
    for name, shift in zip(KNOBS, shifts, strict=False):
        columns[name] = columns.get(name, 1.0) * np.exp(shift)
    if len(shifts) > N_AXES:
        compute, host = np.split(np.exp(shifts[N_AXES:]), len(_BY_CLASS))
        columns |= {"class_compute": compute, "class_host": host}
    return Points.of(columns, size)


def response(request: Request, run: RunTime | None = None) -> Callable[[Array], Array]:
    """A function from shifts [axes, C] to ln(seconds) [C] of a step, or of a ``run``."""
    # With pp stages, a pipeline takes pp - 1 micro-steps more until its last stage begins.
    stages = request.placed.layout.pp if request.placed is not None else 1
    micro_steps = request.grad_accum + stages - 1

    def log_s(shifts: Array) -> Array:
        points = points_at(request, shifts)
        step = steps_of(request, points).step_s
        added = shifts[STEP] + micro_steps * shifts[MICRO_STEP]
        step = np.maximum(step + added, _LEAST_FRAC * step)
        total = step if run is None else run(points, step, np.exp(shifts[WORK]))
        return np.log(total)

    return log_s
