"""Gradients that are gone once their parameter is updated: torchtune's ``optimizer_in_bwd``."""

from __future__ import annotations

from typing import Any

import pytest

from simcore import api
from simcore.base.errors import InvalidConfig

JOB: dict[str, Any] = {
    "strategy": "ddp", "precision": "bf16-true", "micro_batch": 1, "seq_len": 128,
    "recompute": "full", "optimizer": "adamw", "optimizer_impl": "fused", "grad_clip": False,
}  # fmt: skip
#: Llama 3.1 8B: its head and its embedding, of 128,256 words and 4,096 channels, are the largest.
LARGEST_BYTES = 128_256 * 4096 * 2


def test_one_gradient_exists_at_a_time() -> None:
    after = api.predict("llama3.1-8b", "1xH200", **JOB).memory
    within = api.predict("llama3.1-8b", "1xH200", update_in_backward=True, **JOB).memory
    assert within.terms["gradients"] == pytest.approx(LARGEST_BYTES)
    parameters = after.terms["parameters"]
    assert after.allocated_bytes - within.allocated_bytes == pytest.approx(
        parameters - LARGEST_BYTES, rel=0.05
    )
    # nothing else than gradients, the allocator's blocks for them, and the moment changes
    assert within.terms["optimizer_state"] == after.terms["optimizer_state"] == 2 * parameters
    assert within.needed_bytes < after.needed_bytes


def test_a_shard_s_gradients_are_those_of_its_largest_tensor() -> None:
    job = JOB | {"strategy": "zero3"}
    within = api.predict("llama3.1-8b", "1x8xH100", update_in_backward=True, **job).memory
    assert within.terms["gradients"] == pytest.approx(LARGEST_BYTES / 8, rel=1e-6)


@pytest.mark.parametrize(
    ("gpus", "words", "said"),
    [
        ("1xH200", {"grad_accum": 4}, "grad-accum 1, not 4"),
        ("1xH200", {"grad_clip": True}, "--grad-clip off"),
        ("1x8xH200", {}, "needs zero3"),
        ("1xH200", {"main_grads": "fp32", "precision": "bf16"}, "--main-grads weights"),
        ("1x8xH200", {"strategy": "zero3", "offload": "optimizer"}, "optimizer on the GPU"),
    ],
)
def test_what_needs_all_gradients_is_refused(gpus: str, words: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        api.predict("llama3.1-8b", gpus, update_in_backward=True, **JOB | words)
