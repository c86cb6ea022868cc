"""Fits of the physics formulas to measured rows, robust to a few wrong rows.

Residuals are of ln(time) under a soft-L1 loss. scipy is imported only where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.units import MICRO
from simcore.physics.roofline import kernel_time_s

Array: TypeAlias = NDArray[np.float64]

#: The largest efficiency: boost clocks exceed the datasheet's a little; more means a wrong peak.
EFF_MAX: Final = 1.05
BINS_PER_DECADE: Final = 4
ROWS_PER_BIN: Final = 150
#: Residual of ln(time) above which the loss grows linearly: an error of 10 %.
SOFT_SCALE: Final = 0.1
#: Standard deviation of a normal distribution over its median absolute deviation.
MAD_TO_SD: Final = 1.4826


@dataclass(frozen=True, slots=True)
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


def fit_roofline(
    flop: Array,
    n_bytes: Array,
    fill: Array,
    time_s: Array,
    peak_flop_per_s: float,
    bw_bytes_per_s: float,
    *,
    eff_memory_min: float = 0.1,
    launch_max_s: float = 60 * MICRO,
) -> RooflineFit:
    """Both efficiencies and the launch time of one device, fitted to its rows. Arrays are [rows].

    ``fill`` is the share of the device that each shape fills. ``eff_memory_min`` bounds the memory
    efficiency from below: without rows that are bound by memory, a low efficiency would absorb
    the errors of the compute term.
    """

    def predict(p: Array) -> Array:
        return kernel_time_s(
            flop, n_bytes, peak_flop_per_s, bw_bytes_per_s,
            math.exp(p[0]), math.exp(p[1]), fill, math.exp(p[2]),
        )  # fmt: skip

    x, sd = solve(
        lambda p: np.log(predict(p) / time_s),
        np.log([0.7, 0.8, 3 * MICRO]),
        np.log([0.02, eff_memory_min, 0.1 * MICRO]),
        np.log([EFF_MAX, 1.0, launch_max_s]),
    )
    residual = np.log(time_s / predict(x))
    compute_s = flop / (math.exp(x[0]) * peak_flop_per_s * fill)
    bound = compute_s > 0.7 * (time_s - math.exp(x[2]))
    bound &= compute_s > 5 * math.exp(x[2])
    eff_compute, eff_memory, launch_s = (float(v) for v in np.exp(x))
    return RooflineFit(
        eff_compute, eff_memory, launch_s, float(sd[0]), float(sd[1]),
        robust_sd(residual[bound] if bound.any() else residual), len(time_s),
    )  # fmt: skip


def fit_memory(n_bytes: Array, time_s: Array, bw_bytes_per_s: float) -> RooflineFit:
    """The memory efficiency and launch time of memory-bound kernels. Arrays are [rows].

    The formula is ``launch + bytes / (eff · bw)``.
    """

    def predict(p: Array) -> Array:
        time: Array = math.exp(p[1]) + n_bytes / (math.exp(p[0]) * bw_bytes_per_s)
        return time

    x, sd = solve(
        lambda p: np.log(predict(p) / time_s),
        np.log([0.7, 10 * MICRO]),
        np.log([0.02, 0.1 * MICRO]),
        np.log([1.0, 300 * MICRO]),
    )
    residual = np.log(time_s / predict(x))
    return RooflineFit(
        1.0, float(np.exp(x[0])), float(np.exp(x[1])), 0.0, float(sd[0]),
        robust_sd(residual), len(time_s),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
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
    start = np.log([time_s.min(), (n_bytes / time_s).max(), 0.5])

    def predict(p: Array) -> Array:
        latency, transfer = math.exp(p[0]), n_bytes / math.exp(p[1])
        time: Array = latency + transfer + math.exp(p[2]) * np.sqrt(latency * transfer)
        return time

    # B stays near the best measured rate; a much larger one would be offset by the ramp.
    x, _ = solve(
        lambda p: np.log(predict(p) / time_s),
        start,
        start + np.log([0.2, 0.8, 1e-4]),
        start + np.log([5.0, 1.25, 40.0]),
    )
    residual = np.log(time_s / predict(x))
    latency_s, rate, ramp = (float(v) for v in np.exp(x))
    return CollectiveFit(latency_s, rate, ramp, robust_sd(residual), len(time_s))


def stratify(key: Array, rng: np.random.Generator, per_bin: int = ROWS_PER_BIN) -> NDArray[np.intp]:
    """Indices of at most ``per_bin`` random rows per quarter decade of ``key``, in row order."""
    bins = np.floor(np.log10(np.maximum(key, 1.0)) * BINS_PER_DECADE).astype(int)
    picked = [
        rng.permutation(np.flatnonzero(bins == b))[:per_bin] for b in np.unique(bins)
    ]  # fmt: skip
    return np.sort(np.concatenate(picked)) if picked else np.array([], dtype=np.intp)
