"""Vision transformer (Dosovitskiy et al. 2020) as in torchvision, on torch's multi-head attention.

That module has packed q, k and v and puts the sequence first: its input, q, k, v and the residual
sum are rearranged, which costs copies in forward and more in backward (counted from the operators
that torch 2.13 dispatches).
"""

from __future__ import annotations

from simcore.base.units import FP32_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.checks import check_names, head_width
from simcore.workload.archs.lm_attention import SCORES
from simcore.workload.archs.params import norm_params, weight_and_bias
from simcore.workload.graph import Block, Kernel, Op, Param, Workload
from simcore.workload.saved import Saved


def _patches(image: int, patch: int, hidden: int, tokens: int, channels: int) -> Block:
    side = image // patch
    elems = float(tokens * hidden)
    cat = Kernel(kind="copy", low=side * side * hidden, high=elems, weight=float(hidden))
    # The class token's gradient is a slice, summed over the batch.
    token = Kernel(kind="reduction", high=hidden, weight=float(hidden))
    body = (
        ops.conv(
            "patches", (image, image), (side, side), channels, hidden, patch, stride=patch,
            input_grad=False, bias=True,
        ),
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


def _qkv(tokens: int, hidden: int) -> tuple[Op, ...]:
    elems = float(tokens * hidden)
    bias = Kernel(kind="elementwise", low=6 * elems, weight=3.0 * hidden, indexed=3 * elems)
    # The gradients of q, k and v arrive separately: six rearrangements, three scattered into zeros,
    # two sums, one copy back to the packed order.
    split = (
        Kernel(kind="copy", low=12 * elems, launches=6.0, indexed=6 * elems),
        Kernel(kind="copy", low=15 * elems, launches=3.0),
        Kernel(kind="elementwise", low=18 * elems, launches=2.0),
        Kernel(kind="copy", low=6 * elems, indexed=3 * elems),
    )
    turned = Kernel(kind="copy", low=6 * elems, indexed=3 * elems)
    return (
        ops.copy("sequence_first", elems),
        ops.linear("qkv", tokens, hidden, 3 * hidden, bias=True, input_high=True),
        Op(name="qkv.bias", fwd=(bias,)),
        Op(name="qkv.split", fwd=(turned,), bwd=split),
    )


def _qkv_views(tokens: int, hidden: int) -> tuple[Op, ...]:
    """One product of batch-first rows, as in timm, whose parts are views.

    Backward joins the gradients of the parts. timm, models/vision_transformer.py, which DeiT and
    MAE use; products copy their inputs.
    """
    return (
        ops.linear("qkv", tokens, hidden, 3 * hidden, bias=True, input_high=True),
        ops.grad_only("qkv.unbind", 6.0 * tokens * hidden, kind="copy"),
    )


def _parts(hidden: int, bias: bool) -> tuple[Param, ...]:
    parts = [weight_and_bias(part, hidden, hidden) for part in "qkv"]
    return tuple(p for pair in parts for p in (pair if bias else pair[:1]))


def _qkv_apart(tokens: int, hidden: int, bias: bool, *, fused: bool) -> tuple[Op, ...]:
    """Three products of batch-first rows, as in transformers."""
    first, *more = (
        ops.linear(
            part, tokens, hidden, hidden, bias=bias, save_input=part == "q", input_high=not fused
        )
        for part in "qkv"
    )
    return (
        first,
        *more,
        ops.accumulate("qkv.forks", float(tokens * hidden), times=2, high=not fused),
    )


def _dropout(name: str, elems: float, on: bool) -> tuple[Op, ...]:
    return (ops.dropout(name, elems),) if on else ()


def _layer(
    tokens: int,
    hidden: int,
    heads: int,
    ffn: int,
    packed: bool,
    qkv_bias: bool,
    attention: str,
    drop: bool,
) -> Block:
    elems = float(tokens * hidden)
    core: tuple[Op, ...] = (
        ops.sdpa("attention", 1, heads, heads, tokens, tokens, hidden // heads),
    )
    if attention in SCORES:
        core = ops.attention_fused_softmax(
            "attention", heads, tokens, tokens, hidden // heads, passes=attention == "xla"
        )
    elif attention == "math":
        core = ops.attention_eager("attention", heads, tokens, tokens, hidden // heads)
    flash = attention == "flash"
    fused = attention == "xla"  # whose fusions include casts
    torch_module = packed and attention != "math"
    if not packed:
        products = _qkv_apart(tokens, hidden, qkv_bias, fused=fused)
    else:
        products = _qkv(tokens, hidden) if torch_module else _qkv_views(tokens, hidden)
    back = (ops.grad_only("batch_first", 2 * elems, kind="copy"),) if torch_module else ()
    qkv = weight_and_bias("qkv", hidden, 3 * hidden)
    body = (
        ops.layer_norm("norm1", tokens, hidden),
        *products,
        *core,
        ops.linear("attention.out", tokens, hidden, hidden, bias=True, save_input=not flash),
        *_dropout("attention.dropout", elems, drop),
        *back,
        ops.residual("attention.residual", elems, fused=fused),
        ops.accumulate("attention.fork", elems, high=True, casts=elems * (not fused)),
        ops.layer_norm("norm2", tokens, hidden),
        ops.linear("up", tokens, hidden, ffn, bias=True, input_high=not fused),
        ops.activation("gelu", tokens * ffn),
        *_dropout("mlp.activation.dropout", float(tokens * ffn), drop),
        ops.linear("down", tokens, ffn, hidden, bias=True),
        *_dropout("mlp.dropout", elems, drop),
        ops.residual("mlp.residual", elems, fused=fused),
        ops.accumulate("mlp.fork", elems, high=True, casts=elems * (not fused)),
    )
    params = (
        *norm_params("norm1", hidden),
        *(qkv if packed else _parts(hidden, qkv_bias)),
        *weight_and_bias("attention.out", hidden, hidden),
        *norm_params("norm2", hidden),
        *weight_and_bias("up", hidden, ffn),
        *weight_and_bias("down", ffn, hidden),
    )
    return Block(
        name="layer", ops=body, params=params, boundary=Saved(high=elems), recomputable=True
    )


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
    head_width(hidden, heads)
    if image % patch:
        raise ValueError(f"image {image} is not a multiple of patch {patch}")
    check_names(attention=(attention, ("flash", *SCORES, "math")))
    if packed and not qkv_bias:
        raise ValueError("qkv_bias false needs packed false")
    tokens = (image // patch) ** 2 + 1
    head = (
        ops.layer_norm("norm", tokens, hidden),
        ops.grad_only("class_token", 2.0 * tokens * hidden, kind="copy", high=True),
        # The class token is a view: the whole normalised sequence is saved for the head.
        ops.keep("class_token.view", float(tokens * hidden), high=True),
        ops.linear("head", 1, hidden, classes, bias=True, save_input=False),
        ops.cross_entropy("loss", 1, classes),
        ops.loss_seed(),
    )
    blocks: tuple[Block, ...] = (
        _patches(image, patch, hidden, tokens, channels),
        _layer(tokens, hidden, heads, ffn or 4 * hidden, packed, qkv_bias, attention, dropout > 0),
        Block(
            name="head",
            ops=head,
            params=(*norm_params("norm", hidden), *weight_and_bias("head", hidden, classes)),
        ),
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
