"""CLIP (Radford et al. 2021): a text tower, a vision tower, and the loss over their pairs."""

from __future__ import annotations

from simcore.workload import ops
from simcore.workload.archs import ARCHS, pairs
from simcore.workload.archs.body import Body
from simcore.workload.archs.checks import check_names, head_width
from simcore.workload.archs.towers import Tower, check_length, layer
from simcore.workload.graph import Block, Kernel, Op, Param, Workload


def _patches(t: Tower, image: int, patch: int, channels: int) -> Block:
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


def _pooled(t: Tower, name: str, projection: int, *, whole: bool) -> Block:
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
    pairs.unit(body, projection)
    return body.block(name)


@ARCHS.register("clip")
def build(
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
        _patches(vision, image, patch, channels),
        layer(vision, "vision layer"),
        _pooled(vision, "vision end", projection, whole=False),
        pairs.tokens(text, vocab, max_positions),
        layer(text, "text layer"),
        _pooled(text, "text end", projection, whole=True),
        pairs.loss(projection, "logit_scale"),
    )
    return pairs.workload(
        name, sample_unit, blocks, vision_layers, layers,
        pixels=channels * image * image, id_rows=2, seq_len=seq_len,
    )  # fmt: skip
