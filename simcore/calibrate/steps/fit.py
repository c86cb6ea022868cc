"""Maximum a posteriori fit of a few physical parameters to measured steps.

Parameters are multipliers on the figures of the blind profile (sustained compute, memory traffic,
link bandwidth, loading, host, amount of work) and seconds that a program adds to each step. Each
has a prior with the spread of the profile's figure. A row changes only the parameters that it
identifies; the others stay at their priors. Residuals are of ln(time) with Student's t
distribution and few degrees of freedom, so that a few wrong rows count little, and may be
correlated (``residual``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import field

import numpy as np

from simcore.base.arrays import Array
from simcore.base.record import dataclass
from simcore.calibrate.steps.model import (
    Block,
    FitRow,
    Parameter,
    features_of,
    line_of,
    row_of,
    shifts_of,
)
from simcore.calibrate.steps.residual import (
    OF_ONE_PROGRAM_FRAC,
    PARTS,
    few,
    left_out_deviations,
    part_covariances,
    scatter_sd_log,
    widening,
)
from simcore.calibrate.steps.solver import ROW_FREEDOM, ROW_SD_LOG, Solver
from simcore.hardware.calibrations import Knob


@dataclass(frozen=True)
class Predicted:
    """A predicted ln(seconds) and its standard deviation.

    ``log_s`` includes the correlated residuals of the fit's rows; ``by_parameters_log_s`` is by
    the parameters alone. Each has a standard deviation of which 1.28 bound 80 %: it is widened for
    the scatter of the fit's rows and by Student's t for their number.
    """

    log_s: float
    sd_log: float
    by_parameters_log_s: float
    by_parameters_sd_log: float


@dataclass(frozen=True)
class StepFit:
    """The fitted parameters, their posterior spreads, and the scatter of the rows around them.

    ``values`` are multipliers, or seconds for added seconds. ``widths`` are standard deviations of
    the residual's parts and of a row's own scatter, and factors on the priors of each level.
    """

    parameters: tuple[Parameter, ...]
    values: dict[str, float]
    sd_log: dict[str, float]
    predicted_s: dict[str, float]
    residual_sd_log: float
    widths: dict[str, float] = field(default_factory=dict)
    _theta: dict[str, float] = field(default_factory=dict, repr=False)
    _blocks: dict[str, tuple[Block, Array, Array]] = field(default_factory=dict, repr=False)

    def knobs(self) -> tuple[Knob, ...]:
        """The parameters that are figures of hardware, as knobs for a profile."""
        made = (p.as_knob(self.values[p.name], self.sd_log[p.name]) for p in self.parameters)
        return tuple(k for k in made if k is not None)

    def central_log_s(self, row: FitRow) -> float:
        """The predicted ln(seconds) of a row by the fitted parameters alone."""
        return float(row.log_s(shifts_of(row, self._theta)[:, None])[0])

    def predict(self, row: FitRow) -> Predicted:
        """The predicted time of a row, which need not be one of the fit's rows."""
        line = line_of(row, shifts_of(row, self._theta))
        names = [p.name for p in self.parameters]
        a = row_of(row, line.slopes, {n: i for i, n in enumerate(names)})
        prior = np.array([self._width(p) ** 2 for p in self.parameters])
        noise = self.widths["row"] ** 2 * _heavier() ** 2
        own = float((a * a) @ prior) + noise
        here = features_of((row,), (line.slopes,))
        parts = {} if here is None else {k: self.widths[k] ** 2 for k in PARTS}
        own += sum(parts.values())
        seen = self._blocks.get(row.block)
        if seen is None:
            return Predicted(line.log_s, math.sqrt(own), line.log_s, math.sqrt(own))
        block, inverse, alpha = seen
        shared = (block.slopes_of * prior) @ a
        mean, factor = line.log_s, _widening(row, block, inverse, alpha)
        alone = max(own - float(shared @ inverse @ shared), noise)
        if here is not None and (there := features_of(block.rows, block.slopes)) is not None:
            between = part_covariances(here, there)
            residual = sum(v * between[k][0] for k, v in parts.items())
            mean += float(residual @ alpha)
            shared = shared + residual
        with_residual = max(own - float(shared @ inverse @ shared), noise)
        return Predicted(
            mean, math.sqrt(with_residual) * factor, line.log_s, math.sqrt(alone) * factor
        )

    def together(self, names: Sequence[str]) -> tuple[float, float]:
        """The standard deviation of a sum of parameters (prior, posterior).

        The rows often determine the sum of two parameters, but neither of them alone.
        """
        along = np.array([float(p.name in names) for p in self.parameters])
        prior = np.array([self._width(p) ** 2 for p in self.parameters])
        before = float((along * along) @ prior)
        after = before
        for block, inverse, _ in self._blocks.values():
            shared = (block.slopes_of * prior) @ along
            after -= float(shared @ inverse @ shared)
        return math.sqrt(before), math.sqrt(max(after, 0.0))

    def _width(self, p: Parameter) -> float:
        return p.prior_sd_log * self.widths.get(f"level {p.level}", 1.0)


def _widening(row: FitRow, block: Block, inverse: Array, alpha: Array) -> float:
    """The factor on a standard deviation from the leave-one-out errors of the fit's rows.

    If the row's program is known, only the rows of that program count.
    """
    off = left_out_deviations(inverse, alpha)
    if row.traits is None:
        return widening(off)
    mine = [r.traits is not None and r.traits.program == row.traits.program for r in block.rows]
    return widening(off[np.array(mine, dtype=bool)])


def _heavier() -> float:
    """The 80 % quantile of Student's t for a row's own error, over that of the normal."""
    return few(ROW_FREEDOM)


def fit_steps(
    rows: Sequence[FitRow],
    parameters: Sequence[Parameter],
    *,
    learn: bool = False,
    row_sd_log: float | None = None,
) -> StepFit:
    """All parameters fitted to all rows.

    ``learn``: also fit the widths of the priors and of the residual. ``row_sd_log``: a row's own
    scatter, if it is known and is not to be fitted.
    """
    solver = Solver(rows, parameters, learn=learn, row_sd_log=row_sd_log)
    theta, sd = solver.solve()
    fitted = solver.predicted_s()
    errors = [math.log(fitted[r.key] / r.measured_s) for r in rows]
    named = {p.name: float(t) for p, t in zip(parameters, theta, strict=True)}
    return StepFit(
        parameters=tuple(parameters),
        values={p.name: named[p.name] if p.seconds else math.exp(named[p.name])
                for p in parameters},
        sd_log={p.name: float(s) for p, s in zip(parameters, sd, strict=True)},
        predicted_s=fitted,
        residual_sd_log=_residual(rows, errors, parameters, sd),
        widths=solver.widths,
        _theta=named,
        _blocks=solver.solved(),
    )  # fmt: skip


def _residual(
    rows: Sequence[FitRow], errors: Sequence[float], parameters: Sequence[Parameter], sd: Array
) -> float:
    """The scatter of further rows around the parameters; at least that of one measured step."""
    known = [r.residual_sd_log for r in rows if r.residual_sd_log is not None]
    blind = float(np.sqrt(np.mean(np.square(known)))) if known else 0.0
    # Degrees of freedom that the parameters take: one for each that the rows fully determine.
    lost = sum(1.0 - (float(s) / p.prior_sd_log) ** 2
               for p, s in zip(parameters, sd, strict=True) if p.prior_sd_log)  # fmt: skip
    prior = max(OF_ONE_PROGRAM_FRAC * blind, ROW_SD_LOG)
    return max(scatter_sd_log(errors, lost, prior), ROW_SD_LOG)


#: The largest number of fits; with more configurations, several are left out at once.
_MOST_FITS = 40


def leave_one_out(
    rows: Sequence[FitRow], parameters: Sequence[Parameter], never: Set[str] = frozenset()
) -> dict[str, tuple[float, StepFit]]:
    """Row key -> (predicted seconds, fit), each from a fit without the row's configuration.

    Rows with a key in ``never`` are predicted but are in no fit. With more than forty
    configurations, every fortieth is left out together.
    """
    out: dict[str, tuple[float, StepFit]] = {}
    groups = list(dict.fromkeys(r.group for r in rows))
    for first in range(min(_MOST_FITS, len(groups))):
        unseen = set(groups[first::_MOST_FITS])
        seen = [r for r in rows if r.group not in unseen and r.key not in never]
        fit = fit_steps(seen, parameters)
        for row in rows:
            if row.group in unseen:
                out[row.key] = (math.exp(fit.central_log_s(row)), fit)
    return out
