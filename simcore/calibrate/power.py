"""How much of the matrix peak a power cap leaves: fit, and the test against a constant."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from simcore.base.units import TERA
from simcore.calibrate.curve_fits import EFF_MAX, Array, solve
from simcore.calibrate.pooling import family_of, mean_log
from simcore.hardware.power import node_energy_frac, power_limited_frac
from simcore.hardware.spec import GpuSpec


@dataclass(frozen=True, slots=True)
class PowerFit:
    """``eff = unlimited · power_limited_frac(tdp, peak, limit · node)`` and what it explains.

    ``limit_j_per_flop`` is that of 16 nm; ``node`` scales it (hardware.power).
    """

    unlimited: float
    limit_j_per_flop: float
    resid_sd_log: float
    left_out: dict[str, tuple[float, float]]  # gpu -> (measured, predicted without its family)


def _fit_power(watts: Array, peak: Array, eff: Array) -> tuple[float, float]:
    x, _ = solve(
        lambda p: np.log(math.exp(p[0]) * power_limited_frac(watts, peak, math.exp(p[1])) / eff),
        np.log([0.8, 0.5 / TERA]),
        np.log([0.5, 0.01 / TERA]),
        np.log([EFF_MAX, 20 / TERA]),
    )
    return math.exp(x[0]), math.exp(x[1])


def fit_power(
    eff: Mapping[str, float],
    gpus: Mapping[str, GpuSpec],
    peak: Callable[[GpuSpec], float],
    family: Callable[[str], str] = family_of,
) -> PowerFit:
    """Fit efficiencies against tdp/peak, and predict each family from the others."""
    names = sorted(eff)
    # A smaller node needs less energy a FLOP: dividing the watts' need is dividing by its share.
    watts = np.array([gpus[g].tdp_w / node_energy_frac(gpus[g].node_nm) for g in names])
    peaks = np.array([peak(gpus[g]) for g in names])
    value = np.array([eff[g] for g in names])
    families = np.array([family(g) for g in names])
    unlimited, limit = _fit_power(watts, peaks, value)
    left_out: dict[str, tuple[float, float]] = {}
    for out in sorted(set(families)):
        keep = families != out
        u, w0 = _fit_power(watts[keep], peaks[keep], value[keep])
        guess = u * power_limited_frac(watts, peaks, w0)
        left_out |= {
            g: (float(value[i]), float(guess[i])) for i, g in enumerate(names) if not keep[i]
        }
    fitted = unlimited * power_limited_frac(watts, peaks, limit)
    return PowerFit(unlimited, limit, float(np.std(np.log(value / fitted))), left_out)


def constant_left_out(
    eff: Mapping[str, float], family: Callable[[str], str] = family_of
) -> dict[str, tuple[float, float]]:
    """Each GPU predicted by the median over the other families' means."""
    out = {}
    for g in sorted(eff):
        others: dict[str, list[float]] = defaultdict(list)
        for x, value in eff.items():
            if family(x) != family(g):
                others[family(x)].append(value)
        guess = float(np.median([mean_log(v) for v in others.values()]))
        out[g] = (eff[g], guess)
    return out


def rms_log(pairs: Mapping[str, tuple[float, float]]) -> float:
    """Root mean square of ln(predicted / measured)."""
    return math.sqrt(float(np.mean([math.log(p / m) ** 2 for m, p in pairs.values()])))
