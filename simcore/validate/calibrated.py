"""Calibrate on the rows of tables, and predict each row with a fit that did not include it.

The fit to a table is written as a calibration file: fitted multipliers with their origin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from simcore.base.errors import InvalidConfig
from simcore.base.record import dataclass
from simcore.base.units import format_seconds
from simcore.calibrate.steps.fit import StepFit, fit_steps, leave_one_out
from simcore.calibrate.steps.model import FitRow
from simcore.calibrate.yaml_text import write_profile
from simcore.hardware.calibrations import Calibration, Knob
from simcore.hardware.profile import Profile, load_profile
from simcore.validate.case import Case
from simcore.validate.fit_rows import hardware_row, parameters_of, requests_of, work_parameters
from simcore.validate.formats.project import ignored_text
from simcore.validate.judge import Verdict, contradictions, judge, measured_time_s
from simcore.validate.table import Table

#: A row measured this many times slower or faster than its blind prediction is reported as
#: doubtful; beyond the second factor it is taken for a wrong unit or another job and is not fitted.
_DOUBTED_FACTOR, _WRONG_FACTOR = 3.0, 10.0


@dataclass(frozen=True)
class Calibrated:
    """The fit on all rows, and the verdict with each row left out of its own fit."""

    fit: StepFit
    verdict: Verdict
    suspects: dict[str, str]
    profiles: dict[str, Profile]

    def profile_for(self, case: Case) -> Profile:
        """The profile fitted to all rows of the case's table."""
        return self.profiles.get(case.table) or load_profile()


def calibrate_and_judge(tables: Sequence[Table], jobs: int = 1) -> Calibrated:
    """Fit each table, then predict each row with the fit to the table's other configurations."""
    blind = load_profile()
    fits: list[StepFit] = []
    profiles: dict[str, Profile] = {}
    fitted: dict[str, Profile] = {}
    works: dict[str, float] = {}
    suspects: dict[str, str] = {}
    for table in tables:
        contrary = contradictions(table.cases)
        suspects |= contrary
        cases = [c for c in table.cases if measured_time_s(c) is not None]
        requests = requests_of(cases, blind)
        kept = [c for c in cases if c.id in requests]
        if not kept:
            continue
        parameters = [*parameters_of(requests), *work_parameters(kept)]
        rows = [hardware_row(c, requests[c.id], parameters) for c in kept]
        far = far_off(rows)
        suspects |= {key: why for key, (_, why) in far.items()}  # the more useful of two reasons
        # A row that contradicts others is not fitted; it is still predicted and reported.
        wrong = {key for key, (factor, _) in far.items() if factor > _WRONG_FACTOR}
        doubted = {c.id for c in kept if c.flag} | wrong | set(contrary)
        sound = [r for r in rows if r.key not in doubted]
        whole = fit_steps(sound, parameters)
        fits.append(whole)
        fitted[kept[0].table] = blind.with_knobs(
            whole.knobs(),
            f"fit of {table.path.stem}",
            f"calibrated on {len(sound)} rows of {table.path.name}",
            whole.residual_sd_log,
        )
        left_out = leave_one_out(rows, parameters, never={r.key for r in rows} & doubted)
        for case in kept:
            _, fit = left_out[case.id]
            origin = (
                f"calibrated on {len(fit.predicted_s)} other rows of {table.path.name}, "
                f"residual {fit.residual_sd_log:.0%}"
            )
            profiles[case.id] = blind.with_knobs(
                fit.knobs(), "leave-one-out fit", origin, fit.residual_sd_log
            )
            if f"work:{case.model}" in fit.values:
                works[case.id] = fit.values[f"work:{case.model}"]
    verdict = judge(
        tables,
        mode="calibrated, leave-one-out",
        profile_for=lambda c: profiles.get(c.id, blind),
        work_for=lambda c: works.get(c.id),
        jobs=jobs,
    )
    return Calibrated(_merge(fits), verdict, suspects, fitted)


def far_off(rows: Sequence[FitRow]) -> dict[str, tuple[float, str]]:
    """For rows many times slower or faster than their blind prediction, (factor, explanation)."""
    found = {}
    for row in rows:
        blind = math.exp(float(row.log_s(np.zeros((row.n_axes, 1)))[0]))
        factor = max(row.measured_s / blind, blind / row.measured_s)
        free = any(p.startswith("work:") for p in row.uses)
        if factor > _DOUBTED_FACTOR and not free:
            way = "slower" if row.measured_s > blind else "faster"
            then = "not fitted" if factor > _WRONG_FACTOR else "fitted all the same"
            text = (
                f"{format_seconds(row.measured_s)}, {factor:.3g} times {way} than the "
                f"{format_seconds(blind)} predicted: is it in seconds, and are batch, "
                f"precision and strategy this run's? ({then})"
            )
            found[row.key] = factor, text
    return found


def _merge(fits: Sequence[StepFit]) -> StepFit:
    if not fits:
        return fit_steps([], [])
    merged = fits[0]
    for fit in fits[1:]:
        merged = replace(
            merged,
            parameters=(*merged.parameters, *fit.parameters),
            values={**fit.values, **merged.values},
            sd_log={**fit.sd_log, **merged.sd_log},
            predicted_s={**merged.predicted_s, **fit.predicted_s},
            residual_sd_log=max(merged.residual_sd_log, fit.residual_sd_log),
        )
    return merged


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
