"""Verdicts: what is compared, what never leaks, what the seed tables must reach."""

import os
from pathlib import Path

import pytest

from simcore import api
from simcore.answer.predict import predict
from simcore.answer.request import tables_folder
from simcore.base.errors import DataError, InvalidConfig
from simcore.validate import judge as judging
from simcore.validate.calibrated import calibrate_and_judge
from simcore.validate.judge import contradictions, judge
from simcore.validate.table import read_table

LATTE = tables_folder() / "latte.csv"
QUANTITIES = ("step_time", "speedup", "peak_memory")
SHARED = Path(os.environ.get("SIMCORE_TABLES", "")) if os.environ.get("SIMCORE_TABLES") else None


def test_blind_predictions_never_see_measurements(tmp_path: Path) -> None:
    head = "id,model,gpus,strategy,micro_batch,step_time_s,peak_memory_gb\n"
    rows = [("a", "1x1xA6000ada", 0.3, 19.0), ("b", "1x8xA6000ada", 0.4, 19.0)]
    predicted = []
    for factor in (1.0, 7.0):
        path = tmp_path / f"t{factor}.csv"
        lines = [f"{i},latte-l,{g},ddp,1,{s * factor},{m * factor}\n" for i, g, s, m in rows]
        path.write_text(head + "".join(lines), encoding="utf-8")
        verdict = judge([read_table(path)])
        predicted.append({(s.id, s.quantity): s.predicted for s in verdict.scored})
    times = [{k: v for k, v in p.items() if k[1] != "speedup"} for p in predicted]
    assert times[0] == times[1]
    assert predicted[0]["b", "speedup"] == predicted[1]["b", "speedup"]


def test_one_bad_row_loses_no_other(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "id,model,gpus,strategy,step_time_s\n"
        "good,gpt2,1x1xA100,ddp,0.2\n"
        "typo,gpt2,1x1xA10O,ddp,0.2\n"
        "two-node-dp,gpt2,2x8xA100,dp,0.2\n",
        encoding="utf-8",
    )
    out = api.validate([path])
    assert (out["rows"], out["simulated"]) == (3, 1)
    assert sum(out["skipped"].values()) == 2
    assert any("did you mean" in reason for reason in out["skipped"])


def test_rows_of_one_job_are_predicted_once_and_judged_each_by_its_own_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "id,model,gpus,strategy,micro_batch,step_time_s\n"
        "first,gpt2,1x1xA100,ddp,2,0.2\n"
        "other,gpt2,1x1xA100,ddp,4,0.3\n"
        "again,gpt2,1x1xA100,ddp,2,0.25\n",
        encoding="utf-8",
    )
    predicted = []
    monkeypatch.setattr(
        judging, "predict", lambda request: predicted.append(request) or predict(request)
    )
    first, other, again = judge([read_table(path)]).scored
    assert [r.micro_batch for r in predicted] == [2, 4]
    assert [s.id for s in (first, other, again)] == ["first", "other", "again"]
    assert first.predicted == again.predicted != other.predicted
    assert (first.measured, again.measured) == (0.2, 0.25)


def test_a_row_that_cannot_be_is_refused_or_counted(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("model,gpus,step_time_s\ngpt2,1xA100,nan\ngpt2,1xA100,0.2\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"t\.csv:2: step_time_s: 'nan'"):
        api.validate(path)
    out = api.validate(path, bad_rows="skip")
    assert (out["rows"], out["simulated"]) == (2, 1)
    assert [why for why in out["skipped"] if "t.csv:2" in why]


def test_json_contract() -> None:
    out = api.validate([LATTE], by=["model"])
    for quantity in QUANTITIES:
        assert set(out[quantity]) == {
            "n", "mape_frac", "median_abs_frac", "median_bias_frac", "p90_abs_frac",
            "coverage80_frac", "width80_ratio",
        }  # fmt: skip
    assert {"id", "predicted", "low", "high", "measured", "error_frac"} <= set(out["per_row"][0])
    assert set(out["groups"]["model"]) == {"latte-l", "latte-xl"}
    for row in out["per_row"]:
        assert row["low"] <= row["predicted"] <= row["high"]
        assert row["error_frac"] == pytest.approx(row["predicted"] / row["measured"] - 1)


def test_errors_by_columns_that_the_table_calls_otherwise_or_has_not() -> None:
    groups = api.validate([LATTE], by=["gpu", "model"])["groups"]
    assert {"A6000ada", "RTX4090"} <= set(groups["gpu"]) <= {"A6000ada", "RTX4090", "H100"}
    assert groups["gpu"]["RTX4090"]["step_time"]["n"] > 0
    with pytest.raises(InvalidConfig, match="did you mean 'model'"):
        api.validate([LATTE], by=["modl"])


def test_latte_memory_blind() -> None:
    rows = [r for r in api.validate([LATTE])["per_row"] if r["quantity"] == "peak_memory"]
    assert len(rows) == 7
    assert max(abs(r["error_frac"]) for r in rows) < 0.05


def test_s4000_resident_memory_without_a_fitted_constant() -> None:
    out = api.validate([tables_folder() / "opensora_s4000.csv"])
    rows = [r for r in out["per_row"] if r["quantity"] == "resident_memory"]
    assert len(rows) == 8  # optimizer and final columns of four rows
    assert max(abs(r["error_frac"]) for r in rows) < 0.02


def test_the_slower_larger_batch_is_called_out() -> None:
    found = contradictions(read_table(LATTE).cases)
    assert list(found) == ["latte-09"]
    assert "batch 2" in found["latte-09"]


def test_latte_leave_one_out() -> None:
    found = calibrate_and_judge([read_table(LATTE)])
    score = found.verdict.score("step_time", flagged=False)
    assert score.n == 10
    assert score.mape_frac is not None
    assert score.mape_frac <= 0.10


@pytest.mark.slow
def test_bert_and_mnist_leave_one_out() -> None:
    out = api.validate([tables_folder() / "bert_mnist.csv"], calibrated=True)
    assert out["step_time"]["n"] == 11
    assert out["step_time"]["mape_frac"] <= 0.20
    assert out["blind"]["step_time"]["n"] == 7, "BERT's amount of work is unknown: not scored blind"


def test_fill_covers_blank_cells_and_zero_stages() -> None:
    filled = {r["id"]: r for r in api.validate([LATTE], fill=True)["filled"]}
    for blank in ("latte-04", "latte-10", "latte-11", "latte-12", "latte-15", "latte-17"):
        assert filled[blank]["step_time_s"]["value"] > 0
        assert filled[blank]["epoch_s"] > 0
    assert not filled["latte-14"]["fits"], "Latte-XL does not fit on a 4090"
    stages = [filled[f"latte-19/zero{s}"]["memory_device_bytes"] for s in (1, 2, 3)]
    assert stages == sorted(stages, reverse=True)


@pytest.mark.skipif(SHARED is None, reason="SIMCORE_TABLES is not set: no shared tables here")
def test_source_tables_agree_with_the_shipped_ones() -> None:
    assert SHARED is not None
    for theirs, ours in (("latte_ddp", "latte"), ("opensora_musa_s4000", "opensora_s4000")):
        a = judge([read_table(SHARED / f"{theirs}.csv")])
        b = judge([read_table(tables_folder() / f"{ours}.csv")])
        assert [(s.quantity, s.predicted) for s in a.scored] == [
            (s.quantity, s.predicted) for s in b.scored
        ]
        assert [s.measured for s in a.scored] == pytest.approx(
            [s.measured for s in b.scored], rel=1e-5
        )
