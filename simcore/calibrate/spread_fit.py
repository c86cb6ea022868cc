"""Standard deviations such that 80 % of errors lie inside: quantile regression of their size.

# R errors, P parts of the variance
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.interval import HIGH_QUANTILE, LOW_QUANTILE, Z80

Array = NDArray[np.float64]

#: Share of errors inside: the quantile of |error| that is fitted.
INSIDE_FRAC = HIGH_QUANTILE - LOW_QUANTILE
#: Pull of each ln(sd) towards that of one part alone (the pooled one), beside a mean loss of about
#: 0.25: a part that a tenth of the errors has is moved by it by some 5 %.
SHRINKAGE = 2e-3
#: The loss is rounded over so much of ln|error|, so that its minimum can be searched by slopes.
_ROUND = 0.08
#: Where the search begins, and between what it stays.
_STARTS, _LEAST, _MOST = (0.05, 0.15), 0.005, 2.0


@dataclass(frozen=True)
class Errors:
    """Sizes of errors [R], the variance known of them [R], and weights of its parts [R, P]."""

    size: Array
    known: Array
    weights: Array

    def take(self, index: NDArray[np.bool_]) -> Errors:
        """Some of the rows."""
        return Errors(self.size[index], self.known[index], self.weights[index])

    def needed(self, widths: Array) -> Array:
        """What to multiply all widths by for each error to lie inside [R]; inf: nothing helps."""
        least = np.maximum(np.square(self.size / Z80) - self.known, 0.0)
        parts = self.weights @ np.square(widths)
        found: Array = np.sqrt(
            np.divide(least, parts, out=np.full_like(least, np.inf), where=parts > 0)
        )
        return found

    def sd(self, widths: Array) -> Array:
        """Standard deviation of each error [R]."""
        found: Array = np.sqrt(self.known + self.weights @ np.square(widths))
        return found

    def inside(self, widths: Array) -> NDArray[np.bool_]:
        """Which errors lie inside their 80 % interval [R]."""
        found: NDArray[np.bool_] = self.size <= Z80 * self.sd(widths)
        return found


def fit_widths(errors: Errors) -> Array:
    """Standard deviation of each part [P].

    The pinball loss of ln|error| at the 80 % quantile is least where 80 % lie inside, in each kind
    of job that the parts tell apart. No error counts by how far it lies outside.
    """
    pooled = _search(Errors(errors.size, errors.known, np.ones((len(errors.size), 1))), None)
    return _search(errors, float(np.log(pooled[0])))


def width_of_a_new_source(beyond: Array, sources: NDArray[np.str_]) -> float:
    """The width that holds 80 % of a source that no width has seen, each source counted once.

    ``beyond`` [R]: the width that each error needs. Errors of one source are alike, so that the
    level is of sources, not of rows: of n sources that could as well have come in another order
    one more lies within the quantile at 0.8 (n + 1)/n of theirs, each source with one weight in
    all (hierarchical conformal prediction: Lee, Barber & Willett 2023, arXiv:2306.06342). Of fewer
    than four sources no quantile holds as much: the largest error.
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
    found = [
        minimize(loss, np.full(n, math.log(s)), jac=True, method="L-BFGS-B", bounds=bounds)
        for s in _STARTS
    ]
    best = min(found, key=lambda f: float(f.fun))
    widths: Array = np.exp(best.x)
    return widths
