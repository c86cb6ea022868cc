"""Fits standard deviations such that 80 % of errors are inside, by quantile regression.

# R errors, P parts of the variance
"""

from __future__ import annotations

import math

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.figures import HIGH_QUANTILE, LOW_QUANTILE, Z80
from simcore.base.record import dataclass

#: Share of errors that should be inside: the quantile of |error| that is fitted.
INSIDE_FRAC = HIGH_QUANTILE - LOW_QUANTILE
#: Strength of the penalty that pulls each ln(sd) towards the pooled one, that of a fit with one
#: part. The mean loss is about 0.25; the penalty moves a part that applies to a tenth of the errors
#: by some 5 %.
SHRINKAGE = 2e-3
#: The range of ln|error| over which the kink of the loss is smoothed, for a gradient-based search.
_ROUND = 0.08
#: Standard deviations at which the search starts, and its bounds.
_STARTS, _LEAST, _MOST = (0.05, 0.15), 0.005, 2.0


@dataclass(frozen=True)
class Errors:
    """Absolute errors [R], the known part of their variance [R], weights of its parts [R, P]."""

    size: Array
    known: Array
    weights: Array

    def take(self, index: NDArray[np.bool_]) -> Errors:
        """The rows that the mask ``index`` selects."""
        return Errors(self.size[index], self.known[index], self.weights[index])

    def needed(self, widths: Array) -> Array:
        """The factor on all widths with which each error is just inside [R]; inf: none does."""
        least = np.maximum(np.square(self.size / Z80) - self.known, 0.0)
        parts = self.weights @ np.square(widths)
        return np.sqrt(np.divide(least, parts, out=np.full_like(least, np.inf), where=parts > 0))

    def sd(self, widths: Array) -> Array:
        """The standard deviation of each error [R]."""
        return np.sqrt(self.known + self.weights @ np.square(widths))

    def inside(self, widths: Array) -> NDArray[np.bool_]:
        """Whether each error is inside its 80 % interval [R]."""
        return self.size <= Z80 * self.sd(widths)


def fit_widths(errors: Errors) -> Array:
    """The standard deviation of each part [P].

    The pinball loss of ln|error| at the 80 % quantile is smallest if 80 % of the errors are inside,
    in each kind of job that the parts distinguish. Its slope does not depend on how far an error
    is outside, so single large errors do not dominate the fit.
    """
    pooled = _search(Errors(errors.size, errors.known, np.ones((len(errors.size), 1))), None)
    return _search(errors, float(np.log(pooled[0])))


def width_of_a_new_source(beyond: Array, sources: NDArray[np.str_]) -> float:
    """The width that holds 80 % of the errors of a source that was not in the fit.

    ``beyond`` [R]: the width that each error needs; ``sources`` [R]: its source. Errors of one
    source are correlated, so each source gets the same total weight, and the quantile is over
    sources: a further source, exchangeable with the n known ones, is within the quantile at
    0.8 (n + 1)/n (hierarchical conformal prediction: Lee, Barber & Willett 2023,
    arXiv:2306.06342). With fewer than four sources that exceeds one, and the largest width is
    returned.
    """
    names, of, rows = np.unique(sources, return_inverse=True, return_counts=True)
    level = min(INSIDE_FRAC * (len(names) + 1) / len(names), 1.0)
    order = np.argsort(beyond, kind="stable")
    share = np.cumsum((1.0 / (len(names) * rows[of]))[order])
    at = min(int(np.searchsorted(share, level * (1.0 - 1e-9))), len(order) - 1)
    return float(beyond[order][at])


def _search(errors: Errors, centre: float | None) -> Array:
    from scipy.optimize import minimize

    log_size = np.log(np.maximum(errors.size, 1e-9 * float(errors.size.max())))
    share = 1.0 / len(log_size)
    n = errors.weights.shape[1]

    def loss(log_widths: Array) -> tuple[float, Array]:
        parts = errors.weights * np.exp(2.0 * log_widths)
        variance = errors.known + parts.sum(axis=1) + 1e-18
        off = log_size - 0.5 * np.log(variance) - math.log(Z80)
        # pinball: 0.8 off above the quantile, -0.2 off below it
        total = float(np.mean(INSIDE_FRAC * off + _ROUND * np.logaddexp(0.0, -off / _ROUND)))
        tilt = INSIDE_FRAC - 1.0 / (1.0 + np.exp(np.clip(off / _ROUND, -500.0, 500.0)))
        slope = -(share * tilt / variance) @ parts
        if centre is not None:
            pull = log_widths - centre
            total += SHRINKAGE * float(pull @ pull)
            slope = slope + 2.0 * SHRINKAGE * pull
        return total, slope

    bounds = [(math.log(_LEAST), math.log(_MOST))] * n
    results = [
        minimize(loss, np.full(n, math.log(s)), jac=True, method="L-BFGS-B", bounds=bounds)
        for s in _STARTS
    ]
    best = min(results, key=lambda f: float(f.fun))
    return np.exp(best.x)
