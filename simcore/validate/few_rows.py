"""Calibrate on a few rows of each program, predict the others: ``validate --calibrate``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from simcore.base.errors import InvalidConfig
from simcore.base.figures import Z80
from simcore.base.record import dataclass
from simcore.calibrate.steps.fit import StepFit, fit_steps
from simcore.calibrate.steps.model import FitRow
from simcore.hardware.profile import load_profile
from simcore.validate.calibrated import IDENTIFIED_FRAC
from simcore.validate.case import Case
from simcore.validate.judge import contradictions, judge
from simcore.validate.metrics import Scored, score, scores_by
from simcore.validate.programs import NETWORK, Programs, programs_of, random_rows, telling_rows
from simcore.validate.ranking import order_of
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
    cases: dict[str, Case]
    draws: tuple[Draw, ...]
    unjudged: dict[str, str]
    suspects: dict[str, str]

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
            "coverage80_frac": {"mean": float(np.mean(inside)), "median": float(np.median(inside)),
                                "least": float(min(inside)), "most": float(max(inside))},
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
    suspects = {key: why for t in tables for key, why in contradictions(t.cases).items()}
    programs = programs_of(cases, load_profile(), ranks=k != ONE_GPU)
    doubted = {*suspects, *(c.id for c in programs.cases if c.flag)}
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
    by_id = {c.id: c for c in programs.cases}
    return FewRows(k, draws is not None, by_id, made, unjudged, suspects)


def _without_one(programs: Programs, chosen: set[str]) -> dict[str, str]:
    """Rows of several devices without a row of one device with the same model and precision."""

    def kind(row: FitRow) -> tuple[str, str, str]:
        assert row.traits is not None
        return row.traits.program, row.traits.model, row.traits.precision

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


def validated(
    tables: Sequence[Table],
    k: int | Literal["one-gpu"],
    draws: int | None,
    by: Sequence[str],
    jobs: int = 1,
) -> dict[str, Any]:
    """Errors on the rows that are not in the fit, and the blind errors of the same rows.

    Raises InvalidConfig where there is nothing to fit or no row left to predict.
    """
    found = judge_few_rows(tables, k, draws)
    draw = found.draw
    if not draw.chosen:
        raise InvalidConfig(["no timed row can be fitted"])
    if not draw.scored:
        raise InvalidConfig([f"no row is left to judge: all {len(draw.chosen)} are in the fit"])
    judged = {s.id for s in draw.scored}
    scored = [(found.cases[s.id], s) for s in draw.scored]
    kept = [replace(t, cases=tuple(c for c in t.cases if c.id in judged), skipped=())
            for t in tables]  # fmt: skip
    blind = judge(kept, jobs=jobs)
    skipped = Counter(s.reason for t in tables for s in t.skipped)
    skipped.update(found.unjudged.values())
    return {
        "mode": found.how,
        "rows": sum(t.n_rows for t in tables),
        "simulated": len(draw.scored),
        "skipped": dict(skipped),
        "step_time": score(draw.scored).to_dict(),
        "rank_correlation": order_of(scored).to_dict(),
        "without_flagged": {"step_time": score([s for s in draw.scored if not s.flag]).to_dict()},
        "by_parameters": {"step_time": score(draw.by_parameters).to_dict()},
        "groups": {c: _groups(scored, c) for c in by},
        "calibration": {
            "rows_of_fit": list(draw.chosen),
            "widths": draw.fit.widths,
            "draws": found.spread() if draws is not None else None,
            "identified": identified_of(draw.fit),
        },
        "suspects": found.suspects,
        "blind": {**blind.to_dict(by), "per_row": []},
        "per_row": [s.to_dict() for s in draw.scored],
    }


def _groups(scored: Sequence[tuple[Case, Scored]], column: str) -> dict[str, Any]:
    """Scores of the step time by the values of a column of the tables."""
    groups = scores_by(((c.columns.get(column, ""), s) for c, s in scored), ("step_time",))
    return {name: {q: s.to_dict() for q, s in of.items()} for name, of in groups.items()}


def identified_of(fit: StepFit) -> list[dict[str, Any]]:
    """What the rows identify of each program: its multiplier times that of its GPU type.

    ``value`` and spreads of added seconds are in seconds; other spreads are of the logarithm.
    """
    found = []
    for p in fit.parameters:
        kind, _, program = p.name.partition(": ")
        if p.level == "GPU":
            continue
        names = [p.name] if p.seconds or kind == NETWORK else [p.name, f"{kind}: {p.gpu}"]
        prior, sd = fit.together(names)
        values = [fit.values[n] for n in names]
        found.append({
            "parameter": kind,
            "program": program,
            "value": sum(values) if p.seconds else math.prod(values),
            "sd": sd,
            "prior_sd": prior,
            "identified": sd < IDENTIFIED_FRAC * prior,
        })  # fmt: skip
    return found
