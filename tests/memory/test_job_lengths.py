"""Memory of sequences whose lengths vary: between a batch of mean ones and one of the longest."""

from __future__ import annotations

from typing import Any

import pytest

from simcore import api
from simcore.base.figures import Z80
from simcore.report.sentences import verdict

JOB: dict[str, Any] = {
    "micro_batch": 16, "recompute": "full", "precision": "bf16", "lora_rank": 8,
    "software": "transformers",
}  # fmt: skip


def _memory(gpus: str = "1xA100-80GB", **words: Any) -> Any:
    return api.predict("qwen2.5-7b", gpus, **JOB | words).memory


def test_the_interval_begins_with_a_batch_of_mean_lengths() -> None:
    longest, mean = _memory(seq_len=2048), _memory(seq_len=256)
    varied = _memory(seq_len=2048, mean_seq_len=256)
    assert varied.device_bytes == longest.device_bytes
    assert varied.high_bytes == longest.high_bytes
    assert varied.shorter_bytes == pytest.approx(longest.device_bytes - mean.device_bytes)
    half = longest.high_bytes - longest.device_bytes
    share = mean.device_bytes / longest.device_bytes
    assert varied.low_bytes == pytest.approx(mean.device_bytes - half * share)
    assert half > Z80 * longest.tensors_sd_bytes * 0.99


def test_the_lower_bound_is_as_far_below_mean_lengths_as_that_of_a_job_of_mean_lengths() -> None:
    """A half width belongs to the memory that it is a share of: of a third of it, a third."""
    varied = _memory(seq_len=2048, mean_seq_len=128, micro_batch=64)
    mean = _memory(seq_len=128, micro_batch=64)
    assert varied.shorter_bytes > 0.5 * varied.device_bytes
    assert varied.low_bytes == pytest.approx(mean.low_bytes, rel=0.05)


def test_a_job_of_which_mean_lengths_alone_fit_is_tight() -> None:
    varied = _memory("1xL40S", seq_len=2048, mean_seq_len=256)
    assert not varied.fits and varied.tight
    word, sentence = verdict(varied)
    assert word == "TIGHT" and "mean length, not with the longest" in sentence
    assert not _memory("1xL40S", seq_len=2048).tight
