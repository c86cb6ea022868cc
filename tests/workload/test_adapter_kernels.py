"""Adapters and attention as NVIDIA's libraries run them in 8 bits: what is moved, and kept."""

from __future__ import annotations

from typing import Any

import pytest

from simcore.step.transients import saved_bytes
from simcore.strategy.precision import PRECISIONS
from simcore.workload.archs.transformer import build
from simcore.workload.graph import Block, Op

SEQ, DIM, FFN, RANK, HEADS = 64, 128, 224, 8, 4
_LLAMA: dict[str, Any] = {
    "name": "x", "layers": 2, "hidden": DIM, "heads": HEADS, "kv_heads": 2, "vocab": 101,
    "seq_len": SEQ, "mlp": "swiglu", "positions": "rope", "norm": "rmsnorm", "bias": False,
    "fused_qkv": True, "fused_gate_up": True, "fused_pointwise": True, "tied": False, "ffn": FFN,
}  # fmt: skip
_LORA: dict[str, Any] = {
    "lora_rank": RANK, "lora_targets": "qkv_proj,o_proj", "lora_dropout": 0.1,
}  # fmt: skip
QKV = 2 * DIM
#: Inputs of both adapters.
DROPPED = 2 * SEQ * DIM


def layer(**settings: Any) -> Block:
    return next(b for b in build(**_LLAMA, **settings).blocks if b.name.startswith("layer"))


def op(block: Block, name: str) -> Op:
    (found,) = (o for o in block.ops if o.name == name)
    return found


def kept(block: Block, precision: str = "bf16-true") -> float:
    return saved_bytes(block.saved, PRECISIONS[precision])


def test_a_dropout_drawn_anew_keeps_no_mask_and_one_of_bits_an_eighth() -> None:
    apart, redrawn, joined = (
        kept(layer(**_LORA, lora_kernels=how)) for how in ("apart", "redrawn", "joined")
    )
    assert apart - redrawn == DROPPED
    assert joined - redrawn == DROPPED / 8


def test_joined_adapters_add_within_their_products() -> None:
    apart, joined = (layer(**_LORA, lora_kernels=how) for how in ("apart", "joined"))
    gone = {o.name for o in apart.ops} - {o.name for o in joined.ops}
    assert gone == {f"{p}.lora_{k}" for p in ("qkv", "attention.out")
                    for k in ("scale", "sum", "fork")}  # fmt: skip
    for product, width in (("qkv", QKV), ("attention.out", DIM)):
        up = [op(b, f"{product}.lora_b").fwd[0].low for b in (apart, joined)]
        assert up[1] - up[0] == SEQ * width, "what the frozen product wrote is read"
        down = [op(b, product).bwd[0].low for b in (apart, joined)]
        assert down[1] - down[0] == SEQ * DIM, "and so is the adapter's gradient of its input"
    assert apart.params == joined.params


def test_joined_adapters_are_no_wider_than_what_they_add_to() -> None:
    with pytest.raises(ValueError, match="lora_wide"):
        layer(**_LORA, lora_kernels="joined", lora_wide=True)
    with pytest.raises(ValueError, match="redrawn"):
        layer(**_LORA, lora_kernels="fused")


@pytest.mark.parametrize(("precision", "width"), [("fp8", 1), ("bf16-true", 2)])
def test_frozen_products_behind_norms_keep_what_they_read(precision: str, width: int) -> None:
    """Both norms' results, in the products' format; 16 bit are shared with an adapter's."""

    def more(**settings: Any) -> float:
        one, other = (layer(**settings, frozen_inputs=on) for on in (True, False))
        return kept(one, precision) - kept(other, precision)

    assert more(**_LORA) == 2 * SEQ * DIM * width
    shared = more(**{**_LORA, "lora_dropout": 0.0})
    assert shared == SEQ * DIM * (2 * width if precision == "fp8" else width)
    assert more() == 0, "trained products keep it anyway"


def test_attention_in_8_bits_keeps_all_in_8_bits() -> None:
    """q, k, v and the output, where 16 bits keep the unturned q and k with the packed v too."""
    narrow, wide = (kept(layer(**_LORA, attention=name), "fp8") for name in ("cudnn_fp8", "cudnn"))
    q, kv = DIM, DIM // 2
    ours = SEQ * (2 * q + 2 * kv)
    assert wide - narrow == 2 * ours + 2 * SEQ * (q + kv) - ours


def test_an_adapter_keeps_the_output_that_attention_keeps_in_8_bits() -> None:
    plain = {**_LORA, "lora_dropout": 0.0}
    block = layer(**plain, attention="cudnn_fp8")
    assert op(block, "attention.out.lora_a").saved.low == SEQ * DIM
    assert op(layer(**plain, attention="cudnn"), "attention.out.lora_a").saved.low == 0


def test_an_activation_that_casts_spares_its_products_that() -> None:
    plain, casts = (layer(activation_casts=on) for on in (False, True))
    assert op(plain, "down").fwd[0].cast == SEQ * FFN
    assert op(plain, "gate_up").bwd[0].cast == 2 * SEQ * FFN
    assert op(casts, "down").fwd[0].cast == op(casts, "gate_up").bwd[0].cast == 0
    for name in ("qkv", "attention.out"):
        assert op(plain, name) == op(casts, name)
    assert op(plain, "gate_up").fwd == op(casts, "gate_up").fwd
    assert op(plain, "down").bwd == op(casts, "down").bwd
