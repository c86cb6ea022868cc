"""Efficiency of a class of kernels on a device: measured on it, or carried over from others.

A share of the peak that was measured on other devices is rescaled by what power limit and
instruction issue leave of this device's peak, over what they left of theirs. A share of the memory
bandwidth is rescaled for this device's instruction issue rate and for inline ECC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import hypot
from typing import Any, Final, Literal

from simcore.base.units import parse_quantity
from simcore.hardware.estimates import ClassFigures, Estimate, Level, matrix_style, pick, ramp_depth
from simcore.hardware.power import (
    MATRIX_CLASSES,
    POWERED_KIN,
    Unit,
    open_frac,
    sustained_over_burst,
)
from simcore.hardware.spec import GpuSpec

#: Share of the memory bandwidth that a plain streaming kernel reaches (gpu-benches: 0.74 to 0.95).
STREAM_FRAC: Final = 0.85
#: Share of the memory bandwidth assumed for a class that states none.
MEMORY_FRAC: Final = 0.75


def figures_of(tables: Mapping[str, Any], cls: str, gpu: GpuSpec) -> ClassFigures | None:
    """Efficiency of a class of kernels at burst clocks; None where the tables lack the class.

    ``tables``: the sections ``compute_efficiency`` and ``memory_efficiency`` of a profile's file.
    """
    table = tables["compute_efficiency"].get(cls) or tables["memory_efficiency"].get(cls)
    if table is None:
        return None
    entry, share, level = pick(table, gpu)
    share = _at_own_power(table, entry, share, level, cls, gpu)
    share = _at_own_issue(table, share, level, gpu)
    if cls not in tables["compute_efficiency"]:
        share = at_own_ecc(cls, share, level, gpu)
    start, floor, ramp = (entry.get(k) for k in ("start", "floor", "ramp"))
    depth = float(entry.get("depth", 0.0))
    if ramp:
        depth = ramp_depth(parse_quantity(ramp, "seconds"), gpu)
    return ClassFigures(
        share=share,
        level=level,
        memory=float(entry.get("memory", MEMORY_FRAC)),
        start_s=parse_quantity(start, "seconds") if start else 0.0,
        wave_frac=float(entry.get("wave", 0.0)),
        half_depth=depth,
        floor_s=parse_quantity(floor, "seconds") if floor else 0.0,
        row_clocks=_row_clocks(table, entry, level),
        by_shape=not entry.get("rates_only", False),
    )


def _row_clocks(table: Mapping[str, Any], entry: Mapping[str, Any], level: Level) -> float:
    """SM clocks per row: the entry's figure, else that of all devices pooled.

    An entry measured on this very device without a figure per row gets 0: its share of the
    bandwidth already includes what rows cost.
    """
    otherwise = table.get("pooled", {}).get("row", 0.0) if level != "own" else 0.0
    return float(entry.get("row", otherwise))


def _at_own_power(
    table: Mapping[str, Any],
    entry: Mapping[str, Any],
    share: Estimate,
    level: Level,
    cls: str,
    gpu: GpuSpec,
) -> Estimate:
    """Another device's share of the peak, rescaled to this device's power limit and issue rate.

    ``held`` of an entry is the share of their peaks that power and issue left to the devices it was
    measured on. A pooled figure has no ``held``: it stands for a device that nothing limits.
    """
    limit = table.get("pooled", {}).get("limit_j_per_flop")
    if matrix_style(gpu) == POWERED_KIN:  # only register-operand kernels of attention have a limit
        kin = (table.get("by_kin") or {}).get(POWERED_KIN, {})
        limit = limit or kin.get("limit_j_per_flop")
    if not limit or level == "own" or (level == "family" and "held" not in entry):
        return share
    unit: Unit = "simt" if cls.endswith("simt32") else "tensor"
    held = open_frac(gpu, unit, float(limit)) / float(entry.get("held", 1.0))
    return Estimate(share.value * held, share.sd_log, f"{share.source} x {held:.3g} for its power")


def at_own_ecc(kind: str, share: Estimate, level: Level, gpu: GpuSpec) -> Estimate:
    """Another device's share of the bandwidth, rescaled for this device's inline ECC."""
    left = carried_frac(kind, level, gpu)
    if left == 1.0:
        return share
    return Estimate(share.value * left, share.sd_log, f"{share.source} x {left:g} for its ECC")


def _at_own_issue(
    table: Mapping[str, Any], share: Estimate, level: Level, gpu: GpuSpec
) -> Estimate:
    """Share of the bandwidth of kernels with narrow loads, which instruction issue limits too.

    1 / hypot(1 / STREAM_FRAC, memory bandwidth / (bytes per SM and clock · SMs · clock))
    """
    issue = table.get("pooled", {}).get("issue_bytes_per_sm_clock")
    if not issue or level == "own" or not gpu.sm_count or not gpu.boost_clock:
        return share
    issued = float(issue) * gpu.sm_count.value * gpu.boost_clock.value
    value = 1.0 / hypot(1.0 / STREAM_FRAC, gpu.memory_bw.value / issued)
    return Estimate(value, share.sd_log, f"{share.source}, by issue rate")


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


#: Bandwidth with inline ECC over that without (CUDA C++ Best Practices Guide, Theoretical Bandwidth
#: Calculation: "approximately 20%" less on GPUs with GDDR). Measurements agree: with inline ECC
#: fp32 streams reach 0.75 of the bandwidth on P4 and 0.74 on T4 (NeuSight), without it 0.94 on A40
#: (gpu-benches).
INLINE_ECC_FRAC: Final = 0.8
#: The same on Ada, whose L2 of 48 MB and more holds ECC bits too: streams reach 0.78 on L4 with it
#: (NeuSight, dataset/test/elem.csv and vec.csv: median of 528 rows of 200 MB and more) and 0.89 on
#: L40 without (gpu-benches).
ADA_ECC_FRAC: Final = 0.88
#: Kinds of kernel that inline ECC does not slow like a stream: L2 serves much of their operands.
_NOT_STREAMS: Final = ("gemm", "attention")


def ecc_frac(gpu: GpuSpec) -> float:
    """Share of its memory bandwidth that a device keeps with ECC as shipped."""
    if not gpu.inline_ecc:
        return 1.0
    return ADA_ECC_FRAC if gpu.architecture == "Ada" else INLINE_ECC_FRAC


def carried_frac(kind: str, level: str, gpu: GpuSpec) -> float:
    """Factor for a share of the bandwidth that was measured on other devices.

    Figures of families and of all devices hold without inline ECC, so that a device with it keeps
    less. A figure of the device itself (``level`` "own") already includes its ECC.
    """
    return 1.0 if level == "own" or kind in _NOT_STREAMS else ecc_frac(gpu)
