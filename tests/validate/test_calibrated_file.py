"""A calibration file: written whole, read back equal, used by predictions."""

from pathlib import Path
from typing import Any

import pytest
from nccl_logs import nccl_log

from simcore import api
from simcore.answer.request import tables_folder
from simcore.base.errors import DataError, InvalidConfig, UnknownName
from simcore.hardware.profile import load_profile

LATTE = tables_folder() / "latte.csv"
HEAD = "id,model,gpus,strategy,micro_batch,step_time_s\n"


def test_one_row_moves_the_prediction_towards_it(tmp_path: Path) -> None:
    blind = api.predict("gpt2", "1x1xA100", micro_batch=16).step_time_s.value
    table = tmp_path / "mine.csv"
    table.write_text(HEAD + f"a,gpt2,1x1xA100,ddp,16,{blind * 1.3}\n", encoding="utf-8")
    found = api.calibrate_from(table, output=tmp_path / "mine.yaml")
    after = api.predict("gpt2", "1x1xA100", micro_batch=16, calibration=str(tmp_path / "mine.yaml"))
    assert blind * 1.15 < after.step_time_s.value <= blind * 1.3
    assert after.step_time_s.origin == "calibrated on 1 measured row of mine.csv"
    assert found["rows"] == 1
    told = {k["knob"] for k in found["knobs"] if k["identified"]}
    assert "compute" in told or "memory" in told
    assert "inter" not in told, "one GPU says nothing about the network"


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """The fit of the shipped table, and the file that it wrote."""
    target = tmp_path_factory.mktemp("fitted") / "latte.yaml"
    return api.calibrate_from(LATTE, output=target), target


def test_the_file_reads_back_as_what_was_fitted(fitted: tuple[dict[str, Any], Path]) -> None:
    found, target = fitted
    profile = load_profile(str(target))
    assert profile.name == "latte"
    written = {(k.knob, k.gpu, k.node, k.link, k.workload): k.value for k in profile.knob_values}
    for k in found["knobs"]:
        key = tuple(k.get(p, "") for p in ("knob", "gpu", "node", "link", "workload"))
        assert written[key] == pytest.approx(k["value"], rel=1e-3)
    assert not list(target.parent.glob("*.part"))


def test_shipped_calibrations_are_what_their_tables_give(
    fitted: tuple[dict[str, Any], Path],
) -> None:
    profile = load_profile("latte-ddp")
    values = {(k["knob"], k.get("gpu"), k.get("node")): k["value"] for k in fitted[0]["knobs"]}
    for knob in profile.knob_values:
        key = (knob.knob, knob.gpu, knob.node)
        if knob.link or knob.workload:
            continue
        assert knob.value == pytest.approx(values[key], rel=0.02), key


def test_nothing_to_fit_is_said(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text(HEAD + "a,gpt2,1x1xA10O,ddp,4,0.2\n", encoding="utf-8")
    with pytest.raises(InvalidConfig, match="can be fitted"):
        api.calibrate_from(table)
    with pytest.raises(InvalidConfig, match="no such folder"):
        api.calibrate_from(LATTE, output=tmp_path / "no" / "x.yaml")
    with pytest.raises(InvalidConfig, match=r"\.yaml"):
        api.calibrate_from(LATTE, output=tmp_path / "x.txt")


def test_wrong_calibrations_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="latte-ddp"):
        load_profile("latte-dpp")
    broken = tmp_path / "b.yaml"
    broken.write_text(
        "name: b\norigin: x\nrows: 1\nresidual_sd_log: 0.1\nknobs:\n- {knob: computr}\n"
    )
    with pytest.raises(DataError, match=r"b\.yaml:6"):
        load_profile(str(broken))


def test_rows_that_cannot_be_are_named_by_line_and_refused_or_skipped(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    good = "a,gpt2,1x1xA100,ddp,4,0.04\n"
    for bad, why in (
        ("b,gpt2,1x1xA100,ddp,4,nan\n", "finite"),
        ("b,gpt2,1x1xA100,ddp,4,-1\n", "finite and at least 0"),
        ("b,gpt2,1x1xA100,ddp,4,0\n", "above 0"),
        ("b,gpt2,1x1xA100\n", "has 3 cells, not 6"),
        ("a,gpt2,1x1xA100,ddp,8,0.1\n", "'a' is in line 2 already"),
    ):
        table.write_text(HEAD + good + bad, encoding="utf-8")
        with pytest.raises(DataError, match=f"mine.csv:3: .*{why}"):
            api.calibrate_from(table)
        found = api.calibrate_from(table, bad_rows="skip")
        assert found["rows"] == 1 and len(found["skipped"]) == 1
        assert "mine.csv:3" in next(iter(found["skipped"].values()))


def test_milliseconds_are_called_out_and_teach_nothing(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text(
        HEAD + "a,gpt2,1x1xA100,ddp,4,0.04\nb,gpt2,1x1xA100,ddp,8,70\n", encoding="utf-8"
    )
    found = api.calibrate_from(table)
    assert found["rows"] == 1 and "in seconds" in found["suspects"]["b"]
    table.write_text(HEAD + "b,gpt2,1x1xA100,ddp,8,70\n", encoding="utf-8")
    with pytest.raises(InvalidConfig, match="is it in seconds"):
        api.calibrate_from(table)


def test_columns_of_others_are_told_what_is_missing(tmp_path: Path) -> None:
    table = tmp_path / "other.csv"
    table.write_text("Model,Num GPUs,GPU,Step time (s)\ngpt2,1,A100,0.2\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"gpus \(is that GPU\?\) is missing from model, Num GPUs"):
        api.calibrate_from(table)
    table.write_text("id,model,gpus,step_time_ms\na,gpt2,1x1xA100,40\n", encoding="utf-8")
    with pytest.raises(InvalidConfig, match=r"none has a step_time_s, .*step_time_ms \(did you"):
        api.calibrate_from(table)
    table.write_text(HEAD.strip() + ",batch\na,gpt2,1x1xA100,ddp,4,0.04,8\n", encoding="utf-8")
    assert api.calibrate_from(table)["ignored_columns"] == ["batch"]


def test_a_fit_answers_in_the_same_words_whatever_it_was_fitted_to(
    fitted: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    log = tmp_path / "log.txt"
    log.write_text(nccl_log(lambda n: 20e-6 + n / 200e9, [2**k for k in range(12, 30)]), "utf-8")
    links = api.calibrate_from(log, output=tmp_path / "links.yaml")
    shared = {"name", "origin", "rows", "residual_sd_log", "leave_one_out_mape_frac", "knobs",
              "skipped", "written"}  # fmt: skip
    assert shared <= links.keys() & fitted[0].keys()
    assert all(isinstance(k["identified"], bool) for k in fitted[0]["knobs"] + links["knobs"])
    assert (links["written"], fitted[0]["written"]) == (
        str(tmp_path / "links.yaml"), str(fitted[1]),
    )  # fmt: skip
