"""What a fit of steps is of: parameters with priors, rows with their response to them.

# R rows, P parameters, X axes of a row's response
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simcore.base.arrays import NDArray
from simcore.calibrate.step_residual import Features, Traits
from simcore.hardware.calibrations import CalibratedKnob, Knob

Array = NDArray[np.float64]

#: What a multiplier's logarithm is moved by to see what the time does.
_MOVE_LOG = 0.02


@dataclass(frozen=True, slots=True)
class Parameter:
    """One multiplier (its logarithm is fitted), or seconds.

    ``knob`` None: no hardware's, but a run's amount of work (``workload``) or added seconds.
    ``level``: parameters of one level have their priors widened together, as the rows demand.
    ``may_bind``: at first it may move nothing and yet be what binds (a host). ``seconds``: not a
    multiplier; ``prior_sd_log`` is then in seconds. ``prior_mean_log``: where it is expected before
    any row; zero is the blind profile's.
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
        """The calibrated knob of this parameter."""
        if self.knob is None:
            return None
        return Knob(
            knob=self.knob, value=value, sd_log=sd_log,
            gpu=self.gpu, node=self.node, link=self.link, workload=self.workload,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class FitRow:
    """One measurement.

    ``log_s`` maps shifts [X, C] of the row's axes to ln(seconds) [C]; ``uses`` says which axes
    each parameter shifts. Rows of equal ``group`` are one configuration measured again: they
    leave together. Rows of different ``block`` share no parameter. ``shares``: the resource of
    each axis, an index, or -1. ``residual_sd_log``: the residual of such a step predicted blind.
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
    """A row's response about a point: ln(seconds) there, and how it moves [X]."""

    log_s: float
    slopes: Array


def line_of(row: FitRow, shifts: Array) -> Line:
    """Response of a row about ``shifts`` [X]."""
    n = row.n_axes
    columns = np.repeat(shifts[:, None], 1 + 2 * n, axis=1)
    for i in range(n):
        columns[i, 1 + 2 * i] += _MOVE_LOG
        columns[i, 2 + 2 * i] -= _MOVE_LOG
    found = row.log_s(columns)
    return Line(float(found[0]), (found[1::2] - found[2::2]) / (2.0 * _MOVE_LOG))


@dataclass(frozen=True)
class Block:
    """Rows that share parameters, about a point: ``z`` = ``slopes_of`` moved + residual + noise.

    ``moved``: of the parameters, from where they were expected.

    ``slopes_of`` [R, P]; ``off`` [R] is ln(measured / predicted); ``slopes`` is by axis of a row.
    """

    rows: tuple[FitRow, ...]
    slopes_of: Array
    z: Array
    off: Array
    slopes: tuple[Array, ...]
    parts: dict[str, Array]


def shifts_of(row: FitRow, theta: Mapping[str, float]) -> Array:
    """How far ln of each of the row's axes is moved by the parameters that it uses [axes]."""
    found = np.zeros(row.n_axes)
    for name, axes in row.uses.items():
        for axis in axes:
            found[axis] += theta.get(name, 0.0)
    return found


def row_of(row: FitRow, slopes: Array, index: Mapping[str, int]) -> Array:
    """The row's slopes along the parameters [P]."""
    found = np.zeros(len(index))
    for name, axes in row.uses.items():
        if name in index:
            found[index[name]] = sum(slopes[a] for a in axes)
    return found


def features_of(rows: Sequence[FitRow], slopes: Sequence[Array]) -> Features | None:
    """What the residual's covariance is of; None where rows have no traits."""
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
