"""Maximum a posteriori fit of a few physical parameters to measured steps.

Parameters are multipliers on what the blind profile says (sustained compute, memory traffic,
link bandwidth, loading, host, amount of work), each with a log-normal prior around 1 whose width
is the profile's own spread. One row moves what it identifies; the rest stays with the prior.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from simcore.base.arrays import NDArray
from simcore.hardware.calibrations import CalibratedKnob, Knob

Array = NDArray[np.float64]

#: Scatter of one measured step around the model with its parameters known: timing noise (0.2 to
#: 5 %, notes on the corpus) and the form of the model.
ROW_SD_LOG = 0.07


@dataclass(frozen=True, slots=True)
class Parameter:
    """One multiplier. ``knob`` None: the amount of work of a run (``workload``), no hardware."""

    name: str
    knob: CalibratedKnob | None
    prior_sd_log: float
    gpu: str = ""
    node: str = ""
    link: str = ""
    workload: str = ""

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
    """One measurement. ``predict_s`` maps the multipliers of ``uses`` to seconds.

    Rows of equal ``group`` are one configuration measured again: they leave together.
    """

    key: str
    group: Hashable
    measured_s: float
    uses: tuple[str, ...]
    predict_s: Callable[[Mapping[str, float]], float]


@dataclass(frozen=True, slots=True)
class StepFit:
    """Fitted multipliers, their posterior spread, and how the rows lie around them."""

    parameters: tuple[Parameter, ...]
    values: dict[str, float]
    sd_log: dict[str, float]
    predicted_s: dict[str, float]
    residual_sd_log: float

    def knobs(self) -> tuple[Knob, ...]:
        """Calibrated knobs for a profile."""
        made = (p.as_knob(self.values[p.name], self.sd_log[p.name]) for p in self.parameters)
        return tuple(k for k in made if k is not None)


def fit_steps(rows: Sequence[FitRow], parameters: Sequence[Parameter]) -> StepFit:
    """Fit all parameters to all rows (scipy least squares on log residuals and priors)."""
    from scipy.optimize import least_squares  # heavy; predictions never import it

    names = [p.name for p in parameters]
    prior = np.array([p.prior_sd_log for p in parameters])
    seen: dict[tuple[str, tuple[float, ...]], float] = {}

    def predicted(row: FitRow, theta: Array) -> float:
        values = {n: float(np.exp(t)) for n, t in zip(names, theta, strict=True) if n in row.uses}
        key = (row.key, tuple(values.values()))
        if key not in seen:
            seen[key] = row.predict_s(values)
        return seen[key]

    def residuals(theta: Array) -> Array:
        data = [np.log(predicted(r, theta) / r.measured_s) / ROW_SD_LOG for r in rows]
        return np.array([*data, *(theta / prior)])

    start = np.zeros(len(names))
    if rows:
        found = least_squares(residuals, start, method="trf", diff_step=1e-3, xtol=1e-6, ftol=1e-6)
        theta = found.x
        # Laplace approximation: the inverse of J'J, whose prior rows keep it regular.
        covariance = np.linalg.inv(found.jac.T @ found.jac)
        spread = np.sqrt(np.diag(covariance))
    else:
        theta, spread = start, prior
    fitted = {r.key: predicted(r, theta) for r in rows}
    errors = [np.log(fitted[r.key] / r.measured_s) for r in rows]
    rms = float(np.sqrt(np.mean(np.square(errors)))) if errors else ROW_SD_LOG
    return StepFit(
        parameters=tuple(parameters),
        values={n: float(np.exp(t)) for n, t in zip(names, theta, strict=True)},
        sd_log={n: float(s) for n, s in zip(names, spread, strict=True)},
        predicted_s=fitted,
        residual_sd_log=max(rms, ROW_SD_LOG),
    )


def leave_one_out(
    rows: Sequence[FitRow], parameters: Sequence[Parameter], never: Set[str] = frozenset()
) -> dict[str, tuple[float, StepFit]]:
    """Prediction of every row from a fit that has not seen its configuration.

    Rows with a key in ``never`` are predicted but take part in no fit.
    """
    out: dict[str, tuple[float, StepFit]] = {}
    for group in dict.fromkeys(r.group for r in rows):
        others = [r for r in rows if r.group != group and r.key not in never]
        fit = fit_steps(others, parameters)
        for row in rows:
            if row.group == group:
                values = {n: fit.values[n] for n in row.uses}
                out[row.key] = (row.predict_s(values), fit)
    return out
