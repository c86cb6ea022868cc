"""What a product of q, k and v keeps for backward: v is a part of it, or a copy."""

from __future__ import annotations

from typing import Any

import pytest

from simcore.step.transients import saved_bytes
from simcore.strategy.precision import PRECISIONS
from simcore.strategy.programs import program_named
from simcore.workload.archs.transformer import build
from simcore.workload.graph import Block

torch = pytest.importorskip("torch")

SEQ, HEADS, KV_HEADS, WIDTH = 48, 4, 2, 16


class Attention(torch.autograd.Function):  # type: ignore[misc]
    """Saves what flash attention's autograd function saves of its inputs."""

    @staticmethod
    def forward(ctx: Any, *qkv: Any) -> Any:
        ctx.save_for_backward(*qkv)
        return qkv[0].clone()


def bytes_kept_by_torch(copied: bool) -> int:
    """By attention's inputs: q and k rotated, v a part of the product or a copy of it."""
    parts, kept = [HEADS * WIDTH, KV_HEADS * WIDTH, KV_HEADS * WIDTH], dict[int, int]()

    def keep(t: Any) -> Any:
        kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    product = torch.randn(SEQ, sum(parts), requires_grad=True)
    q, k, v = torch.split(product, parts, dim=-1)
    q, k = torch.sin(q), torch.sin(k)
    v = v.contiguous() if copied else v
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        assert Attention.apply(q, k, v).grad_fn is not None
    return sum(kept.values())


def layer(**settings: Any) -> Block:
    net = build(
        name="x", layers=1, hidden=HEADS * WIDTH, heads=HEADS, kv_heads=KV_HEADS, vocab=99,
        seq_len=SEQ, mlp="swiglu", positions="rope", norm="rmsnorm", bias=False, tied=False,
        fused_qkv=True, ffn=96, **settings,
    )  # fmt: skip
    return next(b for b in net.blocks if b.recomputable)


def test_a_copy_of_v_frees_the_product_as_in_torch() -> None:
    p = PRECISIONS["fp32-ieee"]
    part, copied = (saved_bytes(layer(values_copied=how).saved, p) for how in (False, True))
    freed = part - copied
    assert freed == 4 * SEQ * (HEADS + KV_HEADS) * WIDTH
    assert freed == bytes_kept_by_torch(False) - bytes_kept_by_torch(True)


def test_the_copy_is_made_in_forward_alone_and_where_v_is_a_part() -> None:
    ops = {op.name: op for op in layer(values_copied=True).ops}
    assert ops["values"].fwd[0].low == 2 * SEQ * KV_HEADS * WIDTH and not ops["values"].bwd
    assert "qkv.packed" not in ops
    for other in ({"attention": "math"}, {"positions": "learned"}):
        net = build(
            name="x", layers=1, hidden=64, heads=4, vocab=99, seq_len=SEQ, fused_qkv=True,
            values_copied=True, **({"positions": "rope"} | other),
        )  # fmt: skip
        assert all(op.name != "values" for block in net.blocks for op in block.ops)


def test_which_programs_copy_v() -> None:
    def copies(name: str) -> bool:
        return bool("values_copied" in dict(program_named(name).runs.settings))

    assert copies("megatron-lm") and copies("megatron") and copies("nemo")
    assert not copies("scaling") and not copies("torchtitan")
