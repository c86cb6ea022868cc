"""A config on the command line, from the file to the answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from huggingface.public import PUBLIC

from simcore import api
from simcore.cli.main import run


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(PUBLIC["llama3-8b"][1]), encoding="utf-8")
    return str(path)


def test_a_config_is_predicted(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["predict", "--model", config, "--gpus", "4x8xH100", "--seq-len", "2048",
             "--strategy", "zero3", "--recompute", "full", "--json"]  # fmt: skip
    assert run(words) == 0
    assert json.loads(capsys.readouterr().out)


def test_lora_fits_where_full_training_does_not(config: str) -> None:
    whole = api.predict(config, "1xA100-SXM-80GB", recompute="full")
    small = api.predict(config, "1xA100-SXM-80GB", recompute="full", lora_rank=16)
    packed = api.predict(
        config, "1xA100-SXM-80GB", recompute="full", lora_rank=16, quantised_base="nf4"
    )
    assert not whole.fits
    assert small.fits
    assert packed.memory.device_bytes < small.memory.device_bytes - 9e9
    assert small.n_params == 32 * 16 * (2 * 8192 + 2 * 5120 + 3 * (4096 + 14336))
    # neither gradients nor updates of the base
    assert small.step_time_s.value < 0.85 * whole.step_time_s.value
    assert 0.5 * whole.mfu_frac < small.mfu_frac < 1.1 * whole.mfu_frac


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--lora-rank", "x"], "lora-rank"),
        (["--lora-rank", "8", "--lora-targets", "nothing"], "nothing"),
        (["--quantised-base", "nf4"], "lora_rank"),
    ],
)
def test_wrong_words_are_one_sentence(
    config: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["predict", "--model", config, "--gpus", "8xH100", *words]) == 2
    answer = capsys.readouterr()
    assert said in answer.err
    assert "Traceback" not in answer.err
