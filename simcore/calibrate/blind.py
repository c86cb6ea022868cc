"""The blind profile in words: what each class reaches on each family, and by whose figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from simcore.base.database import read_yaml
from simcore.base.units import PERCENT
from simcore.calibrate.pooling import family_of
from simcore.hardware.profile import load_profile

#: Sections of the file -> what their figures are shares of.
SECTIONS: Final[Mapping[str, str]] = {
    "compute_efficiency": "peak", "memory_efficiency": "bandwidth",
}  # fmt: skip
_ALL: Final = "all others"


def blind_data() -> dict[str, Any]:
    """The profile's sources and, by class, a figure for each family and for all others.

    ``devices`` are those that a family's figure is from; none where a source or an assumption
    tells of the family.
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
    kept = ("value", "sd_log", "source")
    return [
        {"class": cls, "share_of": of, "family": family, "devices": sorted(devices[family]),
         "of_what_power_leaves": "limit_j_per_flop" in leaf, **{k: leaf[k] for k in kept}}
        for family, leaf in (*table.get("by_family", {}).items(), (_ALL, table["pooled"]))
    ]  # fmt: skip


def render_blind(found: Mapping[str, Any]) -> str:
    """The answer of ``simcore show calibration blind``."""
    lines = [
        "blind: what devices reach of their datasheets, where nothing of one's own is measured.",
        "A device takes its own figure, else its family's, else that of all; sd of its logarithm.",
    ]  # fmt: skip
    last, share = "", ""
    for f in found["figures"]:
        if f["share_of"] != share:
            share = f["share_of"]
            head = f"share of {share}"
            lines += ["", f"{head:<22}{'family':<17}{'share':>6}{'sd':>6}  from"]
        whose = ", ".join(f["devices"]) or f["source"]
        whose += ", of what its power leaves" if f["of_what_power_leaves"] else ""
        name = "" if f["class"] == last else f["class"]
        last = f["class"]
        lines.append(
            f"{name:<22}{f['family']:<17}{f['value'] * PERCENT:>4.0f} %{f['sd_log']:>6.2f}  {whose}"
        )
    lines += ["", *(f"{key}: {text}" for key, text in found["sources"].items() if "+" not in key)]
    return "\n".join(lines) + "\n"
