"""The result of a calibration, for every kind of measurement that it can be fitted to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from simcore.hardware.calibrations import Calibration, Knob


def fitted(
    record: Calibration, identified: Callable[[Knob], bool], written: Path | None, **more: Any
) -> dict[str, Any]:
    """A calibration as plain data: provenance, every multiplier, whether the rows determine it.

    ``identified``: whether the rows determine a multiplier; ``written``: the file that holds the
    calibration, if any; ``more``: entries that only this kind of measurement has.
    """
    return {
        "name": record.name,
        "origin": record.origin,
        "rows": record.rows,
        "residual_sd_log": record.residual_sd_log,
        "leave_one_out_mape_frac": record.leave_one_out_mape_frac,
        "knobs": [
            {**k.model_dump(exclude_none=True), "identified": identified(k)} for k in record.knobs
        ],
        **more,
        "written": str(written) if written is not None else None,
    }
