"""Where batches vary time is of a mean step and memory of the largest."""

from __future__ import annotations

from simcore import api
from simcore.answer.predict import predict
from simcore.answer.request import make_request


def test_memory_is_of_the_longest_sentences_and_time_of_usual_ones() -> None:
    usual, longest = (
        predict(make_request("gnmt-v2", "1xV100", micro_batch=64, seq_len=n)) for n in (28, 50)
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


def test_a_cut_model_says_nothing_of_a_batch_that_it_does_not_count() -> None:
    request = make_request("mask-rcnn-r50-fpn", "8xV100", cp=2)
    assert request.peak_workload is None
    assert not any("largest batch" in a for a in request.assumptions)
