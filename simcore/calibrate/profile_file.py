"""Writes a calibration as YAML, with each figure on one line and a comment at the top."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from simcore.base.atomic import write_text
from simcore.base.part import Part
from simcore.base.units import MIB, MICRO
from simcore.calibrate.yaml_text import yaml_text
from simcore.hardware.calibrations import Calibration
from simcore.hardware.measured import FittedBytes, FittedTime

HEAD: Final = """\
# The measured figures of one machine, from `simcore calibrate` (docs/calibration.md).
# ..._over_blind: measured rate over that of the shipped profile (of the start: time over time).
# ..._efficiency: share of the peak in the device's record; others are times with their unit.
# sd_log: standard deviation of the logarithm. rows: measurements in the fit, over the range
# `valid`. leave_one_out_mape_frac: mean error of rows left out of the fit. knobs: multipliers
# fitted to whole steps. checked: steps that the fit had not seen. residual_sd_log: standard
# deviation of ln(step time) for another network; residual_over_blind: the same over the shipped.
"""


#: The fields of a calibration in the order of the file.
_FIELDS: Final = ("name", "origin", "rows", "residual_sd_log", "residual_over_blind",
                  "leave_one_out_mape_frac", "conditions", "notes", "checked", "knobs",
                  "measured")  # fmt: skip


def _plain(value: Any) -> Any:
    """Records as mappings without blank fields; floats in four digits, quantities as text."""
    if isinstance(value, Part):
        found = {k: _plain(v) for k, v in vars(value).items()
                 if v is not None and (k == "knobs" or v not in ("", (), {}))}  # fmt: skip
        if isinstance(value, FittedTime):
            found["value"] = f"{value.value / MICRO:.4g} us"
        if isinstance(value, FittedBytes):
            found["value"] = f"{value.value / MIB:.4g} MiB"
        return found
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def profile_data(record: Calibration) -> dict[str, Any]:
    """The record as plain data, in the order of the file."""
    plain = _plain(record)
    return {name: plain[name] for name in _FIELDS if name in plain}


def write_profile(path: Path, record: Calibration, head: str = HEAD) -> None:
    """Write the record to ``path`` atomically, making its folder if needed. Raises OSError.

    The first line says it if predictions are worse with the calibration than without.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if record.warning:
        head = f"# {record.warning}.\n{head}"
    write_text(path, head + yaml_text(profile_data(record)))
