"""Layers of a language model: the kinds of one model, and the ops of each.

A layer has a mixer of tokens, a feed-forward part, norms and sums. Patterns of letters say how the
layers of a model differ.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from simcore.base.record import dataclass, replace
from simcore.workload import ops
from simcore.workload.archs import Adapters
from simcore.workload.archs.body import Body
from simcore.workload.archs.lm_attention import AttentionShape, attention
from simcore.workload.archs.lm_mlp import GATED, MlpShape, RankShare, dense, experts
from simcore.workload.archs.lm_settings import (
    Compressed,
    Experts,
    Implementation,
    Norms,
    Streams,
)
from simcore.workload.graph import Op

if TYPE_CHECKING:
    from simcore.workload.archs.lm_mixers import MixerShape

#: Letters of a mixer pattern, and the words that name a layer with that mixer.
MIXERS = {
    "a": "attention", "m": "mamba", "s": "mamba1", "g": "delta", "k": "delta by channel",
    "l": "lightning", "h": "attention beside mamba", "c": "convolution", "n": "",
}  # fmt: skip
#: Letters for the part after the mixer: experts, a dense layer, none.
FED = "edn"
#: Mixers with a state, or a few tokens, that are passed along the sequence.
RECURRENT = frozenset("msghklc")
#: Mixers with attention: only these have windows and rotary positions.
ATTENDING = frozenset("ah")
#: Letters of sparse attention: an indexer, the selection of an earlier layer, full attention.
INDEXED = "isf"


@dataclass(frozen=True)
class Kind:
    """What layers of one model can differ in.

    ``windowed``: attention has a window; ``routed``: the feed-forward part has experts; ``turned``:
    positions are rotary; ``mixer``: a letter of ``MIXERS``; ``fed``: whether there is a
    feed-forward part; ``index``: a letter of ``INDEXED``; ``ffn``: width of the dense feed-forward
    part, 0 for the model's; ``compress``: a letter of ``lm_compressed.KINDS``; ``given_kv``:
    attention reads the keys and values of an earlier layer; ``sparse``: the gate keeps its largest
    elements.
    """

    windowed: bool
    routed: bool
    turned: bool
    mixer: str = "a"
    fed: bool = True
    index: str = "f"
    ffn: int = 0
    compress: str = ""
    given_kv: bool = False
    sparse: bool = False

    @property
    def attends(self) -> bool:
        """Whether there is attention, alone or in parallel with another mixer."""
        return self.mixer in ATTENDING

    @property
    def halves(self) -> int:
        """Number of parts of the layer: mixer, feed-forward part."""
        return (self.mixer != "n") + self.fed


@lru_cache(maxsize=1000)
def kind_of(
    window: str,
    fed: str,
    turned: str,
    mixer: str,
    index: str = "f",
    ffn: int = 0,
    compress: str = "",
    given_kv: bool = False,
    sparse: bool = False,
) -> Kind:
    """The kind of a layer from its letters.

    A layer without attention has no window and no positions, so these do not make it different.
    """
    attends = mixer in ATTENDING
    return Kind(
        windowed=attends and window == "w", routed=fed == "e",
        turned=not attends or turned == "r", mixer=mixer, fed=fed != "n",
        index=index if attends else "f", ffn=ffn if fed == "d" else 0, compress=compress,
        given_kv=attends and given_kv, sparse=fed == "d" and sparse,
    )  # fmt: skip


def pattern_of(key: str, pattern: str, letters: str, layers: int) -> str:
    """``pattern`` repeated over the layers. Raises ValueError for other letters."""
    if not pattern or set(pattern) - set(letters):
        raise ValueError(f"{key} {pattern!r} must consist of the letters {', '.join(letters)}")
    return (pattern * layers)[:layers]


@lru_cache(maxsize=256)
def last_products(mixers: str, fed: str, layers: int) -> float:
    """Number of parts of a layer that end in their own product, on average over the patterns.

    The parts are mixer and feed-forward part; two mixers in parallel count as two.
    """
    both = zip((mixers * layers)[:layers], (fed * layers)[:layers], strict=True)
    return sum((m != "n") + (m == "h") + (f != "n") for m, f in both) / layers


def name_of(kind: Kind, kinds: list[Kind]) -> str:
    """The name of a layer, made of the words that distinguish it from the model's other layers."""
    words = ["layer"]
    if len({k.mixer for k in kinds}) > 1:
        words += filter(None, [MIXERS[kind.mixer]])
    attending = [k for k in kinds if k.attends]
    if kind.attends and len({k.windowed for k in attending}) > 1:
        words.append("windowed" if kind.windowed else "full")
    if kind.fed and len({(k.fed, k.routed) for k in kinds}) > 1:
        words.append("experts" if kind.routed else "dense")
    if kind.attends and len({k.index for k in attending}) > 1:
        words.append({"i": "indexing", "s": "selecting", "f": "attending"}[kind.index])
    if len({k.compress for k in kinds}) > 1:
        words.append({"w": "windowed", "h": "heavily compressed", "s": "selecting"}[kind.compress])
    if len({k.ffn for k in kinds if k.fed and not k.routed}) > 1 and kind.ffn:
        words.append(str(kind.ffn))
    words += ["sharing"] * kind.given_kv + ["sparse"] * kind.sparse
    # Positions are named only where other words do not distinguish the layers.
    without_positions = {(k.windowed, k.routed, k.fed, k.given_kv, k.sparse) for k in attending}
    if kind.attends and len(without_positions) < len(attending):
        words.append("turned" if kind.turned else "unturned")
    return " ".join(words)


@dataclass(frozen=True, kw_only=True)
class Model:
    """Sizes and options that the layers share; ``window``: for layers with pattern letter ``w``.

    ``mixer``: None where attention is the only mixer.
    """

    attention: AttentionShape
    windowed: AttentionShape
    mlp: MlpShape
    mixer: MixerShape | None
    experts: Experts
    share: RankShare
    norms: Norms
    run: Implementation
    window: int
    drop: bool
    adapters: Adapters | None
    compressed: Compressed
    streams: Streams
    layers: int
    layer_input: int

    @property
    def elems(self) -> float:
        return float(self.mlp.seq * self.mlp.hidden)


def _times(body: Body, m: Model, name: str, elems: float) -> bool:
    """Add the product with a constant of maximal update parametrisation, a kernel unless compiled.

    Returns whether a kernel was added.
    """
    if added := m.norms.scaled_parts and not m.run.compiled:
        body.add(ops.scale(name, elems))
    return added


def _side_by_side(
    body: Body, m: Model, mixer: MixerShape, mamba: Callable[[Body, MixerShape, str], None],
    attention_shape: AttentionShape, window: int,
) -> None:  # fmt: skip
    """Add Mamba-2 and attention of one normalised input, with their results summed.

    Falcon-H1, Zuo et al. 2025; as in transformers, FalconH1DecoderLayer: each input and result is
    multiplied by a constant.
    """
    seq, elems = m.mlp.seq, m.elems
    for part in ("mixer", "attention"):
        reads = f"{part}.in" if _times(body, m, f"{part}.in.scale", elems) else "norm1"
        if part == "mixer":
            mamba(body, mixer, reads)
            _times(body, m, "in_proj.multiplier", float(seq * mixer.ssd.width))
        else:
            attention(body, attention_shape, reads, window)
            _times(body, m, "k.multiplier", float(seq * attention_shape.kv_dim))
        _times(body, m, f"{part}.result.scale", elems)
    body.add(ops.binary("residual.branches", elems, grads=0), ops.accumulate("norm1.fork", elems))


def _mlp(body: Body, m: Model, routed: bool, reads: str) -> None:
    if routed:
        experts(body, m.mlp, m.experts, m.run, m.share, reads)
    else:
        dense(body, m.mlp, reads)
        if m.mlp.kind in GATED:
            _times(body, m, "gate.multiplier", float(m.mlp.seq * m.mlp.ffn))
    if routed and m.experts.expert_norm:
        body.norm(
            "experts.norm", m.mlp.seq, m.mlp.hidden, m.norms.norm, bias=m.norms.norm_bias,
            weight=m.norms.norm_weight, narrow=True,
        )  # fmt: skip
    _times(body, m, "mlp.result.scale", m.elems)
    if m.drop and (m.norms.residual != "serial" or not m.mlp.fused_pointwise):
        body.add(ops.dropout("mlp.dropout", m.elems))


def _mix(body: Body, m: Model, kind: Kind, attention_shape: AttentionShape, reads: str) -> None:
    """Add the ops that mix tokens, by the layer's kind; ``reads``: the tensor that they read."""
    window = m.window if kind.windowed else attention_shape.selected
    if kind.compress:
        from simcore.workload.archs.lm_compressed import compressed_attention

        compressed_attention(body, attention_shape, m.compressed, kind.compress, reads, m.window)
        return
    if kind.mixer not in RECURRENT:
        attention(body, attention_shape, reads, window)
        return
    from simcore.workload.archs import lm_mixers as mixers  # few models have any

    mixer = m.mixer
    assert mixer is not None
    match kind.mixer:
        case "m":
            mixers.mamba(body, mixer, reads)
        case "s":
            mixers.selective(body, mixer, m.norms.norm, reads)
        case "g":
            mixers.delta_net(body, mixer, reads)
        case "c":
            mixers.short_conv(body, mixer, reads)
        case "l":
            mixers.lightning(body, m.attention, reads)
        case "k":
            mixers.kimi_delta(body, mixer, reads)
        case "h":
            _side_by_side(body, m, mixer, mixers.mamba, attention_shape, window)


def _join_parallel(body: Body, m: Model) -> None:
    """Add the sums of attention and feed-forward part where both read the layer's input."""
    fused, elems = m.run.compiled, m.elems
    body.add(
        replace(ops.residual("attention.residual", elems, fused=fused), role="mixer_sum"),
        ops.residual("mlp.residual", elems, fused=fused),
        ops.accumulate("forks", elems, times=2, high=True, casts=2 * elems * (not fused)),
    )


def _end(body: Body, m: Model) -> None:
    """Add what follows the parts of a Gemma layer: its own input, and a product with a constant."""
    if m.layer_input:
        from simcore.workload.archs.lm_inputs import taken  # few models have any

        taken(body, m.mlp.seq, m.mlp.hidden, m.layers, m.layer_input, m.norms.norm)
    if m.norms.scaled_layer and not m.run.compiled:
        body.add(ops.scale("layer.scale", m.elems, high=True))


def _streamed_layer(m: Model, kind: Kind) -> Body:
    """One layer of attention and a feed-forward part, each of which reads a sum of the streams."""
    from simcore.workload.archs import lm_streams as streams

    body, seq, hidden = Body(m.adapters, fused=m.run.compiled), m.mlp.seq, m.mlp.hidden
    for part in ("attention", "mlp"):
        read = streams.collapse(body, m.streams, f"{part}.streams", seq, hidden, m.norms.norm)
        name = "norm1" if part == "attention" else "norm2"
        body.norm(name, seq, hidden, m.norms.norm, reads=read, bias=m.norms.norm_bias)
        if part == "attention":
            _mix(body, m, kind, m.attention.indexed(kind.index), name)
        else:
            _mlp(body, m, kind.routed, name)
        streams.expand(body, m.streams, f"{part}.streams", seq, hidden)
    return body


def _alternating_layer(m: Model, kind: Kind) -> Body:
    """One layer of Gemma 3n: the first stream's part, and the prediction of the other streams."""
    from simcore.workload.archs import lm_alternating as alternating  # one model's
    from simcore.workload.archs.lm_inputs import taken

    body, seq, hidden, norm = Body(m.adapters), m.mlp.seq, m.mlp.hidden, m.norms.norm
    shape = replace(m.windowed if kind.windowed else m.attention, given_kv=kind.given_kv)
    alternating.predicted(body, m.streams, seq, hidden, norm)
    body.norm("norm1", seq, hidden, norm, reads="predicted")
    alternating.branch(body, m.streams, seq, hidden, norm)
    attention(body, shape, "norm1", m.window if kind.windowed else 0)
    body.norm("attention.norm", seq, hidden, norm, narrow=True)
    alternating.joined(body, seq, hidden)
    body.norm("norm2", seq, hidden, norm)
    if kind.sparse:
        alternating.sparse_gate(body, seq, kind.ffn or m.mlp.ffn)
    dense(body, replace(m.mlp, ffn=kind.ffn or m.mlp.ffn), "norm2")
    body.norm("mlp.norm", seq, hidden, norm, narrow=True)
    body.add(
        ops.binary("mlp.residual", m.elems, grads=0, high=True),
        ops.accumulate("mlp.fork", m.elems, high=True),
    )
    alternating.corrected(body, m.streams, seq, hidden, norm)
    if m.layer_input:
        taken(body, seq, hidden, m.layers, m.layer_input, norm, m.streams.streams - 1)
    return body


def layer(m: Model, kind: Kind) -> Body:
    """One layer: a mixer and a feed-forward part, each with a norm, or only one of the two."""
    if m.streams.alternating:
        return _alternating_layer(m, kind)
    if m.streams.streams > 1:
        return _streamed_layer(m, kind)
    fused = m.run.compiled
    body = Body(m.adapters, fused=fused)
    seq, hidden, elems = m.mlp.seq, m.mlp.hidden, m.elems
    if kind.ffn:
        m = replace(m, mlp=replace(m.mlp, ffn=kind.ffn))
    window = m.window if kind.windowed else 0
    attention_shape = (m.windowed if kind.windowed else m.attention).indexed(kind.index)
    if not kind.turned:
        attention_shape = attention_shape.unturned()
    attention_shape = replace(attention_shape, given_kv=kind.given_kv)

    def norm(name: str, reads: str = "", *, narrow: bool = False) -> None:
        body.norm(
            name, seq, hidden, m.norms.norm, reads=reads, bias=m.norms.norm_bias,
            weight=m.norms.norm_weight, narrow=narrow,
        )  # fmt: skip

    residual = m.norms.residual
    if residual == "after" and kind.mixer in RECURRENT:
        residual = "serial"
    before, after = residual != "after", residual in ("sandwich", "after")
    if before and kind.mixer != "n":
        norm("norm1", "x")
    if not before and not fused:
        body.high |= {"x", "halfway"}
    if m.norms.is_parallel:
        has_two_norms = m.norms.residual == "parallel"
        attention(body, attention_shape, "norm1", window)
        if has_two_norms:
            norm("norm2", "x")
        _mlp(body, m, kind.routed, "norm2" if has_two_norms else "norm1")
        _join_parallel(body, m)
        return body
    joined = m.drop and m.mlp.fused_pointwise
    # A norm's output is as wide as the residual, so that the sum needs no cast.
    normed = after or (kind.routed and m.experts.expert_norm)

    def summed(name: str) -> Op:
        if m.norms.scaled_residual and not fused:
            body.add(ops.scale(f"{name}.scale", elems))
        if joined:
            return ops.dropout_add(name, elems)
        return (
            ops.binary(name, elems, grads=0, high=True)
            if normed
            else (ops.residual(name, elems, fused=fused))
        )

    def forked(name: str) -> Op:
        return ops.accumulate(name, elems, high=True, casts=elems * (not fused and not normed))

    mixed = kind.mixer != "n"
    if mixed:
        _mix(body, m, kind, attention_shape, "norm1" if before else "x")
        if after:
            norm("attention.norm", narrow=True)
        name = "attention" if kind.mixer == "a" else "mixer"
        attended = replace(summed(f"{name}.residual"), role="mixer_sum")
        body.add(attended, forked(f"{name}.fork"))
    if not kind.fed:
        return body
    if before:
        norm("norm2", "" if mixed else "x")
    _mlp(body, m, kind.routed, "norm2" if before else "halfway")
    if after:
        norm("mlp.norm", narrow=True)
    body.add(summed("mlp.residual"), forked("mlp.fork"))
    _end(body, m)
    return body
