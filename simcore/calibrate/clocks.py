"""What kernels take at the clocks that a device holds for long, over short bursts."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simcore.calibrate.curve_fits import robust_sd
from simcore.calibrate.op_classes import KernelFit
from simcore.calibrate.op_tables import collection_of
from simcore.calibrate.pooling import family_of, figure, mean_log
from simcore.hardware.clocks import Clock

#: Spread of the ratio where fewer than two devices show one.
LONE_SD = 0.08


@dataclass(frozen=True)
class ClockRatios:
    """Time over that of bursts, by way of timing and device; pooled where both were measured."""

    ratios: Mapping[Clock, Mapping[str, float]]

    def of(self, clock: Clock, gpu: str) -> float:
        """Ratio of one device, or of all; without any, what devices hold for long."""
        found = self.ratios.get(clock) or self.ratios.get("sustained") or {}
        return found.get(gpu, float(np.median(list(found.values()))) if found else 1.0)

    def section(self) -> dict[str, Any]:
        """As the profile writes it: each way of timing over burst."""
        out: dict[str, Any] = {}
        for clock, found in self.ratios.items():
            logs = np.log(list(found.values()) or [1.0])
            source = "simumax" if clock == "derived" else "sustained-fit"
            pooled = figure(float(np.exp(np.median(logs))), max(robust_sd(logs), LONE_SD), source,
                            len(found))  # fmt: skip
            out[f"{clock}_over_burst"] = {"pooled": pooled} | (
                {"by_gpu": {g: figure(r, 0.05, source) for g, r in found.items()}} if found else {}
            )
        return out


def _share(fit: KernelFit, clock: Clock, op: str | None = None) -> dict[str, float]:
    """Collection -> share of the peak at one clock."""
    found: dict[str, list[float]] = {}
    for name, value in fit.eff.get(clock, {}).items():
        if op is None or name.endswith(f" {op}"):
            found.setdefault(collection_of(name), []).append(value)
    return {c: mean_log(v) for c, v in found.items()}


def _ratio(fit: KernelFit, clock: Clock) -> float | None:
    """Burst over ``clock``, within one collection where it has both, of ops that both have."""
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
    """Ratios of products on matrix units (``tensor``) and on vector units (``simt``)."""
    found: dict[str, ClockRatios] = {}
    clock: Clock
    for name, cls in (("tensor", "gemm_tensor16"), ("simt", "gemm_simt32")):
        kept = {g: f for g, f in fits.get(cls, {}).items() if family_of(g) not in without}
        pairs: dict[Clock, dict[str, float]] = {}
        for clock in ("sustained", "profiled", "derived"):
            for gpu, fit in sorted(kept.items()):
                ratio = _ratio(fit, clock)
                if ratio is not None and math.isfinite(ratio):
                    pairs.setdefault(clock, {})[gpu] = ratio
        # Long eager loops under a profiler heat a device as well: told of where nothing else is.
        found[name] = ClockRatios({"sustained": pairs.get("profiled", {}), **pairs})
    return found
