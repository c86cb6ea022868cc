"""The commands that read other programs' measurements, as someone with a log would use them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from kineto_traces import gpu_trace
from nccl_logs import nccl_log
from topologies import A6000

SIZES = [2**k for k in range(12, 31, 2)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "nccl.txt"
    path.write_text(nccl_log(lambda s: 20e-6 + s / 180e9, SIZES), encoding="utf-8")
    return path


def test_validate_ops_of_nccl_tests(simcore: Callable, log: Path) -> None:
    ran = simcore("validate", "ops", str(log))
    assert ran.code == 0 and ran.err == ""
    assert "all_reduce on 1x8xH100-SXM-80GB (node dgx-h100)" in ran.out
    assert "1 GiB" not in ran.out or "us" in ran.out
    assert all(len(line) <= 80 for line in ran.out.splitlines())
    found = json.loads(simcore("validate", "ops", str(log), "--json").out)
    assert found["runs"][0]["n"] == len(SIZES)


def test_calibrate_from_nccl_tests(simcore: Callable, log: Path, tmp_path: Path) -> None:
    target = tmp_path / "links.yaml"
    ran = simcore("calibrate", "--from", str(log), "-o", str(target))
    assert ran.code == 0 and f"--calibration {target}" in ran.out
    assert all(len(line) <= 80 for line in ran.out.splitlines() if str(target) not in line)
    told = simcore("predict", "--model", "gpt2", "--gpus", "8xH100", "--calibration", str(target))
    assert "nccl-tests in nccl.txt" in " ".join(told.out.split())
    assert simcore("show", "calibration", str(target)).code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("calibrate", "--gpus", "8xH100"), "--gpus needs --from"),
        (("validate", "t.csv", "--node", "dgx-1"), "are for `simcore validate ops`"),
    ],
)
def test_mistakes(words: tuple[str, ...], said: str, simcore: Callable) -> None:
    ran = simcore(*words)
    assert ran.code == 2 and said in ran.err


def test_node_from_topo(simcore: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bridged.txt").write_text(A6000, encoding="utf-8")
    ran = simcore("node-from-topo", "bridged.txt", "--nics", "2xeth-100")
    assert ran.code == 0 and ran.err == ""
    assert "NV4 bridges within pairs" in ran.out and "--node bridged" in ran.out
    assert simcore("node-from-topo", "bridged.txt").code == 0  # again: its own file
    assert simcore("node-from-topo", "bridged.txt", "--nics", "2xeth-100").code == 0
    shown = simcore("show", "node", "bridged")
    assert shown.code == 0 and "nvlink-pairs" in shown.out
    asked = ("predict", "--model", "gpt2", "--gpus", "2x4xA6000", "--node", "bridged", "--json")
    told = json.loads(simcore(*asked).out)
    assert "2 x 100" in " ".join(told["assumptions"])


def test_node_from_topo_asks_for_the_gpu(simcore: Callable, tmp_path: Path) -> None:
    matrix = tmp_path / "m.txt"
    matrix.write_text(A6000.split("\n", 4)[4], encoding="utf-8")
    ran = simcore("node-from-topo", str(matrix))
    assert ran.code == 2 and "give --gpu" in ran.err
    assert simcore("node-from-topo", str(matrix), "--gpu", "A6000", "-o", "x.json").code == 2
    hides = simcore("node-from-topo", str(matrix), "--gpu", "A6000", "--name", "dgx1")
    assert hides.code == 2 and "would hide the preset 'dgx-1': give another --name" in hides.err


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(gpu_trace(scale=40.0)), encoding="utf-8")
    return path


def test_explain_trace_alone(simcore: Callable, trace: Path) -> None:
    ran = simcore("explain-trace", str(trace))
    assert ran.code == 0 and ran.err == ""
    assert "backward" in ran.out and "predicted" not in ran.out and "longest kernels" in ran.out
    assert all(len(line) <= 80 for line in ran.out.splitlines())


def test_explain_trace_beside_a_prediction(simcore: Callable, trace: Path, tmp_path: Path) -> None:
    """The cluster is the trace's: two ranks of an H100."""
    ran = simcore("explain-trace", str(trace), "--model", "gpt2", "--micro-batch", "1")
    assert ran.code == 0 and "1x2xH100-SXM-80GB" in ran.out and "ratio" in ran.out
    assert "er than predicted" in ran.out and all(len(line) <= 80 for line in ran.out.splitlines())
    table = tmp_path / "steps.csv"
    asked = ("explain-trace", str(trace), "--model", "gpt2", "--row", str(table), "--json")
    for _ in range(2):
        found = json.loads(simcore(*asked).out)
    assert found["step"]["measured_s"] == pytest.approx(40e-3)
    rows = table.read_text(encoding="utf-8").splitlines()
    assert [r.split(",")[0] for r in rows] == ["id", "rank0", "rank0-2"]
    fitted = simcore("calibrate", "--from", str(table), "--json")
    assert fitted.code == 0 and json.loads(fitted.out)["rows"] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpus", "8xH100"), "--model is missing"),
        (("--step", "99"), "has ProfilerStep#5"),
        (("--window", "soon"), "--window is FROM:TO"),
        (("--row", "x.csv"), "--row needs --model"),
        (("--bad-rows", "maybe"), "--bad-rows is refuse or skip"),
    ],
)
def test_explain_trace_mistakes(
    words: tuple[str, ...], said: str, simcore: Callable, trace: Path
) -> None:
    ran = simcore("explain-trace", str(trace), *words)
    assert ran.code == 2 and said in ran.err and "Traceback" not in ran.err


def test_a_row_has_columns_for_what_was_asked(
    simcore: Callable, trace: Path, tmp_path: Path
) -> None:
    table = tmp_path / "steps.csv"
    asked = ("explain-trace", str(trace), "--model", "gpt2", "--tp", "2", "--row", str(table))
    for _ in range(2):
        assert simcore(*asked, "--global-batch", "8", "--micro-batch", "1").code == 0
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 and list(rows[0])[-3:] == ["tp", "step_time_s", "note"]
    assert [(row["tp"], row["grad_accum"]) for row in rows] == [("2", "8")] * 2
    found = simcore("validate", str(table))
    assert found.code == 0 and "2 rows, 2 predicted" in found.out and not found.err
    ran = simcore(*asked, "--seq-len", "128", "--attention", "flash")
    assert ran.code == 2 and "steps.csv has no column attention: add it" in ran.err


def test_a_trace_is_no_table(simcore: Callable, trace: Path) -> None:
    ran = simcore("calibrate", "--from", str(trace))
    assert ran.code == 2 and "explain-trace rank0.json --model" in ran.err
