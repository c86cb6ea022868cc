"""Layers of encoders, and of decoders that attend to an encoder: BERT, ViT, BART, T5, CLIP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from simcore.base.record import dataclass, replace
from simcore.workload import ops
from simcore.workload.archs.body import Body
from simcore.workload.archs.lm_mlp import GATED, MlpShape, dense, plain_activation
from simcore.workload.graph import Kernel, Op
from simcore.workload.saved import Saved

#: Name of the encoder's output, which every decoder layer reads and the encoder's end saves.
ENCODED = "encoder.output"
Mask = Literal["none", "add", "add_causal", "bias", "permuted_bias"]


@dataclass(frozen=True, kw_only=True)
class Tower:
    """One stack of equal layers. ``source`` > 0: they also attend to as many encoded rows.

    - ``norm_first``: norms come before their sublayer, not after the sum.
    - ``attention``: flash; math: scores in memory; fused_softmax and xla: as in ``transformer``.
      ``position_bias``: a learned bias is added to the scores. ``mask``: an additive mask of keys,
      where the mask is not causal (``ops.attention_eager``).
    - ``biased``: output and feed-forward layers have biases; ``qkv_bias``: those of q, k and v that
      do.
    - ``heads_first``: q, k and v are copied head by head, and the output is copied back.
    - ``drop``: dropout on attention's results, ``drop_mlp``, ``drop_inner``, ``drop_scores``: on
      those of the feed-forward layer, on its activation, on probabilities.
    """

    rows: int
    hidden: int
    heads: int
    head_dim: int
    ffn: int
    mlp: str = "gelu"
    norm: str = "layernorm"
    norm_bias: bool = True
    norm_first: bool = True
    attention: str = "flash"
    position_bias: bool = False
    mask: Literal["none", "add"] = "none"
    biased: bool = True
    qkv_bias: str = "qkv"
    causal: bool = False
    heads_first: bool = False
    source: int = 0
    drop: bool = False
    drop_mlp: bool = False
    drop_inner: bool = False
    drop_scores: bool = False

    @property
    def elems(self) -> float:
        return float(self.rows * self.hidden)

    @property
    def scores(self) -> float:
        """Elements of a layer's scores of the rows."""
        return float(self.heads) * self.rows**2

    @property
    def xla(self) -> bool:
        """Whether XLA compiles the layers."""
        return self.attention == "xla"

    @property
    def fed(self) -> str:
        """Name of the tensor that the feed-forward layer reads."""
        if self.norm_first:
            return "norm2"
        return "cross.norm" if self.source else "norm1"


def scores(body: Body, t: Tower, prefix: str = "") -> None:
    """Add attention from q, k and v to its context; ``prefix`` ``cross.``: to the source."""
    cross, name = prefix == "cross.", f"{prefix}attention"
    keys = t.source if cross else t.rows
    causal = t.causal and not cross
    if t.attention == "flash":
        body.add(
            ops.sdpa(
                name, 1, t.heads, t.heads, t.rows, keys, t.head_dim, causal=causal,
                drop=t.drop_scores,
            )
        )  # fmt: skip
        body.kept.update([] if t.heads_first else [f"{prefix}context"])
        return
    bias_grads = f"{name}.bias_grads", float(t.heads) * t.rows * keys
    if t.attention == "math":
        mask: Mask = "add_causal" if causal else t.mask
        if t.position_bias:
            mask = "bias" if cross else "permuted_bias"
        body.add(
            *ops.attention_eager(
                name, t.heads, t.rows, keys, t.head_dim, mask=mask, drop=t.drop_scores,
                scaled=not t.position_bias,
            )
        )  # fmt: skip
        if t.position_bias and not cross and body.trains:
            # all layers share one learned bias: gradients are summed
            body.add(ops.accumulate(*bias_grads, high=True))
        return
    body.add(
        *ops.attention_fused_softmax(
            name, t.heads, t.rows, keys, t.head_dim, drop=t.drop_scores, passes=t.xla
        )
    )
    if t.position_bias and not cross:  # the scores' gradients are summed over the batch
        body.add(ops.grad_only(*bias_grads, kind="reduction"))


def attend(body: Body, t: Tower, prefix: str, reads: str) -> None:
    """Add attention with three products, to the rows themselves or (``cross.``) to the source."""
    cross, inner = prefix == "cross.", t.heads * t.head_dim
    keys, source = (t.source, ENCODED) if cross else (t.rows, reads)
    for part, rows, read in (("q", t.rows, reads), ("k", keys, source), ("v", keys, source)):
        body.linear(f"{prefix}{part}", rows, t.hidden, inner, bias=part in t.qkv_bias, reads=read)
    # The gradients of the input of q, k and v are summed, or those of the source of k and v.
    forks, high = 1 if cross else 2, source in body.high
    body.add(ops.accumulate(f"{prefix}forks", float(keys * t.hidden), times=forks, high=high))
    if t.heads_first:
        body.add(ops.copy(f"{prefix}heads_first", float(t.rows + 2 * keys) * inner))
    scores(body, t, prefix)
    if t.heads_first:
        body.add(ops.copy(f"{prefix}rows_first", float(t.rows * inner)))
    body.linear(
        f"{prefix}attention.out", t.rows, inner, t.hidden, bias=t.biased, reads=f"{prefix}context"
    )


def feed(body: Body, t: Tower) -> None:
    """Add a dense feed-forward layer."""
    inner = float(t.rows * t.ffn)
    if t.mlp in GATED:
        if t.drop_inner:
            body.add(ops.dropout("inner.dropout", inner))
        shape = MlpShape(
            seq=t.rows, hidden=t.hidden, ffn=t.ffn, kind=t.mlp, bias=t.biased, fused_pointwise=t.xla
        )
        dense(body, shape, t.fed)
        return
    body.linear("up", t.rows, t.hidden, t.ffn, bias=t.biased, reads=t.fed)
    body.add(plain_activation(t.mlp, inner, t.xla))
    if t.mlp == "relu" and t.drop_inner:  # no other op saves its output then
        body.add(ops.keep("relu.output", inner))
    elif t.mlp == "relu" and not t.biased:
        # T5 casts it to its second weight's type (transformers, modeling_t5.py, T5DenseActDense),
        # which autocast casts back.
        body.add(Op(name="relu.output", fwd=(), saved=Saved(autocast=inner)))
    if t.drop_inner:
        body.add(ops.dropout("inner.dropout", inner))
    if t.mlp == "gelu_new":
        body.high.add("inner")
    body.linear("down", t.rows, t.ffn, t.hidden, bias=t.biased, reads="inner")


def add_layer(
    body: Body, t: Tower, feed: Callable[[Body, Any], None] = feed,
    attend: Callable[[Body, Any, str, str], None] = attend, *, first_norm: bool = True,
) -> None:  # fmt: skip
    """Add one layer: self-attention, attention to the source if there is one, feed-forward.

    ``feed`` adds the ops that read ``t.fed``, ``attend`` those of one attention. ``first_norm``:
    false if a norm before the layer is the first's.
    """
    body.kept.add(ENCODED)  # saved where the encoder ends
    if not t.xla:
        body.high |= {ENCODED, "input"}
    reads = "input"
    parts = [("norm1", "", "attention"), ("norm2", "", "mlp")]
    if t.source:
        parts.insert(1, ("cross.norm", "cross.", "cross.attention"))
    for norm, prefix, part in parts:
        if t.norm_first and (first_norm or norm != "norm1"):
            body.norm(norm, t.rows, t.hidden, t.norm, bias=t.norm_bias)
            reads = norm
        if part == "mlp":
            feed(body, t)
        else:
            attend(body, t, prefix, reads)
        if t.drop_mlp if part == "mlp" else t.drop:
            body.add(ops.dropout(f"{part}.dropout", t.elems))
        summed = ops.residual(f"{part}.residual", t.elems, fused=t.xla)
        body.add(
            replace(summed, role="mixer_sum") if part == "attention" else summed,
            ops.accumulate(f"{part}.fork", t.elems, high=True, casts=t.elems * (not t.xla)),
        )
        if not t.norm_first:
            body.norm(norm, t.rows, t.hidden, t.norm)
            reads = norm


def masked_lm_head(
    body: Body, rows: float, hidden: int, width: int, vocab: int, *, act: str = "gelu",
    share: float = 1.0, padded: bool = False,
) -> None:  # fmt: skip
    """Add a product, activation and norm before the tied table of rows of ``width``.

    The loss is over a fraction ``share`` of the positions. ``padded``: so is the vocabulary.
    """
    rows *= share
    body.high.add("last")
    if share < 1.0:
        gathered = Kernel(kind="gather", high=2.0 * rows * hidden)
        body.add(Op(name="positions", fwd=(gathered,), bwd=(gathered,)))
    body.linear("transform", rows, hidden, width, bias=True, reads="last")
    body.add(plain_activation(act, rows * width))
    body.norm("norm", rows, width, "layernorm")
    body.linear(
        "decoder", rows, width, vocab, bias=True, reads="norm", weight=False, padded=padded
    )  # fmt: skip
    tied = ops.grad_only("tie", 0.0, weight=3.0 * vocab * width, role="table_sum")
    body.add(tied, *ops.lm_loss("loss", rows, vocab))
