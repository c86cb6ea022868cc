"""Fits the share of the peak that the power limit allows, and tests that law against a constant."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from simcore.base.record import dataclass
from simcore.base.units import TERA
from simcore.calibrate.curve_fits import EFF_MAX, solve
from simcore.calibrate.pooling import family_of, mean_log
from simcore.hardware.class_figures import (
    CAP_EXPONENT,
    Unit,
    clock_frac,
    flop_energy_frac,
    issue_frac,
    open_frac,
    power_limited_frac,
    reference_peak,
)
from simcore.hardware.spec import GpuSpec


@dataclass(frozen=True)
class PowerFit:
    """The law ``eff = unlimited · open_frac(gpu, unit, limit_j_per_flop)`` and its errors.

    ``limit_j_per_flop`` holds at 16 nm and 1.5 GHz; ``hardware.power`` scales it.
    ``resid_sd_log``: standard deviation of ln(measured / fitted). ``left_out``: GPU -> (measured,
    predicted by a fit without its family).
    """

    unlimited: float
    limit_j_per_flop: float
    resid_sd_log: float
    left_out: dict[str, tuple[float, float]]


def _fit(
    names: Sequence[str], eff: Mapping[str, float], gpus: Mapping[str, GpuSpec],
    unit: Unit, family: Callable[[str], str],
) -> tuple[float, float]:  # fmt: skip
    """(unlimited, limit_j_per_flop) of the law; each family has the same weight."""
    # Watts are divided by the relative energy per FLOP, so that one limit applies to all devices.
    watts = np.array([
        gpus[g].tdp_w / flop_energy_frac(gpus[g].node_nm, gpus[g].clock_hz) for g in names
    ])  # fmt: skip
    peak = np.array([reference_peak(gpus[g], unit) for g in names])
    issued = np.array([issue_frac(gpus[g]) if unit == "simt" else 1.0 for g in names])
    value = np.array([eff[g] for g in names]) / issued
    members = Counter(map(family, names))
    weight = np.array([members[family(g)] ** -0.5 for g in names])
    exponent = CAP_EXPONENT[unit]
    x, _ = solve(
        lambda p: weight * (
            p[0] + np.log(power_limited_frac(watts, peak, math.exp(p[1]), exponent) / value)
        ),
        np.log([0.8, 0.5 / TERA]),
        np.log([0.4, 0.01 / TERA]),
        np.log([EFF_MAX, 20 / TERA]),
    )  # fmt: skip
    unlimited, limit = math.exp(x[0]), math.exp(x[1])
    if unit == "tensor":  # the geometric mean of the levels by power limit and by base clock
        at_clock = {g: eff[g] / clock_frac(gpus[g]) for g in names}
        unlimited = math.sqrt(unlimited * median_of_families(at_clock, family))
    return unlimited, limit


def fit_power(
    eff: Mapping[str, float],
    gpus: Mapping[str, GpuSpec],
    unit: Unit,
    family: Callable[[str], str] = family_of,
) -> PowerFit:
    """The power law fitted to the shares ``eff`` of devices, with its errors of left-out families.

    Devices without a known clock are left out.
    """
    names = sorted(g for g in eff if not math.isnan(gpus[g].clock_hz))
    unlimited, limit = _fit(names, eff, gpus, unit, family)
    left_out: dict[str, tuple[float, float]] = {}
    for out in sorted(set(map(family, names))):
        u, w0 = _fit([g for g in names if family(g) != out], eff, gpus, unit, family)
        left_out |= {
            g: (eff[g], u * open_frac(gpus[g], unit, w0)) for g in names if family(g) == out
        }
    logs = [math.log(eff[g] / (unlimited * open_frac(gpus[g], unit, limit))) for g in names]
    return PowerFit(unlimited, limit, float(np.std(logs)), left_out)


def median_of_families(
    values: Mapping[str, float], family: Callable[[str], str] = family_of
) -> float:
    """The median over families of each family's geometric mean."""
    by_family: dict[str, list[float]] = defaultdict(list)
    for g, value in values.items():
        by_family[family(g)].append(value)
    return math.exp(float(np.median([math.log(mean_log(v)) for v in by_family.values()])))


def constant_left_out(
    eff: Mapping[str, float], family: Callable[[str], str] = family_of
) -> dict[str, tuple[float, float]]:
    """GPU -> (measured, predicted); the prediction is the median over the other families' means."""
    return {
        g: (eff[g], median_of_families(
            {x: v for x, v in eff.items() if family(x) != family(g)}, family
        ))
        for g in sorted(eff)
    }  # fmt: skip


def rms_log(pairs: Mapping[str, tuple[float, float]]) -> float:
    """The root mean square of ln(predicted / measured) over pairs (measured, predicted)."""
    return math.sqrt(float(np.mean([math.log(p / m) ** 2 for m, p in pairs.values()])))
