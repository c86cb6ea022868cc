"""The residuals of measured steps: their covariance within a program, the width after a fit.

The engine's errors are correlated. Two steps of one program that spend their time on the same
resources have similar errors, and so have those of one model or one precision: a kernel that is
slower than described is slower in both. The residual of ln(time) is modelled as a Gaussian process
over the properties of a step, never over its measured time. Its widths are learnt from the rows of
the fit alone.

# A, B, R rows; K what a step's time depends on (timing.points.KNOBS)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.figures import HIGH_QUANTILE, Z80
from simcore.base.record import dataclass

#: Length scale of the correlation over shares of the time: it falls to 1/e if about a fifth of the
#: step moves from one resource to others.
SHARE_SCALE = 0.2
#: Length scale of the correlation over a job's sizes, in doublings.
SIZE_SCALE = 1.5


@dataclass(frozen=True)
class Traits:
    """The properties of a step that determine the correlation of its error with others.

    ``program``: a source on a GPU type; steps of different programs are not correlated. ``work``:
    an identifier of what one device computes in a micro-step, the same on any number of devices.
    ``sizes``: log2 of batch, ranks, degrees and parameters.
    """

    program: str
    model: str
    precision: str
    work: str
    sizes: tuple[float, ...]


@dataclass(frozen=True)
class Features:
    """The traits of several rows as arrays, with their shares of the time [A, K]."""

    program: NDArray[np.int64]
    model: NDArray[np.int64]
    precision: NDArray[np.int64]
    work: NDArray[np.int64]
    sizes: Array
    shares: Array

    @staticmethod
    def of(traits: Sequence[Traits], shares: Array) -> Features:
        """The features of rows; ``shares`` [A, K] are the elasticities of the time."""
        return Features(
            program=_codes([t.program for t in traits]),
            model=_codes([t.model for t in traits]),
            precision=_codes([t.precision for t in traits]),
            work=_codes([t.work for t in traits]),
            sizes=np.array([t.sizes for t in traits], dtype=np.float64),
            shares=shares,
        )


def _codes(names: Sequence[str]) -> NDArray[np.int64]:
    """A number for each name, the same in every call and process."""
    import zlib

    return np.array([zlib.crc32(n.encode()) for n in names], dtype=np.int64)


#: Part of the covariance -> its prior width, a standard deviation of ln(time). Together they are
#: about the correlated share of a blind error of 15 % in published steps of one source. Each fit
#: learns the widths from its rows.
PARTS: dict[str, float] = {
    "precision": 0.04,
    "model": 0.04,
    "work of a device": 0.08,
    "shares of the time": 0.12,
    "sizes of one model": 0.05,
}


def part_covariances(a: Features, b: Features) -> dict[str, Array]:
    """The correlation [A, B] of each part between rows ``a`` and rows ``b``; one for equal rows."""
    program = a.program[:, None] == b.program[None, :]
    model = program & (a.model[:, None] == b.model[None, :])
    precision = program & (a.precision[:, None] == b.precision[None, :])
    work = program & (a.work[:, None] == b.work[None, :])
    moved = np.sqrt(_square_distances(a.shares, b.shares))
    doublings = _square_distances(a.sizes, b.sizes)
    return {
        "precision": precision.astype(np.float64),
        "model": model.astype(np.float64),
        "work of a device": work.astype(np.float64),
        "shares of the time": program * np.exp(-moved / SHARE_SCALE),
        "sizes of one model": model * np.exp(-doublings / (2.0 * SIZE_SCALE**2)),
    }


def _square_distances(a: Array, b: Array) -> Array:
    return np.square(a[:, None, :] - b[None, :, :]).sum(axis=-1)


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
    return alpha / np.sqrt(np.diag(inverse))


def widening(deviations: Sequence[float] | Array) -> float:
    """The factor on a predicted standard deviation with which 1.28 of it bound 80 % of the errors.

    The variance's prior is a scaled inverse chi-squared distribution with ``PRIOR_FREEDOM`` degrees
    of freedom around one; the squared ``deviations`` update it. The predictive distribution is
    Student's t.
    """
    capped = np.minimum(np.abs(np.asarray(deviations, dtype=np.float64)), MOST_DEVIATIONS)
    freedom = PRIOR_FREEDOM + len(capped)
    variance = (PRIOR_FREEDOM + float(capped @ capped)) / freedom
    return math.sqrt(variance) * few(freedom)


def scatter_over(
    deviations: Sequence[float], before: Sequence[float], shipped_rows: float
) -> float:
    """The scatter of predictions after a calibration over that of the same steps before it.

    ``deviations``, ``before``: errors of the steps over one standard deviation, after and before.
    What both predict equally badly says nothing of the calibration. The scatter that holds before
    rests on ``shipped_rows`` further steps, which count alike on both sides.
    """
    after, was = (np.minimum(np.abs(d), MOST_DEVIATIONS) for d in (deviations, before))
    return math.sqrt((shipped_rows + float(after @ after)) / (shipped_rows + float(was @ was)))


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
