"""Lightning attention: its work against transformers' on the CPU, and by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

from simcore.workload import ops
from simcore.workload.models import MODELS
from simcore.workload.ops.lightning import BLOCK
from simcore.workload.sharding import sequence_parallel

L, H, D, B = 768, 3, 20, BLOCK


def flop(kernels: tuple[Any, ...]) -> float:
    return float(sum(k.flop for k in kernels))


def test_forward_flop_are_those_of_transformers() -> None:
    """MiniMaxLightningAttention in blocks of 256; its three products around it counted apart."""
    from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention

    config = transformers.MiniMaxConfig(
        hidden_size=48, num_attention_heads=H, head_dim=D, num_hidden_layers=2, block_size=B,
        layer_types=["linear_attention"] * 2,
    )  # fmt: skip
    with FlopCounterMode(display=False) as counter:
        MiniMaxLightningAttention(config, 0)(torch.randn(1, L, 48), (None, None), None)
    around = 2 * L * 48 * H * D * (3 + 1 + 1)
    assert flop(ops.lightning_attention("a", L, H, D).fwd) == counter.get_total_flops() - around


def test_flop_by_hand() -> None:
    op, tokens = ops.lightning_attention("a", L, H, D), L * H
    assert flop(op.fwd) == tokens * (4 * B * D + 4 * D**2)
    assert flop(op.bwd) == tokens * (12 * B * D + 10 * D**2)
    assert op.saved.low == 3 * tokens * D


def test_work_is_linear_in_length() -> None:
    one, two = (ops.lightning_attention("a", n, H, D) for n in (L, 2 * L))
    assert flop(two.fwd) == 2 * flop(one.fwd) and flop(two.bwd) == 2 * flop(one.bwd)


def test_sequence_parallelism_cuts_whole_rows_alone() -> None:
    """Norm, gate and attention are of heads that a rank has: those of all tokens."""
    part = MODELS["minimax-m1"].build(seq_len=512, heads=32, kv_heads=4)
    before, after = (
        {op.name: op for op in w.blocks[1].ops} for w in (part, sequence_parallel(part, 2))
    )
    for name in ("mixer_norm", "mixer.silu", "mixer.lightning", "output_gate.product"):
        assert after[name] == before[name]
    assert after["norm1"].saved == before["norm1"].saved * 0.5


@pytest.mark.parametrize("tp", [2, 8])
def test_tensor_ranks_divide_heads(tp: int) -> None:
    record = MODELS["minimax-m1"]
    parts = [
        {op.name: op for op in record.build(seq_len=512, heads=n, kv_heads=1).blocks[1].ops}
        for n in (64, 64 // tp)
    ]
    for name in ("qkv", "mixer.lightning", "output_gate", "out_proj"):
        assert flop(parts[0][name].fwd) == tp * flop(parts[1][name].fwd)
