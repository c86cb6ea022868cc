"""The JSON contract of ``simcore validate --calibrate K``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from simcore.base.errors import InvalidConfig
from simcore.calibrate.step_fit import StepFit
from simcore.validate.few_rows import judge_few_rows, scores_by
from simcore.validate.judge import contradictions, judge
from simcore.validate.metrics import score
from simcore.validate.programs import NETWORK
from simcore.validate.ranking import order_of
from simcore.validate.table import Table

#: A parameter counts as identified if its spread is below this share of its prior's.
IDENTIFIED_FRAC = 0.9


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
    case_of = {c.id: c for c in found.programs.cases}
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
        "rank_correlation": order_of((case_of[s.id], s) for s in draw.scored).to_dict(),
        "without_flagged": {"step_time": score([s for s in draw.scored if not s.flag]).to_dict()},
        "by_parameters": {"step_time": score(draw.by_parameters).to_dict()},
        "groups": {c: scores_by(found.programs, draw.scored, c) for c in by},
        "calibration": {
            "rows_of_fit": list(draw.chosen),
            "widths": draw.fit.widths,
            "draws": found.spread() if draws is not None else None,
            "identified": identified_of(draw.fit),
        },
        "suspects": {key: why for t in tables for key, why in contradictions(t.cases).items()},
        "blind": {**blind.to_dict(by), "per_row": []},
        "per_row": [s.to_dict() for s in draw.scored],
    }


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
