"""One layer of a language model: a mixer of tokens, a feed-forward part, norms and sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from simcore.base.record import dataclass
from simcore.workload import ops
from simcore.workload.archs.body import Adapters, Body
from simcore.workload.archs.lm_attention import AttentionShape, attention
from simcore.workload.archs.lm_kinds import RECURRENT, Kind
from simcore.workload.archs.lm_mlp import GATED, MlpShape, dense, experts
from simcore.workload.archs.lm_settings import Experts, Implementation, Norms, RankShare
from simcore.workload.graph import Op

if TYPE_CHECKING:
    from simcore.workload.archs.lm_mixers import MixerShape


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
    _times(body, m, "mlp.result.scale", m.elems)
    if m.drop and (m.norms.residual != "serial" or not m.mlp.fused_pointwise):
        body.add(ops.dropout("mlp.dropout", m.elems))


def _mix(body: Body, m: Model, kind: Kind, attention_shape: AttentionShape, reads: str) -> None:
    """Add the ops that mix tokens, by the layer's kind; ``reads``: the tensor that they read."""
    window = m.window if kind.windowed else attention_shape.selected
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
        ops.residual("attention.residual", elems, fused=fused),
        ops.residual("mlp.residual", elems, fused=fused),
        ops.accumulate("forks", elems, times=2, high=True, casts=2 * elems * (not fused)),
    )


def layer(m: Model, kind: Kind) -> Body:
    """One layer: a mixer and a feed-forward part, each with a norm, or only one of the two."""
    fused = m.run.compiled
    body = Body(m.adapters, fused=fused)
    seq, hidden, elems = m.mlp.seq, m.mlp.hidden, m.elems
    if kind.ffn:
        m = replace(m, mlp=replace(m.mlp, ffn=kind.ffn))
    window = m.window if kind.windowed else 0
    attention_shape = (m.windowed if kind.windowed else m.attention).indexed(kind.index)
    if not kind.turned:
        attention_shape = attention_shape.unturned()

    def norm(name: str, reads: str = "", *, narrow: bool = False) -> None:
        body.norm(
            name, seq, hidden, m.norms.norm, reads=reads, bias=m.norms.norm_bias,
            weight=m.norms.norm_weight, narrow=narrow,
        )  # fmt: skip

    before, after = m.norms.residual != "after", m.norms.residual in ("sandwich", "after")
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
    normed = after

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
        body.add(summed(f"{name}.residual"), forked(f"{name}.fork"))
    if not kind.fed:
        return body
    if before:
        norm("norm2", "" if mixed else "x")
    _mlp(body, m, kind.routed, "norm2" if before else "halfway")
    if after:
        norm("mlp.norm", narrow=True)
    body.add(summed("mlp.residual"), forked("mlp.fork"))
    if m.norms.scaled_layer and not fused:
        body.add(ops.scale("layer.scale", elems, high=True))
    return body
