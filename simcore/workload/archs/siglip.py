"""SigLIP (Zhai et al. 2023, arXiv 2303.15343): two towers, of which attention pools the image's
rows, and a sigmoid loss over the pairs.

As transformers runs it (models/siglip/modeling_siglip.py). The loss's products grow with the square
of the batch; they are left out, as CLIP's are.
"""

from __future__ import annotations

from simcore.base.units import FP32_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.body import Body
from simcore.workload.archs.checks import check_names, head_width
from simcore.workload.archs.lm_mlp import MlpShape, dense
from simcore.workload.archs.towers import Tower, check_length, layer
from simcore.workload.graph import Block, Param, Workload

_INT64_BYTES = 8


def _patches(t: Tower, image: int, patch: int, channels: int) -> Block:
    side, body = image // patch, Body()
    body.params += [
        Param("patches.weight", channels * patch * patch * t.hidden),
        Param("patches.bias", t.hidden),
        Param("positions.weight", t.rows * t.hidden),
    ]
    body.add(
        ops.conv2d(
            "patches", (image, image), (side, side), channels, t.hidden, patch, bias=True,
            input_grad=False,
        ),
        ops.copy("patches.rows", t.elems),
        ops.add_positions("positions", t.rows, t.hidden, table_rows=t.rows),
    )  # fmt: skip
    return body.block("patches")


def _unit(body: Body, width: int) -> None:
    """One row a sample made unit."""
    body.add(
        ops.reduction("length", width, out=1.0, saves=width),
        ops.binary("unit", width, broadcast=1.0, saves=0.0),
    )


def _pooled(t: Tower) -> Block:
    """A learned query attends to all rows (torch's MultiheadAttention), behind it a layer of one
    row."""
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
    """The last token's row behind the norm of all, projected."""
    body = Body()
    body.norm("norm", t.rows, t.hidden, t.norm)
    body.add(ops.grad_only("pick", 2.0 * t.elems, kind="copy"))
    body.linear("head", 1.0, t.hidden, projection, bias=True, reads="picked")
    _unit(body, projection)
    return body.block("text end")


def _loss(projection: int) -> Block:
    body = Body()
    body.add(ops.scale("temperature", 2.0 * projection), ops.loss_seed())
    body.params += [Param("logit_scale", 1), Param("logit_bias", 1)]
    return body.block("loss")


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

    Both end in rows as wide as the image's tower. ``attention``: flash, or math, tensor operations.
    """
    check_names(attention=(attention, ("flash", "math")))
    check_length(seq_len, max_positions)
    text, vision = (
        Tower(
            rows=rows, hidden=width, heads=n, head_dim=head_width(width, n), ffn=inner or 4 * width,
            mlp=kind, norm="layernorm", biased=True, math=attention == "math",
        )
        for rows, width, n, inner, kind in (
            (seq_len, hidden, heads, ffn, mlp),
            ((image // patch) ** 2, vision_hidden, vision_heads, vision_ffn, vision_mlp),
        )
    )  # fmt: skip
    words = Body()
    words.embedding("tokens", seq_len, hidden, vocab)
    words.add(ops.add_positions("positions", seq_len, hidden, table_rows=max_positions))
    words.params.append(Param("positions.weight", max_positions * hidden))
    blocks = (
        _patches(vision, image, patch, channels),
        layer(vision, "vision layer"),
        _pooled(vision),
        words.block("tokens"),
        layer(text, "text layer"),
        _last(text, vision_hidden),
        _loss(vision_hidden),
    )
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=blocks,
        order=(0, *[1] * vision_layers, 2, 3, *[4] * layers, 5, 6),
        input_bytes=FP32_BYTES * channels * image * image + 1.0 * _INT64_BYTES * seq_len,
        tokens_per_sample=seq_len,
    )
