"""The measuring command without a GPU: it can be asked, and says why it cannot measure."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def command() -> Any:
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    return import_module("validate.memory_on_gpu")


def test_help_and_no_gpu() -> None:
    words = [sys.executable, "-m", "validate.memory_on_gpu"]
    told = subprocess.run(
        [*words, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "--precision" in told


def test_without_a_gpu_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert command().main([]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "no NVIDIA GPU" in said.err
    monkeypatch.setitem(sys.modules, "torch", None)
    assert command().main(["--net", "gpt2"]) == 2
    assert "not installed" in capsys.readouterr().err


def test_every_net_has_a_prediction_and_a_module() -> None:
    measuring = command()
    for name, net in measuring.NETS.items():
        allocated, reserved = measuring.predict(net, "fp32", 1, "A100-SXM-80GB")
        assert 0 < allocated <= reserved, name
    for file in ("resnet", "vit", "bert", "transformer"):
        measuring._reference(file)


def test_a_table_as_it_would_be_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With a device that holds exactly what is predicted, and one that holds 10 % more."""
    measuring = command()
    monkeypatch.setattr(measuring, "_problem", lambda: None)
    path = tmp_path / "memory.csv"
    words = ["--net", "gpt2", "--precision", "fp32", "--batch", "1", "--gpu", "A100-SXM-80GB"]
    net = measuring.NETS["gpt2"]
    exact = measuring.predict(net, "fp32", 1, "A100-SXM-80GB")
    monkeypatch.setattr(measuring, "measure", lambda *_: exact)
    assert measuring.main([*words, "--csv", str(path)]) == 0
    assert "gpt2,fp32,1,A100-SXM-80GB" in capsys.readouterr().out
    assert path.read_text(encoding="utf-8").count("+0.0") == 2
    monkeypatch.setattr(measuring, "measure", lambda *_: tuple(1.1 * x for x in exact))
    assert measuring.main(words) == 1
    assert "-9.1" in capsys.readouterr().out
