"""Efficiency of a class of kernels on a device: measured on it, or carried over from others.

A share of the peak that was measured on other devices is rescaled by what power limit and
instruction issue leave of this device's peak, over what they left of theirs. A share of the memory
bandwidth is rescaled for this device's instruction issue rate and for inline ECC.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import hypot
from typing import Any, Final

from simcore.base.units import parse_quantity
from simcore.hardware.ecc import carried_frac
from simcore.hardware.estimates import ClassFigures, Estimate, Level, matrix_style, ramp_depth
from simcore.hardware.power import POWERED_KIN, Unit, open_frac
from simcore.hardware.profile_tables import pick
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
