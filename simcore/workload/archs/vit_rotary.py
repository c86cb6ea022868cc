"""DINOv3's vision transformer (Siméoni et al. 2025): rotary positions, registers, scaled branches.

As transformers' ``DINOv3ViTModel``, with a linear classifier on the class token.
"""

from __future__ import annotations

from collections.abc import Callable

from simcore.base.units import FP32_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.body import Body
from simcore.workload.archs.lm_attention import rope
from simcore.workload.archs.parts import check_names, head_width
from simcore.workload.archs.towers import Tower, feed, layer, scores
from simcore.workload.archs.vit import class_head, patches_op
from simcore.workload.graph import Block, Kernel, Op, Param, Workload


def _patches(image: int, patch: int, hidden: int, registers: int, channels: int) -> Block:
    side = image // patch
    elems = float((side * side + 1 + registers) * hidden)
    cat = Kernel(kind="copy", low=side * side * hidden, high=elems, weight=float(hidden))
    # Gradients of class and register tokens are slices, summed over the batch.
    tokens = Kernel(kind="reduction", high=float(hidden * (1 + registers)), launches=2.0)
    angles = Kernel(kind="elementwise", launches=12.0)  # of one image, for all layers
    body = (
        patches_op(image, patch, hidden, channels),
        Op(name="tokens", fwd=(cat,), bwd=(tokens,)),
        Op(name="rope.table", fwd=(angles,)),
    )  # fmt: skip
    params = (
        Param("class_token", hidden),
        Param("mask_token", hidden),
        *((Param("register_tokens", registers * hidden),) if registers else ()),
        Param("patches.weight", channels * patch * patch * hidden),
        Param("patches.bias", hidden),
    )
    return Block(name="patches", ops=body, params=params)


def _scaled(body: Body, t: Tower, name: str) -> None:
    """Add the product of a branch's result and one learned factor a channel."""
    body.add(
        ops.binary(f"{name}.scale", t.elems, broadcast=float(t.hidden), saves=t.elems, grads=2)
    )
    body.param(f"{name}.lambda", t.hidden)


def _attend(patches: int) -> Callable[[Body, Tower, str, str], None]:
    def attend(body: Body, t: Tower, prefix: str, reads: str) -> None:
        """Add attention whose q and k have rotary positions, without those of the other tokens."""
        inner = t.heads * t.head_dim
        for part in "qkv":
            body.linear(part, t.rows, t.hidden, inner, bias=part in t.qkv_bias, reads=reads)
        body.add(ops.accumulate("forks", t.elems, times=2, high=reads in body.high))
        turned, others = float(patches * inner), float((t.rows - patches) * inner)
        body.add(*(rope(f"rope.{part}", turned, others) for part in "qk"))
        scores(body, t, prefix)
        body.linear("attention.out", t.rows, inner, t.hidden, bias=True, reads="context")
        _scaled(body, t, "attention")

    return attend


def _feed(body: Body, t: Tower) -> None:
    feed(body, t)
    _scaled(body, t, "mlp")


@ARCHS.register("vit_rotary")
def build(
    *,
    name: str,
    sample_unit: str = "image",
    layers: int,
    hidden: int,
    heads: int,
    ffn: int = 0,
    mlp: str = "gelu",
    image: int = 224,
    patch: int = 16,
    registers: int = 4,
    classes: int = 1000,
    channels: int = 3,
    qkv_bias: str = "qv",
    attention: str = "flash",
) -> Workload:
    """DINOv3's ViT on square images.

    ``mlp``: gelu or swiglu. ``qkv_bias``: which of q, k and v have one. ``attention``: flash, or
    math (tensor operations).
    """
    if image % patch:
        raise ValueError(f"image {image} is not a multiple of patch {patch}")
    check_names(attention=(attention, ("flash", "math")), mlp=(mlp, ("gelu", "swiglu")))
    patches = (image // patch) ** 2
    tokens = patches + 1 + registers
    tower = Tower(
        rows=tokens, hidden=hidden, heads=heads, head_dim=head_width(hidden, heads),
        ffn=ffn or 4 * hidden, mlp=mlp, attention=attention, qkv_bias=qkv_bias,
    )  # fmt: skip
    blocks = (
        _patches(image, patch, hidden, registers, channels),
        layer(tower, "layer", feed=_feed, attend=_attend(patches)),
        class_head(tokens, hidden, classes),
    )  # fmt: skip
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=blocks,
        order=(0, *[1] * layers, 2),
        input_bytes=FP32_BYTES * channels * image * image + 8,
        tokens_per_sample=tokens,
    )
