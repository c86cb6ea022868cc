"""Tables of efficiencies: which entry answers for a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simcore.base.units import Dimension, parse_quantity
from simcore.hardware.estimates import Estimate, Level, families_of, kins_of
from simcore.hardware.spec import GpuSpec


def leaf(entry: Mapping[str, Any], dimension: Dimension | None = None) -> Estimate:
    """The figure of an entry; text with a unit is read as ``dimension``."""
    value = entry["value"]
    text = dimension is not None and isinstance(value, str)
    number = parse_quantity(value, dimension) if dimension and text else float(value)
    return Estimate(number, float(entry.get("sd_log", 0.0)), str(entry.get("source", "")))


def pick(
    table: Mapping[str, Any], gpu: GpuSpec, dimension: Dimension | None = None
) -> tuple[Mapping[str, Any], Estimate, Level]:
    """The entry that answers for a device, its figure, and whose it is."""
    own = (table.get("by_gpu") or {}).get(gpu.name)
    if own is not None:
        found = leaf(own, dimension)
        told = Estimate(found.value, found.sd_log, f"{gpu.name} ({found.source})")
        return own, told, "own"
    for family in families_of(gpu):
        entry = (table.get("by_family") or {}).get(family)
        if entry is not None:
            found = leaf(entry, dimension)
            told = Estimate(found.value, found.sd_log, f"family {family} ({found.source})")
            return entry, told, "family"
    for kin in kins_of(gpu):
        entry = (table.get("by_kin") or {}).get(kin)
        if entry is not None:
            found = leaf(entry, dimension)
            told = Estimate(found.value, found.sd_log, f"all with {kin} ({found.source})")
            return entry, told, "pooled"
    found = leaf(table["pooled"], dimension)
    told = Estimate(found.value, found.sd_log, f"all GPUs ({found.source})")
    return table["pooled"], told, "pooled"
