"""Regret of the layout ranked first, by hand."""

from __future__ import annotations

import pytest

from validate.plan_families import CHOSEN, SAME, families, good


def test_regret_is_of_the_layout_ranked_first() -> None:
    def row(i: int, model: str) -> dict[str, str]:
        return {"id": f"{model}{i}", **dict.fromkeys(SAME, "x"), **dict.fromkeys(CHOSEN, "1"),
                "model": model, "tp": str(i)}  # fmt: skip

    rows = [row(i, m) for m in ("a", "b") for i in range(5)] + [row(i, "few") for i in range(4)]
    predicted = {"a": [3, 1, 2, 4, 5], "b": [5, 4, 3, 2, 1]}
    measured = {"a": [2.0, 2.2, 9, 9, 9], "b": [9, 9, 9, 9, 3.0]}
    judged = [
        {"id": f"{m}{i}", "quantity": "step_time", "predicted": float(predicted[m][i]),
         "measured": float(measured[m][i])}
        for m in ("a", "b") for i in range(5)
    ]  # fmt: skip
    judged += [{"id": "a0", "quantity": "peak_memory", "predicted": 0.0, "measured": 1.0}]
    found = families(rows, judged)
    assert [(f["model"], f["chosen"]["tp"], f["best"]["tp"]) for f in found] == [
        ("a", "1", "0"), ("b", "4", "4"),
    ]  # fmt: skip
    assert found[0]["regret_frac"] == pytest.approx(0.1)
    assert found[1]["regret_frac"] == 0.0
    assert [good(found, regret_frac) for regret_frac in (0.0, 0.01, 0.11)] == [1, 1, 2]
