"""Kernels by name: FLOP stay, traffic and what is kept follow the kernels."""

import pytest

from simcore.strategy.precision import PRECISIONS
from simcore.workload.archs import ARCHS, load

load("transformer")
SHAPE = {
    "layers": 2, "hidden": 1024, "heads": 16, "kv_heads": 4, "ffn": 2816, "vocab": 32000,
    "seq_len": 512, "norm": "rmsnorm", "mlp": "swiglu", "positions": "rope", "bias": False,
    "tied": False,
}  # fmt: skip


def layer(**changes):
    built = ARCHS["transformer"](name="x", **{**SHAPE, **changes})
    return next(b for b in built.blocks if b.recomputable)


def moved(block, words, *, backward=False):
    kernels = [
        k for op in block.ops if any(w in op.name for w in words)
        for k in (op.bwd if backward else op.fwd)
    ]  # fmt: skip
    return sum(k.low + k.high for k in kernels)


def test_fused_rope_and_gate_move_each_element_once():
    fused, plain = layer(fused_pointwise=True), layer()
    q, kv, inner = 512 * 1024, 512 * 256, 512 * 2816
    assert moved(fused, ["rope"]) == 2 * (q + kv)
    assert moved(fused, ["product"]) == 3 * inner
    assert moved(fused, ["product"], backward=True) == 5 * inner
    # in tensor operations: mul, neg of half, cat, mul, add; silu, then the product
    assert moved(plain, ["rope"]) == 10 * (q + kv)
    assert moved(plain, ["activation", "silu", "product"]) == 5 * inner


def test_attention_kernels_do_the_same_products():
    def products(**changes):
        return sum(
            k.flop for op in layer(kv_heads=16, **changes).ops for k in op.fwd
            if "attention" in op.name
        )  # fmt: skip

    causal = products(attention="flash")
    assert products(attention="flash1") == causal
    assert products(attention="flash_triton") == causal
    # scores written out are not halved by the mask
    scores = 4 * 512 * 512 * 1024
    written = products(attention="fused_softmax")
    assert written - causal == pytest.approx(scores / 2)


def test_fused_softmax_keeps_what_korthikanti_counts():
    """sb (34 h + 5 a s) bytes a layer: Korthikanti et al. 2022, equation 1."""
    seq, hidden, heads = 1024, 2304, 24
    block = layer(
        hidden=hidden, heads=heads, kv_heads=heads, ffn=4 * hidden, seq_len=seq, norm="layernorm",
        mlp="gelu", positions="learned", bias=True, dropout=0.1, attention="fused_softmax",
        fused_pointwise=True,
    )  # fmt: skip
    p = PRECISIONS["fp16"]
    kept = block.saved.low * p.low_bytes + block.saved.high * p.high_bytes + block.saved.raw_bytes
    assert kept == pytest.approx(seq * (34 * hidden + 5 * heads * seq), rel=0.01)
