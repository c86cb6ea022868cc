"""The interval of a speed-up against published ones: pairs of rows that differ in GPUs alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from simcore.answer.predict import predict
from simcore.answer.scaling import speedup_of
from simcore.hardware.profile import load_profile
from simcore.validate.case import Case
from simcore.validate.judge import request_of
from simcore.validate.table import read_table

TABLES = os.environ.get("SIMCORE_TABLES")


def _same(case: Case) -> tuple[object, ...]:
    """Everything but the number of GPUs."""
    options = ("micro_batch", "precision", "grad_accum", "optimizer")
    columns = ("framework", "source", "framework_version", "host")
    return (
        case.model,
        case.gpus.split("x", 2)[-1],
        *(case.options.get(k) for k in options),
        *(case.columns.get(k, "") for k in columns),
    )


@pytest.mark.skipif(TABLES is None, reason="SIMCORE_TABLES names no folder of measured tables")
def test_eighty_percent_of_published_speedups_lie_inside() -> None:
    profile = load_profile()
    cases = [
        c
        for c in read_table(Path(str(TABLES)) / "steps" / "ddp.csv").cases
        if "step_time_s" in c.measured and "+" not in c.gpus
    ]
    alone: dict[tuple[object, ...], float] = {}
    for case in cases:
        if case.gpus.startswith("1x1x"):
            alone.setdefault(_same(case), case.measured["step_time_s"])
    found = []
    for case in cases:
        single_s = alone.get(_same(case))
        if single_s is None or case.gpus.startswith("1x1x"):
            continue
        p = predict(request_of(case, profile))
        measured = p.n_gpus * single_s / case.measured["step_time_s"]
        interval = speedup_of(p)
        found.append(interval.low <= measured <= interval.high)
    assert len(found) > 200
    assert sum(found) / len(found) >= 0.8
