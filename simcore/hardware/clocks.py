"""Time of ops at the clocks of long runs, profiles or derived tables, over that of short bursts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from simcore.hardware.estimates import Estimate
from simcore.hardware.power import MATRIX_CLASSES, sustained_over_burst
from simcore.hardware.profile_tables import pick
from simcore.hardware.spec import GpuSpec

#: How an op was timed. burst: milliseconds on a cool device; sustained: loops of seconds and sweeps
#: of hours, at the clock that a hot device keeps; profiled: kernel times recorded by a profiler
#: in an eager loop; derived: computed from the efficiencies in another training simulator's tables.
Clock = Literal["burst", "sustained", "profiled", "derived"]


def clock_ratio(tables: Mapping[str, Any], cls: str, clock: Clock, gpu: GpuSpec) -> Estimate:
    """Time of a class of kernels at ``clock``, over its time at burst clocks.

    ``tables``: sections of an efficiency profile. The sustained ratio of matrix products comes from
    the first of these that is known: loops of seconds timed on this device, the clock at which its
    vendor rates machines built of it, kernels profiled over a long time, its power limit. Derived
    times also stem from loops: they count as sustained for attention, and for products of a device
    without burst times to compare them with.
    """
    clocks = tables["clocks"]
    unit = "simt" if cls.endswith("32") else "tensor"

    def timed_both_ways(as_what: Clock) -> bool:
        return gpu.name in (clocks.get(f"{unit}_{as_what}_over_burst", {}).get("by_gpu") or {})

    paired = cls in MATRIX_CLASSES and timed_both_ways(clock)
    if clock == "burst":
        return Estimate(1.0, 0.0, "burst clocks")
    if (clock == "derived" and not paired) or f"{unit}_{clock}_over_burst" not in clocks:
        clock = "sustained"
    if clock == "sustained" and unit == "tensor" and not timed_both_ways(clock):
        if (rated := _rated(tables, gpu)) is not None:
            return rated
        if timed_both_ways("profiled"):
            clock = "profiled"
        elif (by_power := _by_power(tables, gpu)) is not None:
            return by_power
    return pick(clocks[f"{unit}_{clock}_over_burst"], gpu)[1]


def _rated(tables: Mapping[str, Any], gpu: GpuSpec) -> Estimate | None:
    """Boost clock over the clock that the vendor states for hours at the power limit, or None."""
    if gpu.sustained_clock is None or gpu.boost_clock is None:
        return None
    spread = pick(tables["clocks"]["tensor_sustained_over_burst"], gpu)[1]
    ratio = gpu.boost_clock.value / gpu.sustained_clock.value
    return replace(spread, value=ratio, source=f"rated clock ({gpu.sustained_clock.source})")


def _by_power(tables: Mapping[str, Any], gpu: GpuSpec) -> Estimate | None:
    """Sustained over burst time from the power limit; None where the device's power is unknown."""
    products = tables["compute_efficiency"].get("gemm_tensor16", {})
    limit = products.get("pooled", {}).get("limit_j_per_flop")
    ratio = sustained_over_burst(gpu, float(limit)) if limit else None
    spread = pick(tables["clocks"]["tensor_sustained_over_burst"], gpu)[1]
    return None if ratio is None else replace(spread, value=ratio, source="by its power")
