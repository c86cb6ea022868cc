"""Tables of efficiencies: which entry answers for a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
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

    def told(entry: Mapping[str, Any], said: str) -> Estimate:
        found = leaf(entry, dimension)
        return replace(found, source=f"{said} ({found.source})")

    places: list[tuple[str, str, str, Level]] = [("by_gpu", gpu.name, gpu.name, "own")]
    places += [("by_family", f, f"family {f}", "family") for f in families_of(gpu)]
    places += [("by_kin", k, f"all with {k}", "pooled") for k in kins_of(gpu)]
    for part, key, said, level in places:
        if (entry := (table.get(part) or {}).get(key)) is not None:
            return entry, told(entry, said), level
    return table["pooled"], told(table["pooled"], "all GPUs"), "pooled"
