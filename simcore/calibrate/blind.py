"""The blind profile as data and text: the efficiency of each class of op on each GPU family."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from simcore.base.database import read_yaml
from simcore.base.units import PERCENT
from simcore.calibrate.pooling import family_of
from simcore.hardware.profile import load_profile

#: Section of the profile's file -> the datasheet figure that its values are shares of.
SECTIONS: Final[Mapping[str, str]] = {
    "compute_efficiency": "peak", "memory_efficiency": "bandwidth",
}  # fmt: skip
_ALL: Final = "all others"


def blind_data() -> dict[str, Any]:
    """The profile's sources and, by class, a figure for each family and for all others.

    ``devices`` are the GPUs that a family's figure was measured on; empty if the figure is an
    assumption or comes from a source that names no device.
    """
    data = read_yaml(load_profile("blind").efficiency_file)
    figures = [
        figure
        for section, of in SECTIONS.items()
        for cls, table in data[section].items()
        for figure in _figures(cls, of, table)
    ]
    return {"name": "blind", "sources": data["sources"], "figures": figures}


def _figures(cls: str, of: str, table: Mapping[str, Any]) -> list[dict[str, Any]]:
    devices: dict[str, list[str]] = defaultdict(list)
    for gpu in table.get("by_gpu", {}):
        devices[family_of(gpu)].append(gpu)
    copied = ("value", "sd_log", "source")
    return [
        {"class": cls, "share_of": of, "family": family, "devices": sorted(devices[family]),
         "of_what_power_leaves": "limit_j_per_flop" in leaf, **{k: leaf[k] for k in copied}}
        for family, leaf in (*table.get("by_family", {}).items(), (_ALL, table["pooled"]))
    ]  # fmt: skip


def render_blind(found: Mapping[str, Any]) -> str:
    """The output of ``simcore show calibration blind`` from :func:`blind_data`."""
    lines = [
        "blind: shares of their datasheets that devices reach, without measurements of your own.",
        "A device takes its own figure, else its family's, else that of all; sd of its logarithm.",
    ]  # fmt: skip
    last, share = "", ""
    for f in found["figures"]:
        if f["share_of"] != share:
            share = f["share_of"]
            head = f"share of {share}"
            lines += ["", f"{head:<22}{'family':<17}{'share':>6}{'sd':>6}  from"]
        origin = ", ".join(f["devices"]) or f["source"]
        origin += ", of the peak at its power limit" if f["of_what_power_leaves"] else ""
        name = "" if f["class"] == last else f["class"]
        last = f["class"]
        lines.append(
            f"{name:<22}{f['family']:<17}{f['value'] * PERCENT:>4.0f} %{f['sd_log']:>6.2f}  "
            f"{origin}"
        )
    lines += ["", *(f"{key}: {text}" for key, text in found["sources"].items() if "+" not in key)]
    return "\n".join(lines) + "\n"
