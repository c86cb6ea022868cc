"""The data-parallel strategy of a divided model where none is named."""

from __future__ import annotations

import pytest

from simcore import api


@pytest.mark.parametrize(
    ("software", "layout", "usual"),
    [
        ("megatron-lm", {"tp": 2}, "zero1"),
        ("megatron-lm", {"pp": 2}, "zero1"),
        ("torchtitan", {"tp": 2}, "zero3"),  # fully_shard over DTensors
        ("torchtitan", {"pp": 2}, "zero1"),  # a pipeline's weights stay gathered
        ("torchtitan", {"cp": 2}, "zero3"),
        ("accelerate", {"tp": 2}, "zero3"),
        (None, {"tp": 2}, "zero1"),
        (None, {}, "zero3"),
    ],
)
def test_a_program_says_whether_tensor_ranks_shard(
    software: str | None, layout: dict[str, int], usual: str
) -> None:
    job = api.predict("llama3-8b", "8xH100", software=software, **layout)
    assert job.strategy == usual
