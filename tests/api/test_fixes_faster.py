"""What makes a job that fits faster: each change is the prediction that it names."""

from __future__ import annotations

import re
from typing import Any

import pytest

from simcore import api
from simcore.answer.predict import BUBBLE, bubble_binds
from simcore.report.text import HEIGHT, render

#: Adapters on PCIe: a sharded base is gathered for every layer, though it would fit whole.
LORA: dict[str, Any] = {
    "model": "qwen2.5-7b", "gpus": "4xRTX4090", "lora_rank": 16, "seq_len": 1024,
}  # fmt: skip
CUT: dict[str, Any] = {"model": "llama3-8b", "gpus": "8xH100", "pp": 4, "software": "plain"}


@pytest.mark.parametrize(
    "job",
    [
        LORA,
        {"model": "qwen2-0.5b", "gpus": "8xRTX4090"},  # trained whole
        {"model": "gpt2", "gpus": "4x8xA100", "strategy": "zero3", "network": "eth-10"},
        {"model": "llama3-8b", "gpus": "4x8xH100", "network": "eth-25"},  # within nodes alone
    ],
)
def test_a_strategy_that_shards_less(job: dict[str, Any]) -> None:
    found = api.predict(**job)
    assert found.strategy == "zero3" and found.fits
    (change,) = found.faster
    strategy = change.change.removeprefix("strategy ")
    then = api.predict(**job | {"strategy": strategy})
    assert then.fits and not then.faster
    assert change.samples_per_s == pytest.approx(then.samples_per_s)
    assert change.gain_frac == pytest.approx(then.samples_per_s / found.samples_per_s - 1)
    assert change.gain_frac > 0.05


def test_none_that_does_not_fit_nor_gains() -> None:
    whole = LORA | {"seq_len": 4096, "recompute": "full"}
    assert not api.predict(**whole, strategy="ddp").fits
    narrow = whole | {"quantised_base": "nf4"}
    assert api.predict(**narrow).fits  # and whole it is in 4 bits: nothing else is narrower
    assert all("quantised" not in f.change for f in api.predict(**narrow).faster)
    # NVLink hides what is gathered
    assert not api.predict("llama3-8b", "8xH100", lora_rank=16, seq_len=8192).faster
    assert not api.predict("llama3-8b", "4xRTX4090").faster  # does not fit: fixes come first


def test_a_narrow_base_is_held_whole_where_a_wide_one_does_not_fit() -> None:
    job = LORA | {"seq_len": 4096, "recompute": "full"}
    assert not api.predict(**job, strategy="ddp").fits
    (change,) = api.predict(**job).faster
    assert change.change == "ddp, quantised-base nf4"
    then = api.predict(**job, strategy="ddp", quantised_base="nf4")
    assert then.fits and change.samples_per_s == pytest.approx(then.samples_per_s)


def test_sharding_within_nodes_is_no_change_of_one_node_nor_of_itself() -> None:
    slow = {"model": "llama3-8b", "gpus": "4x8xH100", "network": "eth-25"}
    assert all("hsdp" not in f.change for f in api.predict(**slow, strategy="hsdp").faster)
    assert not api.predict("llama3-8b", "8xH100").faster
    # it is less traffic for zero1 too, and what is shared by a node alone must fit
    (change,) = api.predict(**slow, strategy="zero1").faster
    assert change.change == "strategy hsdp"


def test_the_largest_batch_is_that_of_each_strategy() -> None:
    job = LORA | {"micro_batch": "max"}
    (change,) = api.predict(**job).faster
    then = api.predict(**job, strategy="ddp")
    assert change.samples_per_s == pytest.approx(then.samples_per_s)


def test_a_bubble_binds_and_more_micro_batches_are_offered() -> None:
    found = api.predict(**CUT)
    # 1F1B, one micro-batch on four stages: three quarters of what stages compute is waited for
    t = found.time_s
    busy = t["compute"] + t["pipeline_bubble"]
    assert t["pipeline_bubble"] / busy == pytest.approx(3 / 4, abs=0.06)
    assert found.bound_by == BUBBLE
    (change,) = found.faster
    said = re.fullmatch(r"grad-accum (\d+) \((\d+) sequences a step\)", change.change)
    assert said is not None and (said[1], said[2]) == ("16", "32")  # four a stage; two replicas
    then = api.predict(**CUT, grad_accum=16)
    assert then.global_batch == 32 and then.fits and then.bound_by != BUBBLE
    assert change.samples_per_s == pytest.approx(then.samples_per_s)


def test_the_same_samples_in_more_micro_batches() -> None:
    job = CUT | {"recompute": "full", "micro_batch": 2}
    found = api.predict(**job)
    (change,) = found.faster
    assert change.change == "micro-batch 1, grad-accum 2"
    then = api.predict(**job | {"micro_batch": 1}, grad_accum=2)
    assert then.global_batch == found.global_batch
    assert change.samples_per_s == pytest.approx(then.samples_per_s)


def test_advice_is_in_the_words_that_were_given() -> None:
    """Beside a global batch ``--grad-accum`` is refused: what is told can be typed as it is."""
    (change,) = api.predict(**CUT, global_batch=2).faster
    assert change.change == "global-batch 32"
    job = CUT | {"recompute": "full", "micro_batch": 2, "global_batch": 4}
    found = api.predict(**job)
    (change,) = found.faster
    assert change.change == "micro-batch 1"
    then = api.predict(**job | {"micro_batch": 1})
    assert then.global_batch == found.global_batch and then.grad_accum == 2
    assert change.samples_per_s == pytest.approx(then.samples_per_s)


def test_advice_beside_a_launch_file_wins_over_its_batch() -> None:
    launch = (
        "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --bf16 "
        "--sequence-parallel --use-distributed-optimizer --micro-batch-size 1 --global-batch-size 8"
    )
    job: dict[str, Any] = {"model": "llama3-70b", "gpus": "8x8xH100", "launch": launch}
    change = next(f for f in api.predict(**job).faster if f.change.startswith("grad-accum"))
    assert change.change == "grad-accum 16 (32 sequences a step)"
    then = api.predict(**job, grad_accum=16)
    assert then.global_batch == 32
    assert change.samples_per_s == pytest.approx(then.samples_per_s)


def test_enough_micro_batches_are_enough() -> None:
    assert not api.predict(**CUT, grad_accum=64).faster


def test_chunks_of_layers_shrink_a_bubble_of_the_same_samples() -> None:
    job: dict[str, Any] = {
        "model": "llama3-70b", "gpus": "8x8xH100", "tp": 8, "pp": 4, "global_batch": 32,
    }  # fmt: skip
    found = api.predict(**job)
    assert found.fits and found.grad_accum == 16
    change = next(f for f in found.faster if f.change.startswith("vpp"))
    then = api.predict(**job, vpp=int(change.change.removeprefix("vpp ")))
    assert then.fits and then.global_batch == found.global_batch
    assert change.samples_per_s == pytest.approx(then.samples_per_s)
    assert then.time_s["pipeline_bubble"] < 0.6 * found.time_s["pipeline_bubble"]
    assert not any("vpp" in f.change for f in then.faster)
    # 18 micro-batches are no whole rounds of 4 (Megatron-LM refuses them); of GPipe there are none
    assert not any("vpp" in f.change for f in api.predict(**job | {"global_batch": 36}).faster)
    assert not any("vpp" in f.change for f in api.predict(**job, schedule="gpipe").faster)


def test_the_longest_term_binds() -> None:
    time_s = {"compute": 4.0, "forward": 1.0, "pipeline_bubble": 3.9, "communication_hidden": 9.0}
    assert not bubble_binds(time_s)
    assert bubble_binds({**time_s, "pipeline_bubble": 4.1})
    assert not bubble_binds({"compute": 4.0})


@pytest.mark.parametrize("job", [LORA, CUT])
def test_it_is_said(job: dict[str, Any]) -> None:
    found = api.predict(**job)
    text = render(found)
    assert len(text.splitlines()) <= HEIGHT
    line = next(x for x in text.splitlines() if x.startswith("FASTER"))
    assert found.faster[0].change in line and "sequences/s (" in line
    assert "pipeline bubble" in api.explain(**job, term="bound_by").value or job is LORA


def test_programs_without_an_interleaved_schedule_are_offered_no_chunks() -> None:
    job: dict[str, Any] = {
        "model": "llama3-70b", "gpus": "8x8xH100", "tp": 8, "pp": 4, "global_batch": 32,
        "recompute": "full",
    }  # fmt: skip
    for software, offered in (("megatron", True), ("deepspeed", False), ("nanotron", False)):
        found = api.predict(**job, software=software)
        assert found.fits
        assert any(f.change.startswith("vpp") for f in found.faster) == offered, software
