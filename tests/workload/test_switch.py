"""Switch layers in T5's stacks, against transformers' SwitchTransformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import SwitchTransformersConfig, SwitchTransformersForConditionalGeneration

from simcore.workload.archs.body_layers import BodyList
from simcore.workload.graph import Workload

t5 = BodyList("t5")

_SIZES: dict[str, Any] = {
    "layers": 4, "hidden": 64, "heads": 4, "head_dim": 16, "ffn": 128, "vocab": 100, "seq_len": 32,
}  # fmt: skip


def _numel(w: Workload) -> int:
    return sum(w.blocks[i].numel for i in w.order)


@pytest.mark.parametrize("step", [1, 2, 4])
def test_parameters_are_those_of_the_module(step: int) -> None:
    config = SwitchTransformersConfig(
        vocab_size=100, d_model=64, d_kv=16, d_ff=128, num_layers=4, num_decoder_layers=4,
        num_sparse_encoder_layers=4 // step, num_sparse_decoder_layers=4 // step, num_heads=4,
        num_experts=8,
    )  # fmt: skip
    with torch.device("meta"):
        module = SwitchTransformersForConditionalGeneration(config)
    ours = t5(name="s", experts=8, sparse_step=step, **_SIZES)
    assert _numel(ours) == sum(p.numel() for p in module.parameters())


def test_room_for_all_costs_what_dense_layers_cost() -> None:
    dense = t5(name="d", **_SIZES)
    roomy = t5(name="s", experts=8, expert_capacity=32, **_SIZES)
    router = 4 * 2.0 * 32 * 64 * 8
    assert roomy.forward_flop == dense.forward_flop + router
    full = t5(name="s", experts=8, expert_capacity=2, **_SIZES)
    dropped = 4 * (32 - 8 * 2) * 2 * 2.0 * 64 * 128  # of the tokens of each of the four layers
    assert full.forward_flop == roomy.forward_flop - dropped


@pytest.mark.parametrize(
    "wrong", [{"busy_experts": 9}, {"expert_capacity": 0}, {"sparse_step": 0}, {"experts": 1001}]
)
def test_impossible_experts_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        t5(name="s", **{"experts": 8, **wrong}, **_SIZES)
