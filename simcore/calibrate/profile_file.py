"""Writes a machine's profile as YAML, with each figure on one line and a comment at the top."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from simcore.base.atomic import write_text
from simcore.base.units import MIB, MICRO
from simcore.calibrate.machine_record import dumped
from simcore.hardware.calibrations import Calibration

HEAD: Final = """\
# The measured figures of one machine, from `simcore calibrate` (docs/calibration.md).
# value: share of the peak in its hardware record, or a time with its unit. sd_log: standard
# deviation of its logarithm. rows: measurements in the fit, over the range `valid`.
# leave_one_out_mape_frac: mean error of rows left out of the fit. knobs: multipliers fitted to
# whole reference steps. residual_sd_log: standard deviation of ln(step time) for a network that
# was left out of the fit.
"""


def _figure(raw: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in raw.items():
        if value is None or value == "" or (key == "rows" and not value):
            continue
        out[key] = float(f"{value:.4g}") if isinstance(value, float) else value
    return out


def _seconds(raw: dict[str, Any]) -> dict[str, Any]:
    return {**_figure(raw), "value": f"{raw['value'] / MICRO:.4g} us"}


def profile_data(record: Calibration) -> dict[str, Any]:
    """The record as plain data, in the order of the file."""
    data: dict[str, Any] = {
        "name": record.name,
        "origin": record.origin,
        "rows": record.rows,
    }
    if record.residual_sd_log is not None:
        data["residual_sd_log"] = float(f"{record.residual_sd_log:.4g}")
    if record.leave_one_out_mape_frac is not None:
        data["leave_one_out_mape_frac"] = float(f"{record.leave_one_out_mape_frac:.4g}")
    data["conditions"] = dict(record.conditions)
    data["knobs"] = [
        {k: v for k, v in _figure(knob.model_dump(exclude_none=True)).items() if v != ""}
        for knob in record.knobs
    ]
    m = record.measured
    if m is None:
        return data
    own: dict[str, Any] = {"gpu": m.gpu}
    for name in ("compute_efficiency", "memory_efficiency"):
        own[name] = {k: _figure(f.model_dump()) for k, f in getattr(m, name).items()}
    for name in ("kernel_start", "host_issue"):
        if (f := getattr(m, name)) is not None:
            own[name] = _seconds(f.model_dump())
    if m.sustained_over_burst is not None:
        own["sustained_over_burst"] = _figure(m.sustained_over_burst.model_dump())
    if m.context is not None:
        raw = m.context.model_dump()
        own["context"] = {**_figure(raw), "value": f"{raw['value'] / MIB:.4g} MiB"}
    if m.contention:
        own["contention"] = [
            {"ranks": c.ranks, "compute": _figure(c.compute.model_dump()),
             "memory": _figure(c.memory.model_dump())}
            for c in m.contention
        ]  # fmt: skip
    if m.link is not None:
        own["link"] = {
            "node": m.link.node, "ranks": m.link.ranks,
            "efficiency": _figure(m.link.efficiency.model_dump()),
            "hop": _seconds(m.link.hop.model_dump()),
        }  # fmt: skip
        if m.link.ramp is not None:
            own["link"]["ramp"] = _figure(m.link.ramp.model_dump())
    if m.overlap is not None:
        own["overlap"] = {
            "compute_slowdown": _figure(m.overlap.compute_slowdown.model_dump()),
            "comm_slowdown": _figure(m.overlap.comm_slowdown.model_dump()),
        }
    data["measured"] = own
    return data


def write_profile(path: Path, record: Calibration) -> None:
    """Write the record to ``path`` atomically, making its folder if needed. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, HEAD + dumped(profile_data(record)))
