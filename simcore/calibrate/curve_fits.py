"""Fits of the physics formulas to measured rows, robust to a few wrong rows.

Residuals are of ln(time) under a soft-L1 loss. scipy is imported only where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.record import dataclass
from simcore.base.units import MICRO
from simcore.physics.kernel import roofline_s

#: A mask of rows.
Rows: TypeAlias = NDArray[np.bool_]

#: The largest efficiency: boost clocks exceed the datasheet's a little; more means a wrong peak.
EFF_MAX: Final = 1.05
BINS_PER_DECADE: Final = 4
ROWS_PER_BIN: Final = 150
#: Parts of the cross-validation; each part is predicted by a fit of the others.
FOLDS: Final = 10
#: Residual of ln(time) above which the loss grows linearly: an error of 10 %.
SOFT_SCALE: Final = 0.1
#: Standard deviation of a normal distribution over its median absolute deviation.
MAD_TO_SD: Final = 1.4826


@dataclass(frozen=True)
class RooflineFit:
    """Coefficients of ``launch + sqrt(tc^2 + tm^2)``, and standard deviations of their logarithms.

    ``resid_sd_log`` is the robust standard deviation of ln(measured / fitted) over the
    compute-bound rows (over all rows for a memory fit), that is the error of a single shape.
    ``n`` is the number of rows.
    """

    eff_compute: float
    eff_memory: float
    launch_s: float
    sd_compute_log: float
    sd_memory_log: float
    resid_sd_log: float
    n: int


def robust_sd(values: Array) -> float:
    """The median absolute deviation, scaled to the standard deviation of a normal distribution."""
    return float(MAD_TO_SD * np.median(np.abs(values - np.median(values))))


def solve(
    residual: Callable[[Array], Array], start: Array, low: Array, high: Array
) -> tuple[Array, Array]:
    """The parameters that minimise the soft-L1 loss of ``residual``, and their standard deviations.

    ``start``, ``low`` and ``high`` are [parameters]; ``residual`` maps parameters to [rows].
    """
    from scipy.optimize import least_squares

    got = least_squares(
        residual, start, bounds=(low, high), loss="soft_l1", f_scale=SOFT_SCALE, x_scale=1.0
    )
    off = residual(got.x)
    # Sandwich estimator, since rows scatter and weigh unequally; a wrong row counts at most 3 sd.
    most = 3.0 * max(robust_sd(off), 1e-6)
    bread = np.linalg.pinv(got.jac.T @ got.jac)
    scored = got.jac * np.clip(off, -most, most)[:, None]
    cov = bread @ (scored.T @ scored) @ bread * (len(off) / max(len(off) - len(got.x), 1))
    return np.asarray(got.x), np.sqrt(np.diag(cov))


@dataclass(frozen=True)
class TimesFit:
    """Coefficients, standard deviations of their logarithms [n]; ln(measured / fitted) [rows]."""

    values: Array
    sd_log: Array
    off: Array


def fit_times(
    formula: Callable[..., Array], time_s: Array, bounds: Sequence[tuple[float, float, float]]
) -> TimesFit:
    """The positive coefficients with which a formula gives measured times [rows].

    ``formula`` maps the coefficients to seconds [rows]; ``bounds``: (start, least, most) of each.
    """

    def off(logs: Array) -> Array:
        return np.asarray(np.log(formula(*np.exp(logs)) / time_s))

    logs, sd_log = solve(off, *np.log(np.array(bounds)).T)
    return TimesFit(np.exp(logs), sd_log, -off(logs))


def left_out_mape(
    key: Array, time_s: Array, least: int, predict: Callable[[Rows, Rows], Array]
) -> float | None:
    """Mean absolute relative error of each tenth of the rows, predicted by a fit of the others.

    ``predict(seen, unseen)`` fits the rows of one mask and returns the seconds of those of the
    other. Each tenth spans the range of ``key``. None if a fit would have fewer than ``least``
    rows. Arrays are [rows].
    """
    n = len(time_s)
    folds = min(FOLDS, n)
    if not n or n - -(-n // folds) < least:
        return None
    fold = np.empty(n, dtype=int)
    fold[np.argsort(key, kind="stable")] = np.arange(n) % folds
    parts = [fold == k for k in range(folds)]
    errors = [np.abs(predict(~unseen, unseen) / time_s[unseen] - 1.0) for unseen in parts]
    return float(np.mean(np.concatenate(errors)))


def fit_roofline(
    flop: Array,
    n_bytes: Array,
    fill: Array,
    time_s: Array,
    peak_flop_per_s: float,
    bw_bytes_per_s: float,
) -> RooflineFit:
    """Both efficiencies and the launch time of one device, fitted to its rows. Arrays are [rows].

    ``fill`` is the share of the device that each shape fills. The memory efficiency is at least a
    tenth: without rows that are bound by memory, a lower one would absorb errors of the compute
    term.
    """

    def formula(eff_compute: float, eff_memory: float, launch_s: float) -> Array:
        memory_s = n_bytes / (eff_memory * bw_bytes_per_s)
        return roofline_s(flop / (eff_compute * peak_flop_per_s * fill), memory_s, launch_s)

    bounds = (
        (0.7, 0.02, EFF_MAX),
        (0.8, 0.1, 1.0),
        (3 * MICRO, 0.1 * MICRO, 60 * MICRO),
    )
    fit = fit_times(formula, time_s, bounds)
    eff_compute, eff_memory, launch_s = map(float, fit.values)
    compute_s = flop / (eff_compute * peak_flop_per_s * fill)
    bound = (compute_s > 0.7 * (time_s - launch_s)) & (compute_s > 5 * launch_s)
    return RooflineFit(
        eff_compute, eff_memory, launch_s, float(fit.sd_log[0]), float(fit.sd_log[1]),
        robust_sd(fit.off[bound] if bound.any() else fit.off), len(time_s),
    )  # fmt: skip


def fit_memory(n_bytes: Array, time_s: Array, bw_bytes_per_s: float) -> RooflineFit:
    """The memory efficiency and launch time of memory-bound kernels. Arrays are [rows].

    The formula is ``launch + bytes / (eff · bw)``.
    """
    bounds = ((0.7, 0.02, 1.0), (10 * MICRO, 0.1 * MICRO, 300 * MICRO))
    fit = fit_times(lambda eff, start_s: start_s + n_bytes / (eff * bw_bytes_per_s), time_s, bounds)
    eff, start_s = map(float, fit.values)
    sd_log, scatter = float(fit.sd_log[0]), robust_sd(fit.off)
    return RooflineFit(1.0, eff, start_s, 0.0, sd_log, scatter, len(time_s))


@dataclass(frozen=True)
class CollectiveFit:
    """Coefficients of ``latency + S/B + ramp · sqrt(latency · S/B)`` for a message of S bytes.

    B is ``message_bytes_per_s``. The ramp has no unit; written as c·sqrt(S), the last term has
    c = ramp · sqrt(latency / B). ``resid_sd_log`` is the robust standard deviation of
    ln(measured / fitted).
    """

    latency_s: float
    message_bytes_per_s: float
    ramp: float
    resid_sd_log: float
    n: int


def fit_collective(n_bytes: Array, time_s: Array) -> CollectiveFit:
    """Latency, rate and ramp of one collective on one group. Arrays are [sizes]."""

    def formula(latency_s: float, bytes_per_s: float, ramp: float) -> Array:
        transfer_s = n_bytes / bytes_per_s
        return latency_s + transfer_s + ramp * np.sqrt(latency_s * transfer_s)

    shortest, fastest = float(time_s.min()), float((n_bytes / time_s).max())
    # B stays near the best measured rate; a much larger one would be offset by the ramp.
    bounds = (
        (shortest, 0.2 * shortest, 5.0 * shortest), (fastest, 0.8 * fastest, 1.25 * fastest),
        (0.5, 0.5e-4, 20.0),
    )  # fmt: skip
    fit = fit_times(formula, time_s, bounds)
    latency_s, rate, ramp = map(float, fit.values)
    return CollectiveFit(latency_s, rate, ramp, robust_sd(fit.off), len(time_s))


def stratify(key: Array, rng: np.random.Generator, per_bin: int = ROWS_PER_BIN) -> NDArray[np.intp]:
    """Indices of at most ``per_bin`` random rows per quarter decade of ``key``, in row order."""
    bins = np.floor(np.log10(np.maximum(key, 1.0)) * BINS_PER_DECADE).astype(int)
    picked = [
        rng.permutation(np.flatnonzero(bins == b))[:per_bin] for b in np.unique(bins)
    ]  # fmt: skip
    return np.sort(np.concatenate(picked)) if picked else np.array([], dtype=np.intp)
