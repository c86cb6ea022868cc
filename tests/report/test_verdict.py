"""The verdict of ``simcore validate`` as text."""

from __future__ import annotations

import re
from typing import Any

from simcore.report.verdict import render_verdict

SCORE = {"n": 2, "mape_frac": 0.15, "median_abs_frac": 0.15, "median_bias_frac": -0.05,
         "p90_abs_frac": 0.2, "coverage80_frac": 0.5}  # fmt: skip
NONE = {"n": 0, "mape_frac": None, "median_abs_frac": None, "median_bias_frac": None,
        "p90_abs_frac": None, "coverage80_frac": None}  # fmt: skip


def _row(name: str, quantity: str, predicted: float, measured: float) -> dict[str, Any]:
    return {"id": name, "quantity": quantity, "predicted": predicted, "low": 0.9 * predicted,
            "high": 1.1 * predicted, "measured": measured, "flag": "",
            "error_frac": predicted / measured - 1}  # fmt: skip


RESULT: dict[str, Any] = {
    "mode": "blind", "rows": 4, "simulated": 3, "skipped": {"no such GPU": 1},
    "step_time": SCORE, "speedup": NONE, "peak_memory": SCORE,
    "groups": {"gpu": {"T4": {"step_time": SCORE}}},
    "per_row": [_row("a", "step_time", 0.5, 0.4), _row("b", "step_time", 1.9, 2.0),
                _row("b", "peak_memory", 19.3e9, 18.9e9)],
    "suspects": {"b": "slower than a on the same GPUs"},
}  # fmt: skip


def test_scores_rows_and_flags() -> None:
    text = " ".join(render_verdict(RESULT).split())
    assert text.startswith("4 rows, 3 predicted (blind) skipped 1: no such GPU")
    assert "all step time 2 15 % 15 % -5.0 % 20 % 50 %" in text
    assert "all speedup" not in text
    assert "gpu T4 step time 2 15 %" in text
    assert "a step time 500 ms 450 ms 550 ms 400 ms +25 %" in text
    assert "b peak memory 19.30 GB" in text and "18.90 GB +2.1 % flagged" in text
    assert "flagged b: slower than a" in text


def test_worst_rows_come_first_and_alone() -> None:
    text = render_verdict(RESULT, worst=1)
    assert re.search(r"^a +step time", text, re.MULTILINE)
    assert not re.search(r"^b +", text, re.MULTILINE)


def test_filled_cells_and_the_fit() -> None:
    filled = {"id": "a/zero1", "gpus": "8xT4", "strategy": "zero1", "micro_batch": 4,
              "step_time_s": {"value": 0.4, "low": 0.3, "high": 0.5}, "samples_per_s": 80.0,
              "memory_device_bytes": 20e9, "fits": False}  # fmt: skip
    fit = {"parameter": "compute of T4", "value": 1.25, "sd_log": 0.1}
    text = " ".join(render_verdict({**RESULT, "filled": [filled], "fit": [fit]}).split())
    assert "a/zero1 8xT4 zero1 4 400 ms 300 ms to 500 ms 80.0 20.0 GB NO" in text
    assert "compute of T4 1.25 0.1" in text


def test_order_of_rows_and_of_configurations_with_what_an_exact_prediction_reaches() -> None:
    of = {"families": 1, "rows": 9, "weighted_mean": 0.7, "median": 0.75, "per_family": []}
    joined = {**of, "rows": 6, "weighted_mean": 0.81, "median": 0.82}
    exact = {"rows": 5, "scatter_sd_log": 0.05, "weighted_mean": 0.93, "median": 0.94}
    ranks = {**of, "configurations": joined, "repeatable": exact}
    text = " ".join(render_verdict({**RESULT, "rank_correlation": ranks}).split())
    assert "within 1 families (one model and cluster, 9 rows): mean 0.70, median 0.75" in text
    assert "repeats joined (6 configurations): mean 0.81, median 0.82" in text
    assert "an exact prediction would reach 0.93, 0.94" in text
    alone = render_verdict({**RESULT, "rank_correlation": {**ranks, "repeatable": None}})
    assert "0.75" in alone and "repeats" not in alone
