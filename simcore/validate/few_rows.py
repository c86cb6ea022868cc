"""Calibrate on a few rows of each program, predict the others: ``validate --calibrate``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simcore.base.interval import Z80
from simcore.calibrate.step_fit import StepFit, fit_steps
from simcore.hardware.profile import load_profile
from simcore.validate.choose import by_program, random_rows, telling_rows
from simcore.validate.judge import contradictions
from simcore.validate.metrics import Score, Scored, score
from simcore.validate.programs import Programs, programs_of
from simcore.validate.table import Table

#: Seed of the first draw; each further draw uses the next number.
SEED = 20251121
ONE_GPU: Literal["one-gpu"] = "one-gpu"
#: Scatter (ln) of one measurement on one device: 0.2 to 5 % on 39 equal hosts (notes on the
#: corpus). For rows with a model of their own it cannot be told apart from the error of the work.
TIMING_SD_LOG = 0.03


@dataclass(frozen=True)
class Draw:
    """One choice of rows, its fit, and the errors on the other rows.

    ``scored``: predicted with multipliers, added seconds and shared errors; ``by_parameters``:
    without shared errors. ``chosen``: rows of the fit.
    """

    chosen: tuple[str, ...]
    fit: StepFit
    scored: tuple[Scored, ...]
    by_parameters: tuple[Scored, ...]

    @property
    def mape_frac(self) -> float:
        """Mean absolute error of the rows that are not in the fit."""
        return score(self.scored).mape_frac or math.nan


@dataclass(frozen=True)
class FewRows:
    """All draws of a calibration; ``draw`` is the one with the median error."""

    k: int | Literal["one-gpu"]
    by_lot: bool
    programs: Programs
    draws: tuple[Draw, ...]
    unjudged: dict[str, str]

    @property
    def draw(self) -> Draw:
        """The draw with the median error (the better of the middle two for an even number)."""
        ranked = sorted(self.draws, key=lambda d: d.mape_frac)
        return ranked[(len(ranked) - 1) // 2]

    @property
    def how(self) -> str:
        """How the rows of the fit were chosen, as a sentence."""
        n = len(self.draw.chosen)
        if self.k == ONE_GPU:
            return f"calibrated on the {n} rows of one GPU, judged on those of several"
        chosen = "at random" if self.by_lot else "by expected information, not by measured times"
        return (
            f"calibrated on {n} rows, {self.k} a source and GPU where there are more, chosen "
            f"{chosen}; judged on the rest"
        )

    def spread(self) -> dict[str, object]:
        """Distribution of the errors over the draws."""
        errors = np.array([d.mape_frac for d in self.draws])
        inside = [score(d.scored).coverage80_frac or math.nan for d in self.draws]
        low, middle, high = np.quantile(errors, (0.1, 0.5, 0.9))
        return {
            "n": len(self.draws),
            "seed": SEED,
            "mape_frac": {"median": float(middle), "p10": float(low), "p90": float(high)},
            "coverage80_frac": {"median": float(np.median(inside)), "least": float(min(inside)),
                                "most": float(max(inside))},
            "mape_frac_of_each": [float(e) for e in errors],
        }  # fmt: skip


def judge_few_rows(
    tables: Sequence[Table], k: int | Literal["one-gpu"], draws: int | None = None
) -> FewRows:
    """Fit a few rows of each program, and predict the others.

    ``k``: rows a program, or ``one-gpu`` for all rows of one device. ``draws``: number of random
    choices; None for the single choice with the most expected information.
    """
    cases = [c for t in tables for c in t.cases]
    suspects = {key for t in tables for key in contradictions(t.cases)}
    programs = programs_of(cases, load_profile(), ranks=k != ONE_GPU)
    doubted = suspects | {c.id for c in programs.cases if c.flag}
    unjudged: dict[str, str] = {}
    if k == ONE_GPU:
        choices = [{key for key, n in programs.devices.items() if n == 1} - doubted]
        unjudged = _without_one(programs, choices[0])
    elif draws is None:
        choices = [telling_rows(programs, k, doubted)]
    else:
        choices = [random_rows(programs, k, SEED + i, doubted) for i in range(draws)]
    flags = {c.id: c.flag for c in programs.cases}
    scatter = TIMING_SD_LOG if k == ONE_GPU else None
    made = tuple(_draw(programs, c, flags, set(unjudged), scatter) for c in choices)
    return FewRows(k, draws is not None, programs, made, unjudged)


def _without_one(programs: Programs, chosen: set[str]) -> dict[str, str]:
    """Rows of several devices without a row of one device with the same model and precision."""

    def kind(row: object) -> object:
        traits = row.traits  # type: ignore[attr-defined]
        return traits.program, traits.model, traits.precision

    known = {kind(r) for r in programs.rows if r.key in chosen}
    why = "no row of one GPU of its source, model and precision"
    return {r.key: why for r in programs.rows if kind(r) not in known}


def _draw(
    programs: Programs,
    chosen: set[str],
    flags: dict[str, str],
    unjudged: set[str],
    row_sd_log: float | None,
) -> Draw:
    rows = [r for r in programs.rows if r.key in chosen]
    fit = fit_steps(rows, programs.of_rows(rows), learn=True, row_sd_log=row_sd_log)
    scored: list[Scored] = []
    by_parameters: list[Scored] = []
    for row in programs.rows:
        if row.key in chosen or row.key in unjudged:
            continue
        predicted = fit.predict(row)
        for found, log_s, sd_log in (
            (scored, predicted.log_s, predicted.sd_log),
            (by_parameters, predicted.by_parameters_log_s, predicted.by_parameters_sd_log),
        ):
            value, spread = math.exp(log_s), math.exp(Z80 * sd_log)
            found.append(
                Scored(id=row.key, quantity="step_time", predicted=value, low=value / spread,
                       high=value * spread, measured=row.measured_s, flag=flags[row.key])
            )  # fmt: skip
    return Draw(tuple(sorted(chosen)), fit, tuple(scored), tuple(by_parameters))


def scores_by(
    programs: Programs, scored: Sequence[Scored], column: str
) -> dict[str, dict[str, dict[str, float | int | None]]]:
    """Scores of the step time by the values of a column of the tables."""
    value = {c.id: c.columns.get(column, "") for c in programs.cases}
    found: dict[str, list[Scored]] = {}
    for s in scored:
        found.setdefault(value[s.id] or "(blank)", []).append(s)
    return {name: {"step_time": score(rows).to_dict()} for name, rows in found.items()}


__all__ = ("ONE_GPU", "Draw", "FewRows", "Score", "by_program", "judge_few_rows", "scores_by")
