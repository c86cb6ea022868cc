"""Vision transformer (Dosovitskiy et al. 2020) as in torchvision, on torch's multi-head attention.

That module has packed q, k and v and puts the sequence first: its input, q, k, v and the residual
sum are rearranged, which costs copies in forward and more in backward (counted from the operators
that torch 2.13 dispatches).
"""

from __future__ import annotations

from simcore.base.units import FP32_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.body import Body
from simcore.workload.archs.lm_attention import SCORES
from simcore.workload.archs.params import norm_params, weight_and_bias
from simcore.workload.archs.parts import check_names, head_width
from simcore.workload.archs.towers import Tower, attend, layer, scores
from simcore.workload.graph import Block, Kernel, Op, Param, Workload


def patches_op(image: int, patch: int, hidden: int, channels: int) -> Op:
    """The convolution that makes rows of an image's patches."""
    sides = (image,) * 2, (image // patch,) * 2
    return ops.conv(
        "patches", *sides, channels, hidden, patch, stride=patch, input_grad=False, bias=True
    )


def class_head(tokens: int, hidden: int, classes: int) -> Block:
    """A norm, a linear layer on the class token, and the loss.

    The class token is a view: the whole normalised sequence is saved for the head.
    """
    body = (
        ops.layer_norm("norm", tokens, hidden),
        ops.grad_only("class_token", 2.0 * tokens * hidden, kind="copy", high=True),
        ops.keep("class_token.view", float(tokens * hidden), high=True),
        ops.linear("head", 1, hidden, classes, bias=True, save_input=False),
        ops.cross_entropy("loss", 1, classes),
        ops.loss_seed(),
    )
    params = (*norm_params("norm", hidden), *weight_and_bias("head", hidden, classes))
    return Block(name="head", ops=body, params=params)


def _patches(image: int, patch: int, hidden: int, tokens: int, channels: int) -> Block:
    side = image // patch
    elems = float(tokens * hidden)
    cat = Kernel(kind="copy", low=side * side * hidden, high=elems, weight=float(hidden))
    # The class token's gradient is a slice, summed over the batch.
    token = Kernel(kind="reduction", high=hidden, weight=float(hidden))
    body = (
        patches_op(image, patch, hidden, channels),
        Op(name="class_token", fwd=(cat,), bwd=(token,)),
        ops.add_positions("positions", tokens, hidden),
    )  # fmt: skip
    params = (
        Param("class_token", hidden),
        Param("patches.weight", channels * patch * patch * hidden),
        Param("patches.bias", hidden),
        Param("positions", tokens * hidden),
    )
    return Block(name="patches", ops=body, params=params)


def _of_torch(body: Body, t: Tower, prefix: str, reads: str) -> None:
    """Add attention as torch's module runs it: packed, sequence first.

    The gradients of q, k and v arrive separately: six rearrangements, three scattered into zeros,
    two sums, one copy back to the packed order.
    """
    elems, width = t.elems, t.hidden
    split = (
        Kernel(kind="copy", low=12 * elems, launches=6.0, indexed=6 * elems),
        Kernel(kind="copy", low=15 * elems, launches=3.0),
        Kernel(kind="elementwise", low=18 * elems, launches=2.0),
        Kernel(kind="copy", low=6 * elems, indexed=3 * elems),
    )
    turned = Kernel(kind="copy", low=6 * elems, indexed=3 * elems)
    body.add(ops.copy("sequence_first", elems))
    body.linear("qkv", t.rows, width, 3 * width, bias=True, reads=reads)
    body.add(
        Op(name="qkv.bias", fwd=(ops.added_bias(3 * elems, 3 * width),)),
        Op(name="qkv.split", fwd=(turned,), bwd=split),
    )
    scores(body, t, prefix)
    body.linear("attention.out", t.rows, width, width, bias=True, reads="context")
    body.add(ops.grad_only("batch_first", 2 * elems, kind="copy"))


def _of_timm(body: Body, t: Tower, prefix: str, reads: str) -> None:
    """Add attention of one product of batch-first rows, as in timm, whose parts are views.

    Backward joins the gradients of the parts. timm, models/vision_transformer.py, which DeiT and
    MAE use; products copy their inputs.
    """
    body.linear("qkv", t.rows, t.hidden, 3 * t.hidden, bias=True, reads=reads)
    body.add(ops.grad_only("qkv.unbind", 6.0 * t.elems, kind="copy"))
    scores(body, t, prefix)
    body.linear("attention.out", t.rows, t.hidden, t.hidden, bias=True, reads="context")


@ARCHS.register("vit")
def build(
    *,
    name: str,
    sample_unit: str = "image",
    layers: int,
    hidden: int,
    heads: int,
    ffn: int = 0,
    image: int = 224,
    patch: int = 16,
    classes: int = 1000,
    channels: int = 3,
    packed: bool = True,
    qkv_bias: bool = True,
    attention: str = "flash",
    dropout: float = 0.0,
) -> Workload:
    """ViT on square images with a class token; without ``dropout`` (torchvision's default).

    ``attention``: flash; fused_softmax or xla, with scores in memory, as in ``transformer``; or
    math: tensor operations, as in timm before 0.9 and transformers before 2024. ``packed``: torch's
    multi-head attention, sequence first (under math timm's one product); otherwise three products,
    as in transformers, with or without ``qkv_bias``.
    """
    if image % patch:
        raise ValueError(f"image {image} is not a multiple of patch {patch}")
    check_names(attention=(attention, ("flash", *SCORES, "math")))
    if packed and not qkv_bias:
        raise ValueError("qkv_bias false needs packed false")
    tokens, drop = (image // patch) ** 2 + 1, dropout > 0
    tower = Tower(
        rows=tokens, hidden=hidden, heads=heads, head_dim=head_width(hidden, heads),
        ffn=ffn or 4 * hidden, attention=attention, qkv_bias="qkv" * qkv_bias, drop=drop,
        drop_mlp=drop, drop_inner=drop,
    )  # fmt: skip
    attends = attend
    if packed:
        attends = _of_timm if attention == "math" else _of_torch
    blocks: tuple[Block, ...] = (
        _patches(image, patch, hidden, tokens, channels),
        layer(tower, "layer", attend=attends),
        class_head(tokens, hidden, classes),
    )
    if attention == "xla":
        blocks = tuple(ops.compiled(b) for b in blocks)
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=blocks,
        order=(0, *[1] * layers, 2),
        input_bytes=FP32_BYTES * channels * image * image + 8,
        tokens_per_sample=tokens,
    )
