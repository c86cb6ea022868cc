"""A real calibration of this machine, as small as one can be, and its use by a prediction."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from simcore.calibrate.machine.launch import run_ranks
from simcore.cli.main import run

SMALL = ["--families", "launch,memory-bound,gemm", "--minutes", "0.15", "--name", "tiny-box"]


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    """One rank on one core, in a process of its own."""
    core = {min(os.sched_getaffinity(0))}
    words = [sys.executable, "-m", "simcore.calibrate", *SMALL, *more, "--device", "cpu",
             "-o", str(folder / "tiny-box.yaml")]  # fmt: skip
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    return subprocess.Popen(
        words, env={**env, "OMP_NUM_THREADS": "1"}, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, preexec_fn=lambda: os.sched_setaffinity(0, core),
    )  # fmt: skip


@pytest.mark.long
def test_calibrate_interrupt_resume_predict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Interrupted after some rows, resumed, shown, and used by a prediction."""
    first = start(tmp_path, "--quiet", "--minutes", "5")  # long enough to be interrupted
    raw = tmp_path / "tiny-box.raw" / "memory_bound.csv"
    for _ in range(3000):
        if raw.exists() and len(raw.read_text(encoding="utf-8").splitlines()) > 4:
            break
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    assert first.wait(30) == 130
    before = raw.read_text(encoding="utf-8").splitlines()
    assert len(before) > 4
    assert not (tmp_path / "tiny-box.yaml").exists()  # no half of a profile

    again = start(tmp_path, "--resume")
    out, err = again.communicate(timeout=200)
    assert again.returncode == 0, err
    assert "kept" in out and "written: " in out
    assert raw.read_text(encoding="utf-8").splitlines()[: len(before)] == before

    monkeypatch.chdir(tmp_path)
    capfd.readouterr()
    assert run(["show", "calibration", "tiny-box.yaml", "--plot", "fit.png"]) == 0
    shown = capfd.readouterr().out
    assert "compute gemm_simt32" in shown and "tiny-box: benchmarks of this machine" in shown
    assert (tmp_path / "fit.png").stat().st_size > 10_000
    words = ["predict", "--model", "mnist-cnn", "--gpus", "1x1xtiny-box", "--precision", "fp32",
             "--calibration", "tiny-box.yaml", "--json"]  # fmt: skip
    assert run(words) == 0
    found = json.loads(capfd.readouterr().out)
    step = found["step_time_s"]
    assert 1e-4 < step["value"] < 10.0
    assert step["low"] < step["value"] < step["high"]


def test_a_rank_that_fails_is_told_in_one_sentence(tmp_path: Path) -> None:
    from simcore.base.errors import UsageError

    words = ["--minutes", "0.3", "--families", "disk", "-o", str(tmp_path / "x.yaml"), "--quiet"]
    with pytest.raises(UsageError):
        run_ranks(words, "cpu")
    assert not (tmp_path / "x.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--minutes", "0"], "minutes must be above zero"),
        (["--minutes", "soon"], "--minutes 'soon' is not a number"),
        (["--device", "tpu"], "device is cpu or cuda"),
        (["-o", "x.json"], "a calibration is a .yaml file"),
        (["-o", "none/x.yaml"], "no such folder: 'none'"),
        (["--bad-rows", "keep"], "refused or skipped"),
    ],
)
def test_mistakes(arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", *arguments]) == 2
    err = capfd.readouterr().err
    assert said in err
    assert "Traceback" not in err


def test_without_torch_one_sentence_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import builtins

    real = builtins.__import__

    def absent(name: str, *rest: Any, **more: Any) -> Any:
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", absent)
    for command in ("calibrate", "selftest"):
        assert run([command]) == 2
        assert "pip install '.[torch]'" in capfd.readouterr().err
