"""SigLIP (Zhai et al. 2023, arXiv 2303.15343): two towers and a sigmoid loss over the pairs.

Attention pools the rows of the image. As in transformers (models/siglip/modeling_siglip.py).
"""

from __future__ import annotations

from simcore.workload import ops
from simcore.workload.archs import ARCHS, pairs
from simcore.workload.archs.body import Body
from simcore.workload.archs.checks import check_names, head_width
from simcore.workload.archs.lm_mlp import MlpShape, dense
from simcore.workload.archs.towers import Tower, check_length, layer
from simcore.workload.graph import Block, Param, Workload


def _patches(t: Tower, image: int, patch: int, channels: int) -> Block:
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


def _pooled(t: Tower) -> Block:
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
    pairs.unit(body, width)
    return body.block("vision end")


def _last(t: Tower, projection: int) -> Block:
    """The last token's row after the norm of all rows, projected."""
    body = Body()
    body.norm("norm", t.rows, t.hidden, t.norm)
    body.add(ops.grad_only("pick", 2.0 * t.elems, kind="copy"))
    body.linear("head", 1.0, t.hidden, projection, bias=True, reads="picked")
    pairs.unit(body, projection)
    return body.block("text end")


@ARCHS.register("siglip")
def build(
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
        _patches(vision, image, patch, channels),
        layer(vision, "vision layer"),
        _pooled(vision),
        pairs.tokens(text, vocab, max_positions),
        layer(text, "text layer"),
        _last(text, vision_hidden),
        pairs.loss(vision_hidden, "logit_scale", "logit_bias"),
    )
    return pairs.workload(
        name, sample_unit, blocks, vision_layers, layers,
        pixels=channels * image * image, id_rows=1, seq_len=seq_len,
    )  # fmt: skip
