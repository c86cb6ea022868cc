"""What clocks a device keeps: under its power limit, and in long measurements over short bursts.

The share of the peak that the power limit allows is fitted, and that law is tested against a
constant. The ratio of kernel times at sustained and at burst clocks is by device.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from simcore.base.database import read_yaml, shipped_root
from simcore.base.record import dataclass
from simcore.base.units import TERA
from simcore.calibrate.curve_fits import EFF_MAX, robust_sd, solve
from simcore.calibrate.ops.model import KernelFit
from simcore.calibrate.pooling import Leaf, family_of, figure, mean_log
from simcore.calibrate.tables import collection_of
from simcore.hardware.class_figures import (
    CAP_EXPONENT,
    Clock,
    Unit,
    clock_frac,
    flop_energy_frac,
    issue_frac,
    open_frac,
    power_limited_frac,
    reference_peak,
)
from simcore.hardware.spec import GPUS, GpuSpec


@dataclass(frozen=True)
class PowerFit:
    """The law ``eff = unlimited · open_frac(gpu, unit, limit_j_per_flop)`` and its errors.

    ``limit_j_per_flop`` holds at 16 nm and 1.5 GHz; ``hardware.class_figures`` scales it.
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


#: The least standard deviation of the ratio's logarithm.
LONE_SD = 0.08


#: Devices whose fp32 products hold their clock, which no op table shows: H200's reach 50.7 TFLOP/s
#: at 8,192 cubed for 1.1 s, 49.8 at 4,096 cubed for 0.1 s (simcore calibrate, 2026-11-26; 1,980 MHz
#: at 630 W). H100's have the same die, power limit and clocks.
HOLD_SIMT_CLOCK: Final = ("H100-SXM-80GB", "H200-SXM")


@lru_cache(maxsize=1)
def looped_tflop_per_s() -> Mapping[str, float]:
    """Rates of products in loops [TFLOP/s] by device, the geometric mean of their formats."""
    data = read_yaml(shipped_root() / "programs_db" / "benchmarks" / "looped_products.yaml")
    return MappingProxyType({gpu: mean_log(rates.values()) for gpu, rates in data.items()})


@dataclass(frozen=True)
class ClockRatios:
    """Kernel time over that in bursts, by way of timing and device.

    A device is in a table if both ways were measured on it. ``holds``: they are of vector units, on
    which some devices hold their clock (``HOLD_SIMT_CLOCK``). ``burst_flop_per_s``: rates of large
    products in bursts, by device.
    """

    ratios: Mapping[Clock, Mapping[str, float]]
    holds: bool = False
    burst_flop_per_s: Mapping[str, float] = field(default_factory=dict)

    def of(self, clock: Clock, gpu: str) -> float:
        """The ratio of a device, else the median over devices, else 1.

        If no device has a ratio for ``clock``, the ratios of sustained clocks are used.
        """
        by_gpu = self.ratios.get(clock) or self.ratios.get("sustained") or {}
        return by_gpu.get(gpu, float(np.median(list(by_gpu.values()))) if by_gpu else 1.0)

    def section(self) -> dict[str, Any]:
        """The section of the profile: for each way of timing, its time over that in bursts.

        A training simulator's kernels ran in long loops as well (derived), on another machine. A
        device that both collections have in long loops gets the geometric mean of the two, with
        half of their distance as the spread: its clock depends on the machine's cooling and power.
        Another device of ``looped_tflop_per_s`` gets the mean of the ratios at which its rates in
        bursts and in loops compare with theirs.
        """
        derived = self.ratios.get("derived", {})
        out: dict[str, Any] = {}
        for clock, by_gpu in self.ratios.items():
            logs = np.log(list(by_gpu.values()) or [1.0])
            source = "simumax" if clock == "derived" else "sustained-fit"
            pooled = figure(float(np.exp(np.median(logs))), max(robust_sd(logs), LONE_SD), source,
                            len(by_gpu))  # fmt: skip
            holds = self.holds and clock == "sustained"
            held = dict.fromkeys(HOLD_SIMT_CLOCK, 1.0) if holds else {}
            figures = {g: figure(r, 0.05, source) for g, r in {**held, **by_gpu}.items()}
            for gpu in by_gpu.keys() & derived.keys() if clock == "sustained" else ():
                both = [by_gpu[gpu], derived[gpu]]
                apart = abs(math.log(both[0] / both[1])) / 2.0
                figures[gpu] = figure(mean_log(both), max(0.05, apart), f"{source}+simumax")
            if clock == "sustained":
                figures |= self._from_loops(figures)
            out[f"{clock}_over_burst"] = {"pooled": pooled} | (
                {"by_gpu": figures} if figures else {}
            )
        return out

    def _from_loops(self, figures: Mapping[str, Leaf]) -> dict[str, Leaf]:
        """Figures of devices that were timed in ``looped_tflop_per_s`` alone."""
        burst, looped = self.burst_flop_per_s, looped_tflop_per_s()
        timed = [g for g in figures if g in looped and g in burst]
        out: dict[str, Leaf] = {}
        for gpu in (burst.keys() & looped.keys() - figures.keys()) if timed else ():
            ratios = [
                figures[g]["value"] * burst[gpu] / burst[g] * looped[g] / looped[gpu] for g in timed
            ]
            spread = max(figures[g]["sd_log"] for g in timed)
            out[gpu] = figure(mean_log(ratios), spread, "mamf", len(timed))
        return out


def _share(fit: KernelFit, clock: Clock, op: str | None = None) -> dict[str, float]:
    """Collection -> share of the peak at one clock, of one op or of all."""
    shares: dict[str, list[float]] = {}
    for name, value in fit.eff.get(clock, {}).items():
        if op is None or name.endswith(f" {op}"):
            shares.setdefault(collection_of(name), []).append(value)
    return {c: mean_log(v) for c, v in shares.items()}


def _ratio(fit: KernelFit, clock: Clock) -> float | None:
    """The share of the peak in bursts over that at ``clock``; None if either was not measured.

    Where possible both come from the same collection and the same op.
    """
    ops = {n.rsplit(" ", 1)[1] for n in fit.eff.get("burst", {})}
    ops &= {n.rsplit(" ", 1)[1] for n in fit.eff.get(clock, {})}
    op = next(iter(sorted(ops)), None)
    burst, other = _share(fit, "burst", op), _share(fit, clock, op)
    common = burst.keys() & other.keys()
    if common:
        return mean_log(burst[c] / other[c] for c in common)
    return mean_log(burst.values()) / mean_log(other.values()) if burst and other else None


def clock_ratios(
    fits: Mapping[str, Mapping[str, KernelFit]], without: Collection[str] = ()
) -> dict[str, ClockRatios]:
    """The ratios of products on matrix units (``tensor``) and on vector units (``simt``).

    ``fits`` is class -> device -> fit; families in ``without`` are left out.
    """
    ratios: dict[str, ClockRatios] = {}
    clock: Clock
    for name, cls in (("tensor", "gemm_tensor16"), ("simt", "gemm_simt32")):
        by_gpu = {g: f for g, f in fits.get(cls, {}).items() if family_of(g) not in without}
        pairs: dict[Clock, dict[str, float]] = {}
        for clock in ("sustained", "profiled", "derived"):
            for gpu, fit in sorted(by_gpu.items()):
                ratio = _ratio(fit, clock)
                if ratio is not None and math.isfinite(ratio):
                    pairs.setdefault(clock, {})[gpu] = ratio
        # Long eager loops under a profiler heat a device as well: without sustained timings, the
        # profiled ones stand for them.
        found = {"sustained": pairs.get("profiled", {}), **pairs}
        rates = {
            g: _share(f, "burst")
            for g, f in by_gpu.items()
            if name == "tensor" and "burst" in f.eff
        }
        in_bursts = {
            g: mean_log(s.values()) * reference_peak(GPUS[g], "tensor") for g, s in rates.items()
        }
        ratios[name] = ClockRatios(found, name == "simt", in_bursts)
    return ratios
