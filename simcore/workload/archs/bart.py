"""BART (Lewis et al. 2019) and mBART (Liu et al. 2020): encoder and decoder, products with biases.

Op by op as transformers runs them (models/bart/modeling_bart.py, models/mbart), on pairs without
padding, so that fused attention needs no mask.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from simcore.base.units import INT64_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.body import Body
from simcore.workload.archs.checks import check_names, head_width
from simcore.workload.archs.lm_mlp import plain_activation
from simcore.workload.archs.towers import ENCODED, check_length
from simcore.workload.graph import TIE, Block, Kernel, Op, Workload
from simcore.workload.saved import NOTHING, Saved

#: Extra rows of a table of positions that no position uses.
OFFSET = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """The encoder or the decoder.

    ``source`` > 0: the layers also attend to as many encoded rows. ``pre``: norms come before their
    sublayer (mBART), not after the sum (BART). ``drop``, ``drop_inner``, ``drop_scores``: dropout
    on results, on the activation, on probabilities.
    """

    rows: int
    hidden: int
    heads: int
    ffn: int
    act: str
    pre: bool
    fused: bool
    drop: bool
    drop_inner: bool
    drop_scores: bool
    source: int = 0

    @property
    def elems(self) -> float:
        return float(self.rows * self.hidden)

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads


def _scores(body: Body, t: Stack, prefix: str, keys: int, *, causal: bool) -> None:
    name = f"{prefix}attention"
    if t.fused:  # the fused kernel includes the dropout
        body.add(ops.sdpa(name, 1, t.heads, t.heads, t.rows, keys, t.head_dim, causal=causal))
        body.kept.add(f"{prefix}context")
        return
    mask: Literal["none", "add_causal"] = "add_causal" if causal else "none"
    body.add(
        *ops.attention_eager(name, t.heads, t.rows, keys, t.head_dim, mask=mask, drop=t.drop_scores)
    )


def _attend(body: Body, t: Stack, prefix: str, reads: str, *, cross: bool = False) -> None:
    d, keys, source = t.hidden, t.rows, reads
    if cross:
        keys, source = t.source, ENCODED
    for part, rows, read in (("q", t.rows, reads), ("k", keys, source), ("v", keys, source)):
        body.linear(f"{prefix}{part}", rows, d, d, bias=True, reads=read)
    # The gradients of the input of q, k and v are summed, or those of the source of k and v.
    body.add(ops.accumulate(f"{prefix}forks", float(keys * d), times=1 if cross else 2, high=True))
    _scores(body, t, prefix, keys, causal=t.source > 0 and not cross)
    body.linear(f"{prefix}attention.out", t.rows, d, d, bias=True, reads=f"{prefix}context")


def _feed(body: Body, t: Stack, prefix: str, reads: str) -> None:
    inner = float(t.rows * t.ffn)
    body.linear("up", t.rows, t.hidden, t.ffn, bias=True, reads=reads)
    body.add(plain_activation(t.act, inner))
    if t.drop_inner:
        if t.act == "relu":  # no other op saves its output then
            body.add(ops.keep("relu.output", inner))
        body.add(ops.dropout("inner.dropout", inner))
    body.linear("down", t.rows, t.ffn, t.hidden, bias=True, reads="inner")


def _sublayer(body: Body, t: Stack, name: str, reads: str) -> None:
    """Dropout, residual sum, and the norm ``name`` after it if norms come there."""
    if t.drop:
        body.add(ops.dropout(f"{name}.dropout", t.elems))
    body.add(
        ops.residual(f"{name}.residual", t.elems),
        ops.accumulate(f"{name}.fork", t.elems, high=True, casts=t.elems),
    )
    if not t.pre:
        body.norm(name, t.rows, t.hidden, "layernorm")


def layer(t: Stack, name: str) -> Block:
    body = Body()
    body.kept.add(ENCODED)  # saved where the encoder ends
    body.high |= {ENCODED, "input"}
    parts = ["norm1", *(["cross.norm"] if t.source else []), "norm2"]
    reads = "input"
    for part in parts:
        if t.pre:
            body.norm(part, t.rows, t.hidden, "layernorm")
            reads = part
        if part == "norm2":
            _feed(body, t, "", reads)
        else:
            _attend(body, t, "cross." if t.source and part == "cross.norm" else "", reads,
                    cross=part == "cross.norm")  # fmt: skip
        _sublayer(body, t, part, reads)
        reads = part
    return body.block(name, boundary=Saved(high=t.elems), recomputable=True)


def _embedded(t: Stack, name: str, vocab: int, positions: int, *, own_table: bool) -> Block:
    """Tokens, scaled, and positions, each looked up for every row; then a norm."""
    body = Body()
    if own_table:
        body.embedding("shared", t.rows, t.hidden, vocab)
    else:  # the gradient is added to that of the encoder's look-up
        body.add(
            ops.embedding("shared", t.rows, t.hidden, vocab),
            ops.grad_only("shared.sum", 0.0, weight=3.0 * vocab * t.hidden),
        )
        # Labels become inputs: zeros, a copy of all but the last, the first, padding replaced;
        # mBART also looks for each row's last token.
        steps = 14.0 if t.pre else 8.0
        shifted = Kernel(kind="copy", raw_bytes=INT64_BYTES * steps * t.rows, launches=steps)
        body.add(Op(name="shift", fwd=(shifted,)))
    looked_up = ops.embedding("positions", t.rows, t.hidden, positions + OFFSET)
    body.add(
        ops.scale("scale", t.elems, high=True),
        Op(name="positions.ids", fwd=(Kernel(kind="elementwise", launches=2.0),)),
        replace(looked_up, saved=NOTHING),  # the ids are the same for all sequences
        ops.binary("positions.sum", t.elems, grads=0, high=True),
    )
    body.param("positions.weight", (positions + OFFSET) * t.hidden)
    body.norm("norm", t.rows, t.hidden, "layernorm")
    if t.drop:
        body.add(ops.dropout("dropout", t.elems, high=True))
    return body.block(name)


def _encoded(t: Stack, readers: int) -> Block:
    """The encoded source that ``readers`` decoder layers read, normalised if norms come first."""
    body = Body()
    if t.pre:
        body.norm("norm", t.rows, t.hidden, "layernorm")
    body.add(
        ops.keep(ENCODED, t.elems, high=True),
        ops.accumulate("encoder.forks", t.elems, times=readers - 1.0, high=True),
    )
    return body.block("encoder end")


def _head(t: Stack, vocab: int) -> Block:
    """The head with the shared table, a bias and the loss.

    The bias is not trained, and autocast leaves it in fp32.
    """
    body = Body(in_layer=False)
    body.high.add("last")
    if t.pre:
        body.norm("norm", t.rows, t.hidden, "layernorm")
    body.linear(
        "head", t.rows, t.hidden, vocab, reads="norm" if t.pre else "last", weight=False
    )  # fmt: skip
    logits = float(t.rows) * vocab
    added = Kernel(kind="elementwise", low=logits, high=logits, indexed=logits)
    body.add(
        ops.grad_only(TIE, 0.0, weight=3.0 * vocab * t.hidden),
        Op(
            name="logits.bias",
            fwd=(added,),
            bwd=(ops.autocast_cast(logits),),
            saved=Saved(high=logits),  # the training step holds them
        ),
        ops.cross_entropy("loss", t.rows, vocab),
        ops.loss_seed(),
    )
    return body.block("head")


@ARCHS.register("bart")
def build(
    *,
    name: str,
    sample_unit: str = "sequence pair",
    layers: int,
    decoder_layers: int = 0,
    hidden: int,
    heads: int,
    decoder_heads: int = 0,
    ffn: int = 0,
    decoder_ffn: int = 0,
    vocab: int = 50265,
    max_positions: int = 512,
    seq_len: int = 512,
    target_len: int = 0,
    mlp: str = "gelu",
    norm_first: bool = False,
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    activation_dropout: float = 0.0,
    attention: str = "sdpa",
) -> Workload:
    """BART on ``seq_len`` source tokens and ``target_len`` target tokens (0: as many).

    One table serves both and the head. ``norm_first``: as mBART, with a norm at the end of either
    stack too. ``attention``: sdpa (or flash), transformers' own choice, or eager (or math).
    """
    check_names(
        attention=(attention, ("sdpa", "flash", "eager", "math")), mlp=(mlp, ("gelu", "relu"))
    )  # fmt: skip
    if target_len < 0:
        raise ValueError(f"target_len {target_len} must be positive")
    for length in (seq_len, target_len or seq_len):
        check_length(length, max_positions)
    head_width(hidden, heads)
    head_width(hidden, decoder_heads or heads)
    encoder = Stack(
        rows=seq_len, hidden=hidden, heads=heads, ffn=ffn or 4 * hidden, act=mlp, pre=norm_first,
        fused=attention in ("sdpa", "flash"), drop=dropout > 0,
        drop_inner=activation_dropout > 0, drop_scores=attention_dropout > 0,
    )  # fmt: skip
    decoder = replace(
        encoder, rows=target_len or seq_len, heads=decoder_heads or heads,
        ffn=decoder_ffn or encoder.ffn, source=seq_len,
    )  # fmt: skip
    n_decoder = decoder_layers or layers
    blocks = (
        _embedded(encoder, "source", vocab, max_positions, own_table=True),
        layer(encoder, "encoder layer"),
        _encoded(encoder, n_decoder),
        _embedded(decoder, "target", vocab, max_positions, own_table=False),
        layer(decoder, "decoder layer"),
        _head(decoder, vocab),
    )
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=blocks,
        order=(0, *[1] * layers, 2, 3, *[4] * n_decoder, 5),
        buffers_numel=vocab,  # the logits' bias
        n_buffers=1,
        input_bytes=INT64_BYTES * (2.0 * seq_len + decoder.rows),  # source, its mask, labels
        tokens_per_sample=seq_len + decoder.rows,
    )
