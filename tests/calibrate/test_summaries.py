"""Answers in words: the table of the selftest and its verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simcore.calibrate.summaries import render_selftest, render_summary


def answer(**changes: Any) -> dict[str, Any]:
    row = {
        "net": "mlp", "batch": 256, "ranks": 2, "kind": "ddp", "counted": True,
        "predicted_s": 0.050, "low_s": 0.045, "high_s": 0.056, "measured_s": 0.052,
        "disturbed_frac": 0.0, "error_frac": -0.04, "inside": True,
    }  # fmt: skip
    beside = {**row, "kind": "zero1", "counted": False, "inside": False, "disturbed_frac": 0.4}
    missing = {
        k: v for k, v in beside.items() if k not in ("measured_s", "error_frac", "inside")
    } | {"kind": "zero3", "note": "not run: gloo has no such collective"}
    return {
        "conditions": {"date": "2026-11-21", "torch": "2.13.0"}, "rows": [row, beside, missing],
        "holds": True, "median_error_frac": 0.04, "inside": 1, "steps": 1,
        "seconds": {"all": 200.0, "calibrate": 108.0, "predict": 9.0}, "calibration_notes": [],
        **changes,
    }  # fmt: skip


def test_predicted_interval_measured_and_error_stand_side_by_side() -> None:
    text = render_selftest(answer())
    line = next(t for t in text.splitlines() if "ddp" in t)
    shown = ("50.0 ms", "45.0 ms to 56.0 ms", "52.0 ms", "-4 %")
    assert all(text in line for text in shown)
    assert "outside" not in line
    assert "1 of 1 inside their interval: holds" in text


def test_what_others_took_and_what_did_not_run_is_said() -> None:
    lines = render_selftest(answer()).splitlines()
    beside = next(t for t in lines if "zero1" in t)
    assert "outside" in beside and "not counted" in beside and "others 40 %" in beside
    assert "not run: gloo has no such collective" in next(t for t in lines if "zero3" in t)


def test_a_loop_that_does_not_hold_says_so_loudly() -> None:
    assert "DOES NOT HOLD" in render_selftest(answer(holds=False))


def test_records_that_a_command_would_not_find_are_pointed_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {"name": "mine", "origin": "measured", "rows": 3, "cluster": "1x2xmine", "notes": [],
            "cases": {"measured": 3, "kept": 0, "left": 0}, "disturbed_frac": 0.0, "knobs": [],
            "written": [str(tmp_path / "mine.yaml"),
                        str(tmp_path / "hardware_db/gpus/mine.yaml")]}  # fmt: skip
    last = render_summary(made).splitlines()[-1]
    assert last.startswith(f"SIMCORE_DB={tmp_path.resolve()} simcore predict")
    monkeypatch.chdir(tmp_path)
    assert render_summary(made).splitlines()[-1].startswith("simcore predict")
    known = {**made, "written": made["written"][:1]}
    monkeypatch.chdir("/")
    assert render_summary(known).splitlines()[-1].startswith("simcore predict")
