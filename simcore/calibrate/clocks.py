"""What kernels take at the clocks that a device holds for long, over short bursts."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simcore.calibrate.curve_fits import robust_sd
from simcore.calibrate.op_classes import KernelFit
from simcore.calibrate.op_rows import Clock
from simcore.calibrate.op_tables import collection_of
from simcore.calibrate.pooling import family_of, figure, mean_log

#: Spread of the ratio where fewer than two devices show one.
LONE_SD = 0.08


@dataclass(frozen=True)
class ClockRatios:
    """Time ratios over burst clocks: by device where both were measured, and pooled."""

    held: Mapping[str, float]
    derived: Mapping[str, float]

    @property
    def pooled(self) -> float:
        return mean_log(self.held.values()) if self.held else 1.0

    def sustained(self, gpu: str) -> float:
        """Ratio of one device, or of all."""
        return self.held.get(gpu, self.pooled)

    def section(self) -> dict[str, Any]:
        """As the profile writes it: ``sustained`` and ``derived`` over burst."""
        logs = np.log(list(self.held.values()) or [1.0])
        sd = max(robust_sd(logs), LONE_SD)
        found: dict[str, Any] = {
            "sustained_over_burst": {
                "pooled": figure(self.pooled, sd, "sustained-fit", len(self.held),
                                 "time ratio; devices far below their power cap may show none"),
                "by_gpu": {g: figure(r, 0.05, "sustained-fit") for g, r in self.held.items()},
            }
        }  # fmt: skip
        if self.derived:
            found["derived_over_burst"] = {
                "by_gpu": {g: figure(r, 0.05, "simumax") for g, r in self.derived.items()}
            }
        return found


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
    found = {}
    for name, cls in (("tensor", "gemm_tensor16"), ("simt", "gemm_simt32")):
        kept = {g: f for g, f in fits.get(cls, {}).items() if family_of(g) not in without}
        pairs: dict[Clock, dict[str, float]] = {"sustained": {}, "derived": {}}
        for clock, into in pairs.items():
            for gpu, fit in sorted(kept.items()):
                ratio = _ratio(fit, clock)
                if ratio is not None and math.isfinite(ratio):
                    into[gpu] = ratio
        found[name] = ClockRatios(pairs["sustained"], pairs["derived"])
    return found
