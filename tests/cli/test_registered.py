"""A program and an optimizer in a folder of one's own: reached, shown, listed, refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = """\
name: my-trainer
inherits: deepspeed
meaning: a trainer of one's own
facts:
  - source: my_trainer/loop.py, step
    gradients: {norm_copy_bytes: 4}
    runs:
      options: {grad_clip: true}
releases:
  "1.0":
    meaning: its first release, whose ranks updated whole tensors
    facts:
      - source: my_trainer/state.py of 1.0
        optimizer_state: {owned_tensor_by_tensor: true}
"""
OPTIMIZER = """\
name: my-rule
meaning: a rule that keeps three moments
source: my_rule.py, step
state_bytes: 12
traffic_elems: 9
kernels_per_tensor: 4
"""
JOB = ("predict", "--model", "gpt2", "--gpus", "8xA100", "--strategy", "zero1", "--precision",
       "bf16", "--main-grads", "fp32")  # fmt: skip


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, with both in it."""
    monkeypatch.setenv("SIMCORE_DB", str(tmp_path))
    (tmp_path / "programs_db" / "optimizers").mkdir(parents=True)
    (tmp_path / "programs_db" / "my-trainer.yaml").write_text(PROGRAM)
    (tmp_path / "programs_db" / "optimizers" / "my-rule.yaml").write_text(OPTIMIZER)
    return tmp_path / "programs_db"


def test_a_job_runs_with_both(own: Path, simcore: Callable) -> None:
    def state_bytes(*words: str) -> float:
        ran = simcore(*JOB, *words, "--json")
        assert ran.code == 0, ran.err
        return float(json.loads(ran.out)["memory_bytes"]["terms"]["optimizer_state"])

    numel = 124_439_808
    mine = state_bytes("--software", "my-trainer", "--optimizer", "my-rule")
    assert mine == pytest.approx((4 + 12) * numel / 8, rel=1e-3)
    first = state_bytes("--software", "my-trainer@1.0", "--optimizer", "my-rule")
    table = 50_257 * 768  # the largest tensor, more than an eighth of all
    assert first == pytest.approx((4 + 12) * table, rel=1e-3)


def test_both_are_listed_and_shown(own: Path, simcore: Callable) -> None:
    (listed,) = json.loads(simcore("list", "software", "my-trainer", "--json").out)
    meaning = "its first release, whose ranks updated whole tensors"
    assert listed["releases"] == {"1.0": {"aliases": [], "meaning": meaning}}
    shown = simcore("show", "program", "my-trainer").out
    assert "gradients.norm_copy_bytes = 4" in shown and "my_trainer/loop.py, step" in shown
    assert "gradients.norm_copy_bytes = 8" not in shown  # what it replaces of what it inherits
    assert "zero3.live_numel = 1,000,000,000" in shown
    assert "my-rule" in simcore("list", "optimizers").out
    assert "state_bytes = 12" in simcore("show", "optimizer", "my-rule").out
    explained = simcore(*JOB, "--optimizer", "my-rule", "--explain", "optimizer")

    assert explained.code == 0 and "9 a parameter" in explained.out


def test_mistakes_are_refused(own: Path, simcore: Callable) -> None:
    refused = simcore(*JOB, "--software", "my-trainer@1.1")
    assert refused.code == 2
    assert "unknown release of my-trainer '1.1': did you mean '1.0'?" in refused.err
    refused = simcore(*JOB, "--optimizer", "my-rul")
    assert refused.code == 2 and "did you mean 'my-rule'?" in refused.err
    file = own / "my-trainer.yaml"
    file.write_text(PROGRAM.replace("norm_copy_bytes", "norm_copybytes"))
    refused = simcore(*JOB, "--software", "my-trainer")
    assert refused.code == 2 and "Traceback" not in refused.err
    assert f"{file}:6: facts.0.gradients.norm_copybytes: unknown key" in refused.err
    assert "did you mean 'norm_copy_bytes'?" in refused.err
