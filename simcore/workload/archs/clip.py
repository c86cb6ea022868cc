"""Models of images and texts: CLIP (Radford et al. 2021) and SigLIP (Zhai et al. 2023).

Two towers and a loss over their pairs. SigLIP's is a sigmoid loss, and attention pools the rows of
its images, as in transformers (models/siglip/modeling_siglip.py). CLIP's text tower, frozen,
encodes the pooled caption of Flux.
"""

from __future__ import annotations

from dataclasses import replace

from simcore.base.units import FP32_BYTES, INT64_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS, FROZEN_ARCHS
from simcore.workload.archs.body import Body
from simcore.workload.archs.lm_mlp import MlpShape, dense
from simcore.workload.archs.parts import check_names, head_width
from simcore.workload.archs.towers import Tower, check_length, layer
from simcore.workload.graph import Block, Frozen, Kernel, Op, Param, Workload
from simcore.workload.saved import NOTHING


def _unit(body: Body, width: int) -> None:
    """Add the normalisation of one row of ``width`` elements per sample to unit length."""
    body.add(
        ops.reduction("length", width, out=1.0, saves=width),
        ops.binary("unit", width, broadcast=1.0, saves=0.0),
    )


def _tokens(text: Tower, vocab: int, max_positions: int) -> Block:
    """Block of token embeddings and learned position embeddings."""
    body = Body()
    body.embedding("tokens", text.rows, text.hidden, vocab)
    body.add(ops.add_positions("positions", text.rows, text.hidden, table_rows=max_positions))
    body.params.append(Param("positions.weight", max_positions * text.hidden))
    return body.block("tokens")


def _loss(width: int, *scalars: str) -> Block:
    """Block of the loss: rows scaled by the temperature; ``scalars``: the loss's parameters.

    The products of all pairs of the local batch grow with its square. They are left out, since they
    are small compared with the towers (B·width against the towers' layers).
    """
    body = Body()
    body.add(ops.scale("temperature", 2.0 * width), ops.loss_seed())
    body.params += [Param(scalar, 1) for scalar in scalars]
    return body.block("loss")


def _workload(
    name: str, sample_unit: str, blocks: tuple[Block, ...], vision_layers: int, text_layers: int,
    *, pixels: int, id_rows: int, seq_len: int,
) -> Workload:  # fmt: skip
    """The workload of both towers.

    ``blocks``: patches, layer and end of the image tower; tokens, layer and end of the text tower;
    loss. ``id_rows``: rows of 64-bit integers per text: token ids and perhaps their mask.
    """
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=blocks,
        order=(0, *[1] * vision_layers, 2, 3, *[4] * text_layers, 5, 6),
        input_bytes=FP32_BYTES * pixels + float(id_rows * INT64_BYTES * seq_len),
        tokens_per_sample=seq_len,
    )


def _clip_patches(t: Tower, image: int, patch: int, channels: int) -> Block:
    side, body = image // patch, Body()
    width, elems = t.hidden, t.elems
    cat = Kernel(kind="copy", low=side * side * width, high=elems, weight=float(width))
    token = Kernel(kind="reduction", high=width, weight=float(width))
    body.params += [
        Param("class_token", width),
        Param("patches.weight", channels * patch * patch * width),
        Param("positions.weight", t.rows * width),
    ]
    body.add(
        ops.conv(
            "patches", (image, image), (side, side), channels, width, patch, stride=patch,
            input_grad=False,
        ),
        Op(name="class_token", fwd=(cat,), bwd=(token,)),
        ops.add_positions("positions", t.rows, width, table_rows=t.rows),
    )  # fmt: skip
    body.norm("pre_norm", t.rows, width, "layernorm")
    return body.block("patches")


def _clip_end(t: Tower, name: str, projection: int, *, whole: bool) -> Block:
    """A norm of all rows (``whole``) or of the class token; one row is projected and normalised."""
    body = Body()
    rows = t.rows if whole else 1
    if not whole:  # a view of the last layer's output
        body.add(ops.grad_only("class_token", 2.0 * t.elems, kind="copy", high=True))
        body.add(ops.keep("class_token.view", t.elems, high=True))
        body.kept.add("pooled")
    body.norm("norm", rows, t.hidden, t.norm, reads="" if whole else "pooled")
    if whole:
        body.add(ops.copy("pick", 1.0 * t.hidden))
    body.linear("project", 1, t.hidden, projection, reads="picked")
    _unit(body, projection)
    return body.block(name)


@ARCHS.register("clip")
def clip(
    *,
    name: str,
    sample_unit: str = "pair",
    layers: int = 12,
    hidden: int = 512,
    heads: int = 8,
    ffn: int = 0,
    vocab: int = 49408,
    max_positions: int = 77,
    seq_len: int = 77,
    mlp: str = "quick_gelu",
    vision_layers: int = 12,
    vision_hidden: int = 768,
    vision_heads: int = 12,
    vision_ffn: int = 0,
    vision_mlp: str = "quick_gelu",
    image: int = 224,
    patch: int = 32,
    channels: int = 3,
    projection: int = 512,
    attention: str = "flash",
) -> Workload:
    """CLIP on pairs of a square image and ``seq_len`` tokens, padding included; no dropout.

    ``attention``: flash, or math: tensor operations, as in torch's multi-head attention before 2.0.
    """
    check_names(attention=(attention, ("flash", "math")))
    check_length(seq_len, max_positions)
    text = Tower(
        rows=seq_len, hidden=hidden, heads=heads, head_dim=head_width(hidden, heads),
        ffn=ffn or 4 * hidden, mlp=mlp, causal=True, attention=attention,
    )  # fmt: skip
    vision = Tower(
        rows=(image // patch) ** 2 + 1, hidden=vision_hidden, heads=vision_heads,
        head_dim=head_width(vision_hidden, vision_heads), ffn=vision_ffn or 4 * vision_hidden,
        mlp=vision_mlp, attention=attention,
    )  # fmt: skip
    blocks = (
        _clip_patches(vision, image, patch, channels),
        layer(vision, "vision layer"),
        _clip_end(vision, "vision end", projection, whole=False),
        _tokens(text, vocab, max_positions),
        layer(text, "text layer"),
        _clip_end(text, "text end", projection, whole=True),
        _loss(projection, "logit_scale"),
    )
    return _workload(
        name, sample_unit, blocks, vision_layers, layers,
        pixels=channels * image * image, id_rows=2, seq_len=seq_len,
    )  # fmt: skip


def _siglip_patches(t: Tower, image: int, patch: int, channels: int) -> Block:
    side, body = image // patch, Body()
    body.params += [
        Param("patches.weight", channels * patch * patch * t.hidden),
        Param("patches.bias", t.hidden),
        Param("positions.weight", t.rows * t.hidden),
    ]
    body.add(
        ops.conv(
            "patches", (image, image), (side, side), channels, t.hidden, patch, stride=patch,
            bias=True, input_grad=False,
        ),
        ops.copy("patches.rows", t.elems),
        ops.add_positions("positions", t.rows, t.hidden, table_rows=t.rows),
    )  # fmt: skip
    return body.block("patches")


def _siglip_pooled(t: Tower) -> Block:
    """Attention of a learned query to all rows, and a layer of one row.

    The attention is torch's MultiheadAttention.
    """
    body, width, rows = Body(), t.hidden, float(t.rows)
    body.norm("norm", rows, width, t.norm)
    body.param("probe", width)
    body.param("pool.in_proj.weight", 3 * width * width)
    body.param("pool.in_proj.bias", 3 * width)
    body.add(
        ops.linear("pool.q", 1.0, width, width, bias=True),
        ops.linear("pool.kv", rows, width, 2 * width, bias=True),
        ops.copy("pool.parts", 2 * t.elems),
        ops.sdpa("pool.attention", 1, t.heads, t.heads, 1, t.rows, t.head_dim),
    )
    body.kept.add("pool.context")
    body.linear("pool.out", 1.0, width, width, bias=True, reads="pool.context")
    body.norm("pool.norm", 1.0, width, t.norm)
    shape = MlpShape(seq=1, hidden=width, ffn=t.ffn, kind=t.mlp, bias=True)
    dense(body, shape, "pool.norm", "pool.")
    body.add(ops.residual("pool.residual", float(width)))
    _unit(body, width)
    return body.block("vision end")


def _last(t: Tower, projection: int) -> Block:
    """The last token's row after the norm of all rows, projected."""
    body = Body()
    body.norm("norm", t.rows, t.hidden, t.norm)
    body.add(ops.grad_only("pick", 2.0 * t.elems, kind="copy"))
    body.linear("head", 1.0, t.hidden, projection, bias=True, reads="picked")
    _unit(body, projection)
    return body.block("text end")


@ARCHS.register("siglip")
def siglip(
    *,
    name: str,
    sample_unit: str = "pair",
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    ffn: int = 0,
    vocab: int = 32000,
    max_positions: int = 64,
    seq_len: int = 64,
    mlp: str = "gelu",
    vision_layers: int = 12,
    vision_hidden: int = 768,
    vision_heads: int = 12,
    vision_ffn: int = 0,
    vision_mlp: str = "gelu",
    image: int = 224,
    patch: int = 16,
    channels: int = 3,
    attention: str = "flash",
) -> Workload:
    """SigLIP on pairs of a square image and ``seq_len`` tokens, padding included, without dropout.

    Both towers end in rows as wide as the image's. ``attention``: flash, or math (tensor
    operations).
    """
    check_names(attention=(attention, ("flash", "math")))
    check_length(seq_len, max_positions)
    text, vision = (
        Tower(
            rows=rows, hidden=width, heads=n, head_dim=head_width(width, n), ffn=inner or 4 * width,
            mlp=kind, attention=attention,
        )
        for rows, width, n, inner, kind in (
            (seq_len, hidden, heads, ffn, mlp),
            ((image // patch) ** 2, vision_hidden, vision_heads, vision_ffn, vision_mlp),
        )
    )  # fmt: skip
    blocks = (
        _siglip_patches(vision, image, patch, channels),
        layer(vision, "vision layer"),
        _siglip_pooled(vision),
        _tokens(text, vocab, max_positions),
        layer(text, "text layer"),
        _last(text, vision_hidden),
        _loss(vision_hidden, "logit_scale", "logit_bias"),
    )
    return _workload(
        name, sample_unit, blocks, vision_layers, layers,
        pixels=channels * image * image, id_rows=1, seq_len=seq_len,
    )  # fmt: skip


def _text_layer(tokens: int, width: int, inner: int, heads: int) -> list[Op]:
    rows, elems = float(tokens), float(tokens) * width
    quick_gelu = Kernel(kind="elementwise", low=7 * rows * inner, launches=3.0)
    return [
        ops.layer_norm("norm1", rows, width),
        *(ops.linear(part, rows, width, width, bias=True) for part in "qkv"),
        ops.sdpa("attention", 1, heads, heads, tokens, tokens, width // heads, causal=True),
        ops.linear("out", rows, width, width, bias=True),
        ops.binary("residual1", elems),
        ops.layer_norm("norm2", rows, width),
        ops.linear("fc1", rows, width, inner, bias=True),
        Op(name="gelu", fwd=(quick_gelu,)),
        ops.linear("fc2", rows, inner, width, bias=True),
        ops.binary("residual2", elems),
    ]


@FROZEN_ARCHS.register("clip_text_encoder")
def clip_text_encoder(
    *, name: str, tokens: int = 77, layers: int = 12, width: int = 768, inner: int = 3072,
    heads: int = 12, vocab: int = 49408, positions: int = 77,
) -> Frozen:  # fmt: skip
    """The encoder of one caption of ``tokens`` tokens per sample, padding included."""
    if not 1 <= tokens <= positions:
        raise ValueError(f"tokens={tokens} is not within 1..{positions}")
    per_layer = 4 * (width * width + width) + 2 * width * inner + inner + width + 4 * width
    numel = layers * per_layer + (vocab + positions) * width + 2 * width
    elems = float(tokens) * width
    all_ops = [
        ops.embedding("tokens", tokens, width, vocab),
        ops.binary("positions", elems),
        *_text_layer(tokens, width, inner, heads) * layers,
        ops.layer_norm("final_norm", tokens, width),
    ]
    return Frozen(
        name=name,
        resident_numel=numel,
        ops=tuple(replace(op, bwd=(), saved=NOTHING) for op in all_ops),
        # Within the GELU its input and two intermediates are live, and the residual and its norm.
        transient_low=3.0 * tokens * inner + 2 * elems,
        bytes_per_param=2.0,
    )
