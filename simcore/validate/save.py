"""A calibration file from measured steps: fitted multipliers with their origin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simcore.base.errors import InvalidConfig
from simcore.calibrate.yaml_text import write_profile
from simcore.hardware.calibrations import Calibration, Knob
from simcore.validate.calibrated import Calibrated, calibrate_and_judge
from simcore.validate.formats.project import ignored_text
from simcore.validate.table import Table

HEAD = """\
# Multipliers on the blind profile, fitted to measured steps (`simcore calibrate`).
# sd_log: standard deviation of the logarithm; near prior_sd_log the rows said nothing.
"""
#: A multiplier counts as identified if its spread is below this share of its prior's.
IDENTIFIED_FRAC = 0.9


def calibration_of(tables: Sequence[Table], name: str) -> tuple[Calibration, Calibrated]:
    """Fit the rows of a table. Raises InvalidConfig where no row can be fitted.

    One file holds one fit, so that there must be exactly one table.
    """
    if len(tables) != 1:
        raise InvalidConfig(["a calibration is fitted to one table: join the files first"])
    found = calibrate_and_judge(tables)
    n_rows = len(found.fit.predicted_s)
    if not n_rows:
        why = {reason for _, reason in found.verdict.skipped}
        why |= {f"{key}: {told}" for key, told in found.suspects.items()}
        columns = dict.fromkeys(name for c in tables[0].cases for name in c.columns)
        unread = ignored_text(columns) or f"columns: {', '.join(columns)}"
        untimed = f"none has a step_time_s, samples_per_s or tokens_per_s ({unread})"
        reasons = "; ".join(sorted(why)) or untimed
        raise InvalidConfig([f"no row of {tables[0].path.name} can be fitted: {reasons}"])
    score = found.verdict.score("step_time", flagged=False)
    knobs = []
    for p in found.fit.parameters:
        knob = p.as_knob(found.fit.values[p.name], found.fit.sd_log[p.name])
        if knob is None:
            continue
        knob = knob.model_copy(update={"prior_sd_log": p.prior_sd_log})
        # a network that neither options nor rows state keeps the preset's rate, as when blind
        if not p.prior_mean_log or identified(knob):
            knobs.append(knob)
    noun = "row" if n_rows == 1 else "rows"
    record = Calibration(
        name=name,
        origin=f"calibrated on {n_rows} measured {noun} of {tables[0].path.name}",
        rows=n_rows,
        residual_sd_log=found.fit.residual_sd_log,
        leave_one_out_mape_frac=score.mape_frac,
        knobs=tuple(knobs),
    )
    return record, found


def identified(knob: Knob) -> bool:
    """Whether the rows narrowed this multiplier down."""
    return knob.prior_sd_log is not None and knob.sd_log < IDENTIFIED_FRAC * knob.prior_sd_log


def write_calibration(path: Path, record: Calibration) -> None:
    """Write the file atomically: a reader sees the old file or the new one."""
    write_profile(path, record, HEAD)
