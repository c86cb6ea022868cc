"""The width of predictions after a fit, from the leave-one-out errors of the fit's rows.

# R rows of a fit
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.figures import HIGH_QUANTILE, Z80

Array = NDArray[np.float64]

#: Weight of the prior width, as a number of rows: the degrees of freedom of a row's own error. So a
#: few rows change the width little, and ten determine most of it.
PRIOR_FREEDOM = 4.0
#: The most standard deviations that an error counts: a few rows in a hundred are wrong.
MOST_DEVIATIONS = 3.0
#: Half of the errors of a normal distribution are within so many standard deviations.
_MIDDLE = 0.6745
#: Scatter of steps of one program on one GPU type around their common error, over the residual of
#: blind predictions: 0.75 at the 80 % quantile, in 2,946 published steps of 55 programs (0.5 for
#: one model).
OF_ONE_PROGRAM_FRAC = 0.75


def left_out_deviations(inverse: Array, alpha: Array) -> Array:
    """Leave-one-out errors of the rows over their predicted standard deviations [R].

    For a Gaussian process with covariance K they are alpha / sqrt(diag(K^-1)) with alpha = K^-1 z
    (Rasmussen and Williams 2006, equations 5.10 to 5.12), so no refit is needed. ``inverse`` is
    K^-1 [R, R], ``alpha`` [R].
    """
    deviations: Array = alpha / np.sqrt(np.diag(inverse))
    return deviations


def widening(deviations: Sequence[float] | Array, prior_freedom: float = PRIOR_FREEDOM) -> float:
    """The factor on a predicted standard deviation with which 1.28 of it bound 80 % of the errors.

    The variance's prior is a scaled inverse chi-squared distribution with ``prior_freedom`` degrees
    of freedom around one; the squared ``deviations`` update it. The predictive distribution is
    Student's t.
    """
    capped = np.minimum(np.abs(np.asarray(deviations, dtype=np.float64)), MOST_DEVIATIONS)
    freedom = prior_freedom + len(capped)
    variance = (prior_freedom + float(capped @ capped)) / freedom
    return math.sqrt(variance) * few(freedom)


def scatter_sd_log(errors: Sequence[float] | Array, lost: float, prior_sd_log: float) -> float:
    """The standard deviation of which 1.28 bound 80 % of the errors of further rows.

    ``errors`` are those of the fit's own rows, ``lost`` the degrees of freedom that the fitted
    parameters take; ``prior_sd_log`` is the expected residual before any row. The posterior is as
    in :func:`widening`.
    """
    off = np.abs(np.asarray(errors, dtype=np.float64))
    n = max(len(off) - lost, 0.0)
    most = MOST_DEVIATIONS * max(prior_sd_log, float(np.median(off)) / _MIDDLE if len(off) else 0.0)
    capped = np.minimum(off, most)
    freedom = PRIOR_FREEDOM + n
    variance = (PRIOR_FREEDOM * prior_sd_log**2 + float(capped @ capped)) / freedom
    return math.sqrt(variance) * few(freedom)


def few(freedom: float) -> float:
    """The quantile of Student's t over that of the normal, for 80 % intervals."""
    from scipy.special import stdtrit

    return float(stdtrit(max(freedom, 2.0), HIGH_QUANTILE)) / Z80
