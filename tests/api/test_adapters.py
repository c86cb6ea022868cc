"""Fine-tuning with adapters: its usual length, its words, and one GPU without sharding."""

from __future__ import annotations

from typing import Any

import pytest

from simcore import api
from simcore.base.errors import UsageError
from simcore.cli.main import run
from simcore.request.model_settings import ADAPTER_TOKENS

JOB = ("llama3-8b", "1xRTX4090")
QLORA: dict[str, Any] = {"lora_rank": 16, "quantised_base": "nf4"}


def test_adapters_are_trained_on_shorter_sequences_unless_told_otherwise() -> None:
    usual = api.predict(*JOB, **QLORA)
    assert usual.tokens_per_sample == ADAPTER_TOKENS == 2048 and usual.fits
    assert "seq-len 2048" in usual.defaults
    assert "a step of 2,048 tokens (default)" in " ".join(str(usual).split())
    given: tuple[tuple[dict[str, Any], int], ...] = (
        ({"seq_len": 4096}, 4096), ({"settings": "seq_len=4096"}, 4096),
        ({"lora_rank": None}, 8192),
    )  # fmt: skip
    for words, tokens in given:
        told = api.predict(*JOB, **{"lora_rank": 16, **words})
        assert told.tokens_per_sample == tokens
        assert not any("seq-len" in d for d in told.defaults)
    # a model with shorter sequences keeps its own
    assert api.predict("gpt2", "1xT4", lora_rank=8).tokens_per_sample == 1024


def test_a_sweep_and_a_plan_count_the_tokens_of_that_length() -> None:
    point = api.sweep(*JOB, **QLORA).best[0]
    assert point.form.seq_len == point.form.tokens_per_sample == 2048
    plan = api.plan(
        "llama3-8b", "RTX4090", tokens=2048 * 1e4, global_batch=16, max_gpus=2, micro_batch="1,2",
        pp=1, tp=1, **QLORA,
    )  # fmt: skip
    assert plan.samples == 1e4
    same = api.plan(
        "llama3-8b", "RTX4090", tokens="20480k", global_batch=16, max_gpus=2, micro_batch="1,2",
        pp=1, tp=1, **QLORA,
    )  # fmt: skip
    assert same.samples == 1e4
    with pytest.raises(UsageError, match="tokens '1X' is not a number, such as 1e12, 300B or 15T"):
        api.plan("llama3-8b", "RTX4090", tokens="1X")
    assert {o.cluster for o in plan.best} == {"1x1xRTX4090", "1x2xRTX4090"}  # parts of a node


def test_qlora_is_adapters_on_a_base_in_four_bits(capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for words in (["--qlora"], ["--lora-rank", "16", "--quantised-base", "nf4"], ["--lora-rank"]):
        run(["predict", "--model", JOB[0], "--gpus", JOB[1], *words])
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] != outputs[2]
    assert "one process (default)" in outputs[0] and "zero3" not in outputs[0]


def test_qlora_is_a_keyword_of_python_too() -> None:
    found = api.predict(*JOB, qlora=True)
    assert found == api.predict(*JOB, lora_rank=16, quantised_base="nf4")
    assert found.replace(qlora=False).step_time_s == found.step_time_s, "its options stand"
    assert api.predict(*JOB, qlora="on", lora_rank=64).options["lora_rank"] == 64
    assert api.compare(JOB[0], ["RTX4090", "L40S"], qlora=True).columns[0].fits
    assert api.sweep(JOB[0], JOB[1], qlora=True, micro_batch="1,2").best
    assert api.predict("llama3-8b", JOB[1], qlora=False).n_frozen_params == 0
    assert "qlora" in api.predict.__doc__
    with pytest.raises(UsageError, match="qlora"):
        api.predict(*JOB, qlora="maybe")


def test_a_shorter_sequence_is_the_last_thing_that_makes_a_job_fit() -> None:
    found = api.predict(*JOB, seq_len=8192, **QLORA)
    assert not found.fits
    assert found.fixes[-1].startswith("seq-len 2048 (") and len(found.fixes) > 1
    assert not api.predict(*JOB, seq_len=4096, **QLORA).fits
    image = api.predict("resnet-50", "1xT4", micro_batch=4096)
    assert not image.fits and not any("seq-len" in fix for fix in image.fixes)


def test_one_gpu_offloads_and_runs_programs_as_the_model_s_own_strategy_does() -> None:
    assert api.predict("llama3-8b", "1xH100", offload="optimizer").strategy == "zero3"
    alone = api.predict("llama3-8b", "1xH100")
    assert alone.strategy == "ddp" and "strategy ddp" in alone.defaults
    assert not any("Megatron" in a for a in alone.assumptions)
