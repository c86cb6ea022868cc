"""The public call: options, runs, fixes, errors, speed."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import simcore
from simcore.base.errors import InvalidConfig, UnknownName, UsageError
from simcore.timing import evaluate as evaluation
from simcore.timing import steps
from simcore.workload.models import MODELS


def test_defaults_are_told_and_given_ones_are_not() -> None:
    plain = simcore.predict("latte-xl", "4x8xA6000ada")
    told = {d.split()[0] for d in plain.defaults}
    assert {"strategy", "micro-batch", "precision", "optimizer", "recompute"} <= told
    assert plain.micro_batch == 2
    given = simcore.predict("latte-xl", "4x8xA6000ada", micro_batch=2, strategy="ddp",
                            precision="tf32")  # fmt: skip
    assert not {"strategy", "micro-batch", "precision"} & {d.split()[0] for d in given.defaults}
    assert given.step_time_s == plain.step_time_s


def test_names_fold() -> None:
    result = simcore.predict("Latte_XL", "4×8×a6000ADA", strategy="ZeRO-2")
    assert (result.model, result.strategy) == ("latte-xl", "zero2")
    assert result.n_gpus == 32


def test_steps_and_epochs() -> None:
    one = simcore.predict("latte-xl", "4x8xA6000ada", steps=1000)
    assert one.run_time_s == pytest.approx(1000 * one.step_time_s.value)
    epochs = simcore.predict("latte-xl", "4x8xA6000ada", epochs=10)
    samples = MODELS["latte-xl"].dataset
    assert samples is not None
    assert epochs.run_steps == 10 * (samples.samples.value // 64)
    assert simcore.predict("latte-xl", "4x8xA6000ada").run_time_s is None


@pytest.mark.parametrize(
    "words",
    [
        {"steps": 1, "epochs": 1},
        {"steps": 0},
        {"steps": -3},
        {"epochs": float("nan")},
        {"steps": float("inf")},
        {"epochs": 1, "grad_accum": 1000},
    ],
)
def test_runs_that_cannot_be(words: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        simcore.predict("latte-xl", "4x8xA6000ada", **words)


def test_every_violation_at_once() -> None:
    with pytest.raises(InvalidConfig) as caught:
        simcore.predict("late-xl", "4x8xA6001ada", strategy="zero4", precision="fp17",
                        micro_batch=0, recompute="half", grad_accum=0)  # fmt: skip
    text = str(caught.value)
    assert len(caught.value.violations) >= 7
    for hint in ("latte-xl", "A6000ada", "zero", "fp16", "micro-batch", "recompute", "grad-accum"):
        assert hint in text, hint


def test_unknown_names_suggest() -> None:
    with pytest.raises(UsageError, match="did you mean 'latte-xl'"):
        simcore.predict("late-xl", "A100")
    with pytest.raises((UnknownName, InvalidConfig), match="calibration"):
        simcore.predict("latte-xl", "A100", calibration="nonsense")


@pytest.mark.parametrize(
    ("gpus", "words", "said"),
    [
        ("H100", {"microbatch": 4}, "did you mean 'micro_batch'"),
        ("H100", {"micro_batch": 2.5}, "--micro-batch must be a whole number, not 2.5"),
        ("H100", {"tp": True}, "--tp must be a whole number, not True"),
        ("H100", {"strategy": 3}, "--strategy must be text, not 3"),
        ("H100", {"recompute": True}, "--recompute must be text ('full'), not True"),
        ("H100", {"lora_targets": ["q_proj", "o_proj"]}, "must be text ('q_proj,o_proj'), not ["),
        (8, {}, "gpus must be text such as 4x8xA6000ada, not 8"),
        (None, {}, "gpus must be text such as 4x8xA6000ada, not None"),
    ],
)
def test_words_of_another_kind_are_told(gpus: Any, words: dict[str, Any], said: str) -> None:
    """A misspelt word or half a sample is no prediction of something else."""
    with pytest.raises(UsageError, match=re.escape(said)):
        simcore.predict("gpt2", gpus, **words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"tokens": "many"}, "tokens 'many' is not a number, such as 1e12, 300B or 15T"),
        ({"tokens": 1e12, "deadline": 30}, "deadline must be text with a unit, or a date, not 30"),
    ],
)
def test_words_of_a_plan_of_another_kind_are_told(words: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        simcore.plan("llama3-8b", "8xH100", **words)


def test_a_function_of_the_api_that_is_not_public_is_told_where_it_is() -> None:
    simcore.predict("gpt2", "8xH100")
    with pytest.raises(AttributeError, match=r"it is simcore\.api\.timeline"):
        simcore.timeline  # noqa: B018
    with pytest.raises(AttributeError, match=r"'prdict'$"):
        simcore.prdict  # noqa: B018


def test_whole_numbers_may_be_numpys_or_text() -> None:
    plain = simcore.predict("gpt2", "8xH100", micro_batch=4, tp=2)
    assert simcore.predict("gpt2", "8xH100", micro_batch=np.int64(4), tp="2") == plain


def test_max_micro_batch() -> None:
    result = simcore.predict("latte-xl", "1x8xA6000ada", micro_batch="max")
    assert result.fits
    assert result.micro_batch == 2
    assert not simcore.predict("latte-xl", "1x8xA6000ada", micro_batch=3).fits


def _asked_again(job: dict[str, Any], fix: str) -> Any:
    """The job with the words of one fix, said as on the command line."""
    words, _, rate = fix.rpartition(" (")
    changed: dict[str, Any] = {}
    for part in words.split(", "):
        word, _, value = part.removesuffix(" over all GPUs").partition(" ")
        if not value:
            kind = "strategy" if word.startswith(("zero", "ddp")) else "precision"
            changed["gpus" if word[0].isdigit() else kind] = word
        elif word == "set":  # --set KEY=VALUE
            changed["settings"] = value
        else:
            key = word.replace("-", "_")
            changed[key] = int(value) if value.isdigit() else value
    found = simcore.predict(**(job | changed))
    assert found.samples_per_s == pytest.approx(float(rate.removesuffix("/s)")), rel=0.006)
    return found


@pytest.mark.parametrize(
    "job",
    [
        {"model": "latte-xl", "gpus": "1x8xA6000ada", "micro_batch": 3},
        {"model": "llama3-70b", "gpus": "8x8xH100", "tp": 4, "pp": 2, "strategy": "zero1",
         "seq_len": 8192, "recompute": "selective", "global_batch": 512},
        {"model": "gpt2-xl", "gpus": "1x2xV100", "micro_batch": 8},
        {"model": "llama3-8b", "gpus": "1xRTX4090", "seq_len": 8192},
        {"model": "llama3-8b", "gpus": "1x8xRTX4090"},
        {"model": "llama3-8b", "gpus": "1x8xRTX4090", "grad_accum": 2},
        {"model": "llama3-8b", "gpus": "1xRTX4090", "lora_rank": 16},
        {"model": "llama3-8b", "gpus": "2xRTX4090", "lora_rank": 16, "seq_len": 2048},
        {"model": "llama3-8b", "gpus": "1xRTX4090", "lora_rank": 16, "recompute": "full",
         "quantised_base": "nf4", "seq_len": 8960},
        {"model": "llama3-70b", "gpus": "8x8xH100", "strategy": "hsdp"},
        {"model": "llama3.2-1b", "gpus": "1xRTX4090"},
        {"model": "llama3-8b", "gpus": "1x8xH100", "strategy": "ddp", "micro_batch": "max"},
        {"model": "llama3-8b", "gpus": "1x8xH100", "seq_len": 131_072, "micro_batch": "max"},
    ],
)  # fmt: skip
def test_fixes_do_fix(job: dict[str, Any]) -> None:
    """What is offered for a job that does not fit makes it fit, at the speed that is told."""
    result = simcore.predict(**job)
    assert not result.fits
    assert result.fixes
    for fix in result.fixes:
        assert _asked_again(job, fix).fits, fix
    shorter = [fix for fix in result.fixes if fix.startswith("seq-len")]
    whole = [fix for fix in result.fixes if fix not in shorter]
    assert result.fixes == (*whole, *shorter)  # another job than was asked for comes last
    rates = [float(fix.rpartition("(")[2].removesuffix("/s)")) for fix in whole]
    assert rates == sorted(rates, reverse=True)


def test_long_sequences_are_cut_where_they_do_not_fit() -> None:
    """Context parallelism is among the fixes of a sequence that is long, and of no other."""
    job = {"model": "llama3-8b", "gpus": "1x8xH100", "micro_batch": "max"}
    long = simcore.predict(**job, seq_len=131_072).fixes
    assert any("cp " in fix for fix in long) and any("tp " in fix for fix in long)
    short = simcore.predict(**job, strategy="ddp").fixes
    assert any("tp " in fix for fix in short) and not any("cp " in fix for fix in short)


def test_one_gpu_is_helped_before_more_are_bought() -> None:
    """Offload and a narrow base are tried on the GPU that there is."""
    alone = simcore.predict("llama3.2-1b", "1xRTX4090").fixes
    assert [fix.partition(" (")[0] for fix in alone] == ["zero2, offload optimizer"]
    adapters = simcore.predict("qwen2.5-14b", "1xRTX4090", lora_rank=16).fixes
    assert adapters and all("quantised-base nf4" in fix for fix in adapters)


def test_ways_to_hold_the_same_job() -> None:
    """An adapter's base whole but narrow, no holes, shards over all GPUs: each where it helps."""

    def changes(**job: Any) -> list[str]:
        return [fix.partition(" (")[0] for fix in simcore.predict("llama3-8b", **job).fixes]

    adapters = {"lora_rank": 16, "seq_len": 2048}
    assert changes(gpus="2xRTX4090", **adapters)[0] == "ddp, quantised-base nf4"
    narrow = {"lora_rank": 16, "recompute": "full", "quantised_base": "nf4", "seq_len": 8960}
    assert "growing-segments on" in changes(gpus="1xRTX4090", **narrow)
    shared = {"gpus": "4x8xA100-SXM-40GB", "strategy": "hsdp", "seq_len": 4096}
    assert changes(**shared)[0] == "zero3 over all GPUs"
    # no two changes of the same thing are offered together
    for said in changes(gpus="2xRTX4090", lora_rank=16, seq_len=8192):
        assert said.count("quantised-base") <= 1


def test_a_job_that_fits_needs_no_fix() -> None:
    assert simcore.predict("latte-xl", "1x8xA6000ada").fixes == ()


def test_a_timeline_only_when_asked() -> None:
    assert simcore.predict("latte-s", "A100").timeline is None
    traced = simcore.predict("latte-s", "A100", keep_timeline=True)
    assert traced.timeline is not None
    assert traced.timeline.makespan_s[0] <= traced.step_time_s.value * (1 + 1e-9)


def test_torchrun_words() -> None:
    by_words = simcore.predict("latte-s", "A6000ada", nnodes=2, nproc_per_node=8)
    assert by_words.cluster == "2x8xA6000ada"
    assert by_words.step_time_s == simcore.predict("latte-s", "2x8xA6000ada").step_time_s


def test_a_second_prediction_evaluates_once_and_builds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Central estimate, what-ifs and interval are columns of one call; the step graph is kept."""
    simcore.predict("latte-xl", "4x8xA6000ada")
    calls: list[int] = []
    plain, built = steps.evaluate_parts, evaluation._program.cache_info().misses
    monkeypatch.setattr(steps, "evaluate_parts", lambda *a, **k: calls.append(1) or plain(*a, **k))
    simcore.predict("latte-xl", "4x8xA6000ada")
    assert len(calls) == 1
    assert evaluation._program.cache_info().misses == built


def test_an_answer_is_plain_data_and_its_step_a_number() -> None:
    found = simcore.predict("gpt2", "A100")
    assert found.to_dict()["tokens_per_s"] == found.tokens_per_s == found.samples_per_s * 1024
    assert float(found.step_time_s) == found.step_time_s.value
    assert f"{found.step_time_s:.3f}" == f"{found.step_time_s.value:.3f}"
    images = simcore.predict("resnet-50", "A100")
    assert images.tokens_per_s is None and images.to_dict()["tokens_per_s"] is None
