"""Where batches vary time is of a mean step and memory of the largest."""

from __future__ import annotations

from typing import Any

import pytest

from simcore import api
from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.base.errors import InvalidConfig


def test_memory_is_of_the_longest_sentences_and_time_of_usual_ones() -> None:
    usual, longest = (
        predict(make_request("gnmt-v2", "1xV100", micro_batch=64, seq_len=n)) for n in (31, 50)
    )
    found = predict(make_request("gnmt-v2", "1xV100", micro_batch=64))
    assert found.step_time_s == usual.step_time_s
    assert found.memory == longest.memory
    assert longest.memory.device_bytes > usual.memory.device_bytes


def test_what_was_asked_for_is_the_largest_too() -> None:
    request = make_request("gnmt-v2", "1xV100", seq_len=20)
    assert request.peak_workload is None and request.held_workload is request.workload


def test_the_answer_says_whose_memory_it_gives() -> None:
    answer = api.predict("mask-rcnn-r50-fpn", "8xV100", micro_batch=2)
    assert any("largest batch in training (width 1344" in a for a in answer.assumptions)
    other = api.predict("resnet-50", "8xV100")
    assert not any("largest batch" in a for a in other.assumptions)


def test_the_largest_micro_batch_fits_at_its_fullest() -> None:
    fits = make_request("mask-rcnn-r50-fpn", "1xRTX3090", micro_batch="max", precision="fp32")
    assert predict(fits).memory.fits
    more = make_request(
        "mask-rcnn-r50-fpn", "1xRTX3090", micro_batch=fits.micro_batch + 1, precision="fp32"
    )
    assert not predict(more).memory.fits


def test_the_timeline_is_of_the_largest_batch() -> None:
    told = api.predict("gnmt-v2", "1xV100", micro_batch=64).memory
    line = api.memory_timeline("gnmt-v2", "1xV100", micro_batch=64)
    assert abs(line.peak_allocated_bytes / told.allocated_bytes - 1.0) < 0.05


def test_ranks_that_share_a_layer_hold_their_part_of_the_largest_batch() -> None:
    """Pipeline stages are predicted for the usual batch alone, and say nothing of another."""
    found, longest = (
        predict(make_request("gnmt-v2", "8xV100", **words))
        for words in ({}, {"seq_len": 50})
    )  # fmt: skip
    assert found.memory.needed_bytes == longest.memory.needed_bytes
    whole = make_request("mask-rcnn-r50-fpn", "8xV100", cp=2)
    assert whole.peak_placed is not None and whole.held.workload is whole.peak_workload
    assert any("largest batch" in a for a in whole.assumptions)


@pytest.mark.parametrize(("gpus", "options"), [
    ("8xH100", {"strategy": "zero3", "recompute": "full"}),
    ("8xA100", {"tp": 8, "recompute": "full", "micro_batch": 2}),
    ("1xT4", {"lora_rank": 8, "quantised_base": "nf4", "precision": "fp16"}),
])  # fmt: skip
def test_the_longest_sequence_is_the_longest(gpus: str, options: dict[str, Any]) -> None:
    job = make_request("llama3.1-8b", gpus, seq_len="max", **options)
    longest = job.options["seq_len"]
    step = 1024 if longest >= 8192 else 128
    assert longest % step == 0 and f"sequences of {longest} tokens" in job.assumptions[0]
    assert predict(job).fits
    longer = make_request("llama3.1-8b", gpus, seq_len=longest + step, **options)
    assert not predict(longer).fits


def test_where_no_sequence_fits_the_shortest_is_predicted_and_said() -> None:
    job = make_request("llama3.1-8b", "1xT4", seq_len="max", strategy="zero3")
    assert (job.options["seq_len"], job.assumptions[0]) == (128, "not even 128 tokens fit")
    assert not predict(job).fits
    with pytest.raises(InvalidConfig, match="not both"):
        make_request("llama3.1-8b", "8xH100", seq_len="max", micro_batch="max")
