"""Keywords of other programs lead to those that there are."""

from __future__ import annotations

import pytest

from simcore import api
from simcore.base.errors import InvalidConfig


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ({"zero": 1}, "strategy='zero1'"),
        ({"zero_stage": "3"}, "strategy='zero3'"),
        ({"batch_size": 4}, "micro_batch"),
        ({"gradient_accumulation_steps": 4}, "grad_accum"),
        ({"gradient_checkpointing": True}, "recompute='full'"),
        ({"tensor_parallel_size": 4}, "tp"),
        ({"nodes": 2}, "nnodes"),
        ({"microbatch": 2}, "'micro_batch'"),
    ],
)
def test_a_call_says_which_word_is_meant(words: dict[str, object], meant: str) -> None:
    with pytest.raises(InvalidConfig, match="did you mean") as told:
        api.predict("llama2-7b", "8xA100", **words)  # type: ignore[arg-type]
    (name,) = words
    assert f"unknown setting {name!r}: did you mean {meant}?" in str(told.value)


def test_a_stage_that_there_is_not_is_no_strategy() -> None:
    with pytest.raises(InvalidConfig, match="did you mean strategy='zeroN'"):
        api.predict("llama2-7b", "8xA100", zero=4)  # type: ignore[call-arg]


def test_every_word_that_is_proposed_is_taken() -> None:
    """What a call says instead is heard: the words of the message, said so, make a prediction."""
    said = api.predict("llama2-7b", "8xA100", strategy="zero1", micro_batch=1, recompute="full")
    assert said.strategy == "zero1" and said.micro_batch == 1
