"""What ops take at the clocks of long runs, of a profiler or of derived tables, over bursts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from simcore.hardware.estimates import Estimate
from simcore.hardware.power import MATRIX_CLASSES, sustained_over_burst
from simcore.hardware.profile_tables import pick
from simcore.hardware.spec import GpuSpec

#: burst: milliseconds on a cool device; sustained: loops of seconds and sweeps of hours, at the
#: clocks that heat leaves; profiled: kernel times that a profiler took in an eager loop; derived:
#: efficiencies that a simulator of training was given.
Clock = Literal["burst", "sustained", "profiled", "derived"]


def clock_ratio(tables: Mapping[str, Any], cls: str, clock: Clock, gpu: GpuSpec) -> Estimate:
    """Time over that at burst clocks; ``tables`` of an efficiency profile.

    Sustained clocks of products are those of the device's own loops of seconds, those that its
    vendor rates machines of it at, those of kernels profiled at length, else what its power
    tells. Derived times are of loops as well: of attention, and of products of a device that has no
    burst to compare them with, they count as sustained.
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
    """Boost over the clock that the vendor says is held at the power limit for hours."""
    if gpu.sustained_clock is None or gpu.boost_clock is None:
        return None
    spread = pick(tables["clocks"]["tensor_sustained_over_burst"], gpu)[1]
    ratio = gpu.boost_clock.value / gpu.sustained_clock.value
    return replace(spread, value=ratio, source=f"rated clock ({gpu.sustained_clock.source})")


def _by_power(tables: Mapping[str, Any], gpu: GpuSpec) -> Estimate | None:
    """Sustained time over that of bursts on a device that was not timed both ways."""
    products = tables["compute_efficiency"].get("gemm_tensor16", {})
    limit = products.get("pooled", {}).get("limit_j_per_flop")
    ratio = sustained_over_burst(gpu, float(limit)) if limit else None
    spread = pick(tables["clocks"]["tensor_sustained_over_burst"], gpu)[1]
    return None if ratio is None else replace(spread, value=ratio, source="by its power")
