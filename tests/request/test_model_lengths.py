"""Sequences whose lengths vary, and samples packed with them."""

from __future__ import annotations

from typing import Any

import pytest

from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.base.errors import InvalidConfig

JOB = {"strategy": "zero3", "recompute": "full", "precision": "bf16"}


@pytest.mark.parametrize("layout", [{}, {"tp": 2}, {"cp": 2}])
def test_time_is_of_the_mean_and_memory_of_the_longest(layout: dict[str, Any]) -> None:
    def of(**lengths: int) -> Any:
        return predict(make_request("llama3.1-8b", "8xH100", **JOB, **layout, **lengths))

    varied, mean, longest = of(seq_len=8192, mean_seq_len=1280), of(seq_len=1280), of(seq_len=8192)
    assert varied.step_time_s.value == mean.step_time_s.value
    assert varied.tokens_per_s == mean.tokens_per_s
    assert varied.memory.needed_bytes == longest.memory.needed_bytes
    assert any("1280 tokens on average and at most 8192" in a for a in varied.assumptions)
    assert varied.options["seq_len"] == 8192


def test_a_packed_sample_does_the_work_of_its_sequences() -> None:
    """Products of as many tokens, and attention within each of 8 sequences of 1,024 tokens."""
    packed = make_request(
        "llama3.1-8b", "8xH100", **JOB, seq_len=8192, mean_seq_len=1024, packing="on"
    ).workload
    alone = make_request("llama3.1-8b", "8xH100", **JOB, seq_len=1024).workload
    assert packed.tokens_per_sample == 8192
    assert packed.forward_flop == pytest.approx(8 * alone.forward_flop, rel=1e-6)
    whole = make_request("llama3.1-8b", "8xH100", **JOB, seq_len=8192).workload
    assert packed.saved == whole.saved  # memory is of as many tokens


def test_where_attention_has_windows_packing_changes_none() -> None:
    job = make_request("gemma-3-12b", "8xH100", **JOB, seq_len=8192, mean_seq_len=512, packing="on")
    assert job.workload.forward_flop == pytest.approx(
        make_request("gemma-3-12b", "8xH100", **JOB, seq_len=8192).workload.forward_flop
    )
    assert any("counted over whole samples" in a for a in job.assumptions)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"seq_len": 1024, "mean_seq_len": 2048}, "more than seq-len 1024"),
        ({"packing": "on"}, "packing needs --mean-seq-len"),
        ({"mean_seq_len": 512, "pp": 2}, "pipeline stages"),
    ],
)
def test_lengths_that_make_no_sense_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        make_request("llama3.1-8b", "8xH100", **options)
    with pytest.raises(InvalidConfig, match="has no sequence length"):
        make_request("resnet-50", "8xH100", mean_seq_len=128)
