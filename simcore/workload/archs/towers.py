"""Layers of encoders, and of decoders that attend to an encoder: T5, Whisper, CLIP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from simcore.workload import ops
from simcore.workload.archs.body import Body
from simcore.workload.archs.lm_mlp import MlpShape, dense
from simcore.workload.graph import Block, Op
from simcore.workload.saved import Saved

#: Name of the encoder's output, which every decoder layer reads and the encoder's end saves.
ENCODED = "encoder.output"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """One stack of equal layers. ``source`` > 0: they also attend to as many encoded rows.

    - ``biased``: q, v, output and feed-forward layers have biases; ``key_bias``: so does k.
    - ``written_out``: scores are in memory, because a position bias is added to them; ``xla``: XLA
      fuses these operators; ``math``: scores are in memory without such a bias.
    - ``heads_first``: q, k and v are copied head by head, and the output is copied back.
    """

    rows: int
    hidden: int
    heads: int
    head_dim: int
    ffn: int
    mlp: str
    norm: str
    biased: bool
    key_bias: bool = True
    causal: bool = False
    written_out: bool = False
    xla: bool = False
    math: bool = False
    heads_first: bool = False
    source: int = 0
    drop: bool = False

    @property
    def elems(self) -> float:
        return float(self.rows * self.hidden)


def _attend(body: Body, t: Tower, prefix: str, reads: str, *, cross: bool) -> None:
    keys, kv_reads = (t.source, ENCODED) if cross else (t.rows, reads)
    inner = t.heads * t.head_dim
    body.linear(f"{prefix}q", t.rows, t.hidden, inner, bias=t.biased, reads=reads)
    key_bias = t.biased and t.key_bias
    body.linear(f"{prefix}k", keys, t.hidden, inner, bias=key_bias, reads=kv_reads)
    body.linear(f"{prefix}v", keys, t.hidden, inner, bias=t.biased, reads=kv_reads)
    body.add(
        ops.accumulate(
            f"{prefix}forks", float(keys * t.hidden), times=2, high=kv_reads in body.high
        )
    )
    context = f"{prefix}context"
    if t.xla:
        scores = float(t.heads) * t.rows * keys
        body.add(
            *ops.attention_fused_softmax(
                f"{prefix}attention", t.heads, t.rows, keys, t.head_dim, drop=t.drop, passes=True
            )
        )
        if not cross:  # the learned bias: the scores' gradients are summed over the batch
            body.add(ops.grad_only("attention.bias_grads", scores, kind="reduction"))
    elif t.written_out:
        body.add(
            *ops.attention_eager(
                f"{prefix}attention", t.heads, t.rows, keys, t.head_dim,
                mask="bias" if cross else "permuted_bias", drop=t.drop, scaled=False,
            )
        )  # fmt: skip
        if not cross:  # all layers share one learned bias: its gradients are summed
            scores = float(t.heads) * t.rows * keys
            body.add(ops.accumulate("attention.bias_grads", scores, high=True))
    elif t.math:
        mask: Literal["none", "add_causal"] = "add_causal" if t.causal and not cross else "none"
        body.add(
            *ops.attention_eager(
                f"{prefix}attention", t.heads, t.rows, keys, t.head_dim, mask=mask, drop=t.drop
            )
        )
    else:
        if t.heads_first:
            elems = float(t.rows + 2 * keys) * inner
            body.add(ops.copy(f"{prefix}heads_first", elems))
        body.add(
            ops.sdpa(
                f"{prefix}attention", 1, t.heads, t.heads, t.rows, keys, t.head_dim,
                causal=t.causal and not cross,
            )
        )  # fmt: skip
        if t.heads_first:
            body.add(ops.copy(f"{prefix}rows_first", float(t.rows * inner)))
        else:
            body.kept.add(context)
    body.linear(f"{prefix}attention.out", t.rows, inner, t.hidden, bias=t.biased, reads=context)
    _add(body, t, f"{prefix}attention")


def _add(body: Body, t: Tower, name: str) -> None:
    if t.drop:
        body.add(ops.dropout(f"{name}.dropout", t.elems))
    body.add(
        ops.residual(f"{name}.residual", t.elems, fused=t.xla),
        ops.accumulate(f"{name}.fork", t.elems, high=True, casts=t.elems * (not t.xla)),
    )


def _feed_forward(body: Body, t: Tower) -> None:
    inner = float(t.rows * t.ffn)
    if t.mlp == "relu":
        # T5's second product reads the ReLU's output after dropout, or (transformers,
        # modeling_t5.py, T5DenseActDense) cast to its weight's type, which autocast casts back.
        kept = Saved(low=inner) if t.drop else Saved(autocast=inner)
        body.add(Op(name="relu.output", fwd=(), saved=kept))
    if t.drop:
        body.add(ops.dropout("mlp.inner.dropout", inner))
    shape = MlpShape(
        seq=t.rows, hidden=t.hidden, ffn=t.ffn, kind=t.mlp, bias=t.biased, fused_pointwise=t.xla
    )
    dense(body, shape, "norm2")


def layer(t: Tower, name: str, feed: Callable[[Body, Tower], None] = _feed_forward) -> Block:
    """One pre-norm layer: self-attention, attention to the source if there is one, feed-forward.

    ``feed`` adds the ops that read ``norm2``: a dense layer, or a mixture of experts.
    """
    body = Body(fused=t.xla)
    body.kept.add(ENCODED)  # saved where the encoder ends
    if not t.xla:
        body.high.add(ENCODED)
    body.norm("norm1", t.rows, t.hidden, t.norm)
    _attend(body, t, "", "norm1", cross=False)
    if t.source:
        body.norm("cross.norm", t.rows, t.hidden, t.norm)
        _attend(body, t, "cross.", "cross.norm", cross=True)
    body.norm("norm2", t.rows, t.hidden, t.norm)
    feed(body, t)
    _add(body, t, "mlp")
    return body.block(name, boundary=Saved(high=t.elems), recomputable=True)


def check_length(seq_len: int, positions: int) -> None:
    """Raises ValueError for a length beyond the table of positions."""
    if not 1 <= seq_len <= positions:
        raise ValueError(f"seq_len {seq_len} is not within 1..{positions}")
