"""Writes a calibration as YAML, with each figure on one line and a comment at the top."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from simcore.base.atomic import write_text
from simcore.base.units import MIB, MICRO
from simcore.calibrate.yaml_text import yaml_text
from simcore.hardware.calibrations import Calibration
from simcore.hardware.measured import FittedBytes, FittedTime

HEAD: Final = """\
# The measured figures of one machine, from `simcore calibrate` (docs/calibration.md).
# value: share of the peak in its hardware record, or a time with its unit. sd_log: standard
# deviation of its logarithm. rows: measurements in the fit, over the range `valid`.
# leave_one_out_mape_frac: mean error of rows left out of the fit. knobs: multipliers fitted to
# whole reference steps. residual_sd_log: standard deviation of ln(step time) for a network that
# was left out of the fit.
"""


#: The fields of a calibration in the order of the file.
_FIELDS: Final = ("name", "origin", "rows", "residual_sd_log", "leave_one_out_mape_frac",
                  "conditions", "knobs", "measured")  # fmt: skip


def _plain(value: Any) -> Any:
    """Records as mappings without blank fields; floats in four digits, quantities as text."""
    if isinstance(value, BaseModel):
        found = {k: _plain(v) for k, v in value if v is not None and v != ""}
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
    """Write the record to ``path`` atomically, making its folder if needed. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, head + yaml_text(profile_data(record)))
