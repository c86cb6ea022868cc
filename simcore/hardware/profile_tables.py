"""Choice of the entry for a device in a table of efficiencies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from simcore.base.units import Dimension, parse_quantity
from simcore.hardware.estimates import Estimate, Level, families_of, kins_of
from simcore.hardware.spec import GpuSpec


def leaf(entry: Mapping[str, Any], dimension: Dimension | None = None) -> Estimate:
    """The figure of a table's entry; a text with a unit is parsed as ``dimension``."""
    value = entry["value"]
    text = dimension is not None and isinstance(value, str)
    number = parse_quantity(value, dimension) if dimension and text else float(value)
    return Estimate(number, float(entry.get("sd_log", 0.0)), str(entry.get("source", "")))


def pick(
    table: Mapping[str, Any], gpu: GpuSpec, dimension: Dimension | None = None
) -> tuple[Mapping[str, Any], Estimate, Level]:
    """The most specific entry for a device, its figure, and which devices it was measured on.

    The order is the device itself, its families, devices with equal matrix units, all devices.
    """

    def estimate(entry: Mapping[str, Any], devices: str) -> Estimate:
        figure = leaf(entry, dimension)
        return replace(figure, source=f"{devices} ({figure.source})")

    places: list[tuple[str, str, str, Level]] = [("by_gpu", gpu.name, gpu.name, "own")]
    places += [("by_family", f, f"family {f}", "family") for f in families_of(gpu)]
    places += [("by_kin", k, f"all with {k}", "pooled") for k in kins_of(gpu)]
    for section, key, devices, level in places:
        if (entry := (table.get(section) or {}).get(key)) is not None:
            return entry, estimate(entry, devices), level
    return table["pooled"], estimate(table["pooled"], "all GPUs"), "pooled"
