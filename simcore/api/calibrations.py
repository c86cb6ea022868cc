"""What a fit to measurements answers, whatever it was fitted to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from simcore.hardware.calibrations import Calibration, Knob


def fitted(
    record: Calibration, told: Callable[[Knob], bool], written: Path | None, **more: Any
) -> dict[str, Any]:
    """A calibration with its provenance, every multiplier and whether the rows told it.

    ``told`` says so of one; ``more`` is what only this kind of measurement has.
    """
    return {
        "name": record.name,
        "origin": record.origin,
        "rows": record.rows,
        "residual_sd_log": record.residual_sd_log,
        "leave_one_out_mape_frac": record.leave_one_out_mape_frac,
        "knobs": [{**k.model_dump(exclude_none=True), "identified": told(k)} for k in record.knobs],
        **more,
        "written": str(written) if written is not None else None,
    }
