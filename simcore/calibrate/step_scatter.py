"""How wide predictions after a fit are: what its own rows, left out one by one, say of the widths.

# R rows of a fit
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.interval import HIGH_QUANTILE, Z80

Array = NDArray[np.float64]

#: What the widths are worth that held before the rows, in rows: those of Student's t of a row's
#: own error. Few rows say little of a scatter, ten say most of it.
PRIOR_FREEDOM = 4.0
#: An error counts as no more than so many deviations: wrong rows are a few in a hundred.
MOST_DEVIATIONS = 3.0
#: Half of normal errors lie within so many deviations.
_MIDDLE = 0.6745
#: Steps of one program on one GPU type around what they share, over the residual of blind steps:
#: 0.75 of it at the 80 % quantile, in 2,946 published steps of 55 programs (0.5 for one model).
OF_ONE_PROGRAM_FRAC = 0.75


def left_out_deviations(inverse: Array, alpha: Array) -> Array:
    """Errors of rows each predicted from the others, over their predicted deviations [R].

    Of a Gaussian process with covariance K: alpha / sqrt(diag(K^-1)), alpha = K^-1 z (Rasmussen
    and Williams 2006, equations 5.10 to 5.12); no fit is done again.
    """
    found: Array = alpha / np.sqrt(np.diag(inverse))
    return found


def widening(deviations: Sequence[float] | Array) -> float:
    """What a deviation before the rows is multiplied by, 1.28 of which then bound 80 %.

    Scaled inverse chi-squared with ``PRIOR_FREEDOM`` degrees about one, and the rows' own squares:
    the variance's posterior. What is predicted with it is Student's t.
    """
    capped = np.minimum(np.abs(np.asarray(deviations, dtype=np.float64)), MOST_DEVIATIONS)
    freedom = PRIOR_FREEDOM + len(capped)
    variance = (PRIOR_FREEDOM + float(capped @ capped)) / freedom
    return math.sqrt(variance) * few(freedom)


def scatter_sd_log(errors: Sequence[float] | Array, lost: float, prior_sd_log: float) -> float:
    """Deviation, 1.28 of which bound 80 % of further rows' errors about fitted parameters.

    ``errors`` of the fit's own rows, whose parameters took ``lost`` degrees of freedom;
    ``prior_sd_log``: the residual of such rows before any was seen. The posterior is as of
    ``widening``.
    """
    off = np.abs(np.asarray(errors, dtype=np.float64))
    n = max(len(off) - lost, 0.0)
    most = MOST_DEVIATIONS * max(prior_sd_log, float(np.median(off)) / _MIDDLE if len(off) else 0.0)
    capped = np.minimum(off, most)
    freedom = PRIOR_FREEDOM + n
    variance = (PRIOR_FREEDOM * prior_sd_log**2 + float(capped @ capped)) / freedom
    return math.sqrt(variance) * few(freedom)


def few(freedom: float) -> float:
    """Student's t over the normal at 80 %."""
    from scipy.special import stdtrit

    return float(stdtrit(max(freedom, 2.0), HIGH_QUANTILE)) / Z80
