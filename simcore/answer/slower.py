"""Why a measured step differs from the predicted one: what each resource would have to deliver.

For each resource alone the rate is found at which the step takes as long as was measured. The cause
is the likelier the fewer standard deviations of that figure the rate is from what is assumed.
"""

from __future__ import annotations

import math

import numpy as np

from simcore.answer.predict import RESOURCES, knobs_of
from simcore.answer.result import Prediction
from simcore.base.figures import Interval
from simcore.base.record import dataclass
from simcore.request.resolved import Request
from simcore.timing.points import Points
from simcore.timing.rates import knob_spread_of
from simcore.timing.steps import steps_of, values_of

#: The lowest rate that is tried, as a share of the assumed one, and the number of rates.
_LEAST, _RATES = 1.0 / 64.0, 25


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """One resource as the only cause of the difference.

    knob       resource by its short name; ``resource``: as the answer names it
    rate_frac  rate at which the step takes as long as was measured, over the assumed rate; None
               where not even ``_LEAST`` of it (or its inverse) is enough
    sd         distance of that rate, in standard deviations of the assumed one; None where the
               uncertainty of the rate is not known
    """

    knob: str
    resource: str
    rate_frac: float | None
    sd: float | None


@dataclass(frozen=True, kw_only=True)
class Slower:
    """A measured step beside its prediction, with the suspects, the most likely ones first."""

    measured_s: float
    predicted: Interval
    time_s: dict[str, float]
    suspects: tuple[Suspect, ...]

    @property
    def excess_frac(self) -> float:
        """(measured - predicted) / predicted."""
        return self.measured_s / self.predicted.value - 1.0

    @property
    def is_inside(self) -> bool:
        """Whether the measurement lies within the 80 % interval."""
        return self.predicted.low <= self.measured_s <= self.predicted.high


def slower(request: Request, found: Prediction, measured_s: float) -> Slower:
    """What alone would explain a measured step time [s]."""
    knobs = knobs_of(request)
    end = _LEAST if measured_s >= found.step_time_s.value else 1.0 / _LEAST
    rates = np.geomspace(1.0, end, _RATES)
    points = Points.of(values_of(request), len(knobs) * _RATES)
    for i, knob in enumerate(knobs):
        for j, rate in enumerate(rates):
            at = i * _RATES + j
            points = points.with_columns(at, **{knob: rate * getattr(points, knob)[at]})
    step_s = steps_of(request, points).step_s.reshape(len(knobs), _RATES)
    spread = knob_spread_of(
        request.profile, request.cluster, request.strategy.precision, request.workload
    )
    suspects = []
    for knob, times in zip(knobs, step_s, strict=True):
        frac = _rate_at(measured_s, times, rates)
        sd = spread.get(knob) or None
        away = abs(math.log(frac)) / sd if frac is not None and sd else None
        suspects.append(Suspect(knob=knob, resource=RESOURCES[knob], rate_frac=frac, sd=away))
    return Slower(
        measured_s=measured_s,
        predicted=found.step_time_s,
        time_s=dict(found.time_s),
        suspects=tuple(sorted(suspects, key=_likelihood)),
    )


def _rate_at(
    measured_s: float, step_s: np.ndarray[tuple[int], np.dtype[np.float64]],
    rates: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> float | None:  # fmt: skip
    """The rate at which the step takes ``measured_s``, between those tried; None beyond them."""
    away = np.abs(np.log(step_s / step_s[0]))  # the further the rate, the further the step
    wanted = abs(math.log(measured_s / step_s[0]))
    if wanted > away[-1]:
        return None
    return float(np.exp(np.interp(wanted, np.maximum.accumulate(away), np.log(rates))))


def _likelihood(s: Suspect) -> tuple[bool, float, float]:
    """Sort key: what explains it first, by standard deviations, then by rate."""
    if s.rate_frac is None:
        return True, math.inf, math.inf
    return False, math.inf if s.sd is None else s.sd, abs(math.log(s.rate_frac))
