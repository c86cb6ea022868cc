"""Coefficients of the physics formulas from measured rows, robust to the odd wrong one.

Residuals are of ln(time) under a soft-L1 loss. scipy is imported where it is used.
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

EFF_MAX: Final = 1.05  # boost clocks above the datasheet's; more would be a wrong peak
BINS_PER_DECADE: Final = 4
ROWS_PER_BIN: Final = 150
SOFT_SCALE: Final = 0.1  # ln units: beyond 10 % a residual counts linearly
MAD_TO_SD: Final = 1.4826


@dataclass(frozen=True, slots=True)
class RooflineFit:
    """Coefficients of ``launch + sqrt(tc^2 + tm^2)`` with the standard deviation of their logs.

    ``resid_sd_log`` is the robust scatter of ln(measured / fitted) over the compute-bound rows
    (over all rows for a memory fit): how far one shape strays.
    """

    eff_compute: float
    eff_memory: float
    launch_s: float
    sd_compute_log: float
    sd_memory_log: float
    resid_sd_log: float
    n: int


def robust_sd(values: Array) -> float:
    """Median absolute deviation, scaled to a normal's standard deviation."""
    return float(MAD_TO_SD * np.median(np.abs(values - np.median(values))))


def solve(
    residual: Callable[[Array], Array], start: Array, low: Array, high: Array
) -> tuple[Array, Array]:
    """Minimise soft-L1 of ``residual``; returns the parameters and their standard deviations."""
    from scipy.optimize import least_squares

    got = least_squares(
        residual, start, bounds=(low, high), loss="soft_l1", f_scale=SOFT_SCALE, x_scale=1.0
    )
    left = residual(got.x)
    # Sandwich: rows scatter and weigh unequally; the odd wrong one counts no more than 3 sd.
    wide = 3.0 * max(robust_sd(left), 1e-6)
    bread = np.linalg.pinv(got.jac.T @ got.jac)
    scored = got.jac * np.clip(left, -wide, wide)[:, None]
    cov = bread @ (scored.T @ scored) @ bread * (len(left) / max(len(left) - len(got.x), 1))
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
    """Fit both efficiencies and the launch time to rows of one device. Arrays are [rows].

    ``eff_memory_min``: without rows that stream memory, a low memory share would take up what
    the compute term misses; the bound keeps it physical.
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
    """Fit ``launch + bytes / (eff · bw)`` to kernels without notable arithmetic."""

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
    """``latency + S/B + ramp · sqrt(latency · S/B)``; B in bytes of message a second.

    The dimensionless ramp is the c of c·sqrt(S): c = ramp · sqrt(latency / B).
    """

    latency_s: float
    message_bytes_per_s: float
    ramp: float
    resid_sd_log: float
    n: int


def fit_collective(n_bytes: Array, time_s: Array) -> CollectiveFit:
    """Fit one curve of one collective on one group. Arrays are [sizes]."""
    start = np.log([time_s.min(), (n_bytes / time_s).max(), 0.5])

    def predict(p: Array) -> Array:
        latency, transfer = math.exp(p[0]), n_bytes / math.exp(p[1])
        time: Array = latency + transfer + math.exp(p[2]) * np.sqrt(latency * transfer)
        return time

    # B is barred from running far past the best rate seen: the ramp would take its place.
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
    """Indices of at most ``per_bin`` rows from each quarter decade of ``key``, in row order."""
    bins = np.floor(np.log10(np.maximum(key, 1.0)) * BINS_PER_DECADE).astype(int)
    kept = [
        rng.permutation(np.flatnonzero(bins == b))[:per_bin] for b in np.unique(bins)
    ]  # fmt: skip
    return np.sort(np.concatenate(kept)) if kept else np.array([], dtype=np.intp)
