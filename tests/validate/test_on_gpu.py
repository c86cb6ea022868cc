"""Real training steps beside predictions: the jobs, the search of a batch, a run on a processor."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from simcore import api
from simcore.strategy.options import options_typed, read_options
from validate.on_gpu import __main__ as command
from validate.on_gpu import jobs
from validate.on_gpu.folder import Folder

PROFILE = """\
name: half
origin: by hand
rows: 1
residual_sd_log: 0.05
knobs:
  - {knob: compute, value: 0.5, sd_log: 0.05}
"""
PULSES = "pulses_s: {alone: {compute: 0.002, memory: 0.001}}\n"


def test_thirty_jobs_of_many_kinds_are_put_as_commands() -> None:
    assert len(jobs.JOBS) >= 30 and len({j.id for j in jobs.JOBS}) == len(jobs.JOBS)
    for job in jobs.JOBS:
        typed = options_typed(job.words("H200-SXM", "net.yaml").replace("'", "").split()[1:])
        options = {k: v for k, v in typed.items() if k not in ("model", "gpus")}
        assert read_options(options)[1] == [] and job.net in jobs.NETS
    kinds = {j.precision for j in jobs.JOBS}
    assert kinds == {"fp32", "fp32-ieee", "tf32", "amp-bf16", "amp-fp16", "bf16-true"}
    assert {jobs.NETS[j.net].origin for j in jobs.JOBS} == {
        "module", "torchvision", "timm", "config"
    }  # fmt: skip
    assert any(j.compiled for j in jobs.JOBS) and any(j.lora_rank for j in jobs.JOBS)
    assert set(jobs.LARGEST) <= {j.id for j in jobs.JOBS}


def test_a_config_is_a_file_of_the_network_that_it_describes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from validate.on_gpu.build import model_file

    job = next(j for j in jobs.JOBS if j.net == "mixtral")
    file = tmp_path / model_file(job, tmp_path, is_small=False)
    assert api.predict(str(file), "1xH200", micro_batch=2, seq_len=job.seq).step_time_s.value > 0.0
    # 8 experts of 3 x 1,024 x 3,584, attention with half of the heads for keys, in 8 layers
    d, ffn, kv = 1024, 3584, 8 * 64
    layer = 8 * 3 * d * ffn + 8 * d + 2 * d * d + 2 * d * kv + 2 * d
    record = api.read_config((tmp_path / "mixtral" / "config.json").read_text(), "mixtral")
    assert record.build().trainable_numel == 8 * layer + 2 * 32000 * d + d


@pytest.mark.parametrize("most", [1, 7, 50, 53, 1707])
@pytest.mark.parametrize("guess_frac", [0.5, 0.93, 1.0, 1.1, 2.0])
def test_the_search_ends_beside_the_largest_batch_that_fits(most: int, guess_frac: float) -> None:
    from validate.on_gpu.train import largest

    tried: dict[int, bool] = {}
    while (batch := largest(tried, max(1, int(most * guess_frac)))) is not None:
        assert batch not in tried and batch > 0
        tried[batch] = batch <= most
        assert len(tried) < 60
    best = max(b for b, good in tried.items() if good)
    assert best <= most <= best * 1.003 + 1 and any(not good for good in tried.values())


def test_what_binds_a_step() -> None:
    from validate.on_gpu.train import bound_by

    assert bound_by(7.9, 10.0, waits=False) == "gpu"
    assert bound_by(9.9, 10.0, waits=False) == "host"
    assert bound_by(9.9, 10.0, waits=True) == bound_by(9.0, 10.0, waits=False) == "unclear"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few steps, and a profile written by hand for a device of the database."""
    pytest.importorskip("torch")
    from validate.on_gpu import train

    for name, value in {"WARM_UP": 1, "MEASURED_S": 0.01, "LEAST_STEPS": 2}.items():
        monkeypatch.setattr(train, name, value)

    def calibrate(self: command.Run, minutes: float) -> None:
        self.gpu = "H200-SXM"
        self.folder.path.mkdir(parents=True, exist_ok=True)
        self.folder.calibration.write_text(PROFILE)

    monkeypatch.setattr(command.Run, "calibrate", calibrate)
    monkeypatch.setenv("SIMCORE_DB", "")  # the command sets it: so it is restored


NETS = ("--only", "mlp-fp32-b64", "--only", "lstm-fp32-b64")


def _run(folder: Path, *more: str) -> int:
    return command.main(["--device", "cpu", "--small", "--folder", str(folder), *NETS, *more])


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_two_nets_are_predicted_measured_and_judged(
    tmp_path: Path, quick: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(tmp_path) == 0
    steps, predicted = _rows(tmp_path / "steps.csv"), _rows(tmp_path / "predictions.csv")
    assert [r["id"] for r in steps] == ["mlp-fp32-b64", "lstm-fp32-b64"]
    assert all(float(r["step_ms"]) > 0.0 and r["bound"] == "host" for r in steps)
    assert [r["profile"] for r in predicted] == ["blind", "calibrated"] * 2
    blind, fitted = (float(r["high_ms"]) / float(r["low_ms"]) for r in predicted[2:])
    assert fitted < blind  # the profile's residual is smaller than that of blind predictions
    assert "2 predicted (blind)" in capsys.readouterr().out
    found = api.validate(tmp_path / "steps.csv")  # as anybody judges the table, without code
    assert found["simulated"] == 2
    by_table = {r["id"]: r["predicted"] for r in found["per_row"]}
    for row in predicted[::2]:
        assert by_table[row["id"]] == pytest.approx(1e-3 * float(row["step_ms"]), rel=1e-3)


def test_a_second_call_goes_on_where_the_first_stopped(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from validate.on_gpu import train

    assert _run(tmp_path, "--minutes", "0") == 0  # no time for any step
    assert not (tmp_path / "steps.csv").exists()
    Folder(tmp_path).begin("lstm-fp32-b64")  # a process that ended while this job ran
    assert _run(tmp_path) == 0
    assert [r["id"] for r in _rows(tmp_path / "steps.csv")] == ["mlp-fp32-b64"]
    (skipped,) = _rows(tmp_path / "skipped.csv")
    assert skipped == {"id": "lstm-fp32-b64", "reason": "the process ended while it ran"}

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("measured twice")

    monkeypatch.setattr(train, "measure", never)
    assert _run(tmp_path) == 0
    assert len(_rows(tmp_path / "predictions.csv")) == 4


def test_the_drift_of_the_device_since_the_calibration_is_kept_and_told(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The calibration's pulse took 2 ms, those after the steps take 3 ms; copies as long."""
    from simcore.calibrate.bench import pulse

    monkeypatch.setitem(globals(), "PROFILE", PROFILE + PULSES)
    monkeypatch.setattr(pulse, "runs_of", lambda _: {"compute": (), "memory": ()})
    monkeypatch.setattr(pulse, "take", lambda *_: {"compute": 3e-3, "memory": 1e-3})
    assert _run(tmp_path) == 0
    lines = (tmp_path / "raw.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["slower"] for line in lines] == [{"compute": 1.5, "memory": 1.0}] * 2
    told = [s for s in capsys.readouterr().out.splitlines() if "drifted" in s]
    assert len(told) == 2 and "compute pulse took 1.50 times" in told[0]


def test_a_missing_library_skips_a_job_with_the_reason(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    words = ["--device", "cpu", "--small", "--folder", str(tmp_path), "--only", "vit-amp-b128"]
    assert command.main(words) == 0
    (skipped,) = _rows(tmp_path / "skipped.csv")
    assert "timm" in skipped["reason"]


def test_what_needs_no_gpu_is_done_anywhere_with_the_folder(
    tmp_path: Path, quick: None, capsys: pytest.CaptureFixture[str]
) -> None:
    apart = ("--part", "predict", "--part", "judge")
    assert command.main(["--folder", str(tmp_path / "none"), *apart]) == 2
    assert "conditions.json" in capsys.readouterr().err
    assert _run(tmp_path, "--part", "calibrate", "--part", "measure") == 0
    assert not (tmp_path / "predictions.csv").exists()
    (tmp_path / "conditions.json").write_text('{"gpu": "H200-SXM"}')
    assert command.main(["--folder", str(tmp_path), "--small", *NETS, *apart]) == 0
    assert len(_rows(tmp_path / "predictions.csv")) == 4
    assert capsys.readouterr().out.count("2 rows, 2 predicted") == 2  # blind, calibrated
    (tmp_path / "calibration.yaml").unlink()  # a folder that was kept without it
    assert command.main(["--folder", str(tmp_path), "--part", "judge"]) == 0
    assert capsys.readouterr().out.count("2 rows, 2 predicted") == 1
