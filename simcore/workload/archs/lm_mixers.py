"""Mixers that replace attention: Mamba-2, Mamba-1, DeltaNet, lightning attention, convolution."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from simcore.base.record import dataclass
from simcore.workload import ops
from simcore.workload.archs.body import Body
from simcore.workload.archs.lm_attention import AttentionShape
from simcore.workload.archs.lm_settings import Mixers, Sizes
from simcore.workload.graph import Op

#: Allowed numbers of products into which DeltaNet's first product is split.
_PRODUCTS = (1, 2, 4, 6)
_NO_SELECTIVE = ops.SelectiveShape(seq=1, inner=0, state=0, rank=0, conv=0, normed=False)
_NO_DELTA = ops.DeltaShape(seq=1, key_heads=0, value_heads=0, key_dim=0, value_dim=0, conv=0)


@dataclass(frozen=True, kw_only=True)
class MixerShape:
    """Sizes and options of all mixers; a mixer that no layer has is of zero heads.

    - ``bias``: products have one; ``conv_bias``: the convolution has one.
    - ``apart``: norm and last product of Mamba-2 are separate modules, which save their inputs, not
      part of the scan's autograd function.
    - ``normed``: Mamba-2 has a gated norm; without one (Falcon-H1) the scan applies the gate.
    - ``products``: number of products into which DeltaNet's first one is split: 1 (Megatron-Core),
      2 (Qwen3-Next: q, k, v and gate; b and a), 4 (Qwen3.5: q, k and v; gate; b; a) or 6 (OLMo
      Hybrid: q; k; v; gate; b; a). ``wide_gates``: decays by channel and the gate beside them come
      from one product each.
    """

    seq: int
    hidden: int
    ssd: ops.SsdShape
    selective: ops.SelectiveShape = _NO_SELECTIVE
    delta: ops.DeltaShape = _NO_DELTA
    bias: bool
    conv_bias: bool
    apart: bool
    products: int
    wide_gates: bool = False
    normed: bool = True


def mixer_shape(sizes: Sizes, own: Mixers, apart: bool) -> MixerShape:
    """The shape of all mixers of a model."""
    seq = sizes.seq_len
    return MixerShape(
        seq=seq, hidden=sizes.hidden, bias=sizes.bias, conv_bias=own.conv_bias, apart=apart,
        products=own.delta_products, wide_gates=own.delta_wide_gates, normed=own.ssm_norm,
        ssd=ops.SsdShape(
            seq=seq, heads=own.ssm_heads, head_dim=own.ssm_head_dim, state=own.ssm_state,
            groups=own.ssm_groups, chunk=own.ssm_chunk, conv=own.conv_kernel,
        ),
        selective=ops.SelectiveShape(
            seq=seq, inner=own.ssm_inner, state=own.ssm_state, rank=own.ssm_rank,
            conv=own.conv_kernel, normed=own.ssm_norm,
        ),
        delta=ops.DeltaShape(
            seq=seq, key_heads=own.delta_key_heads, value_heads=own.delta_value_heads,
            key_dim=own.delta_key_dim, value_dim=own.delta_value_dim, conv=own.conv_kernel,
        ),
    )  # fmt: skip


def check_mixers(m: MixerShape, mixers: Set[str]) -> None:
    """Raises ValueError if the sizes of a mixer, by its letter, do not fit."""
    of_mamba = mixers & {"m", "h"}
    if of_mamba and (not m.ssd.heads or m.ssd.heads % m.ssd.groups):
        raise ValueError(f"ssm_heads {m.ssd.heads} must be a multiple of ssm_groups {m.ssd.groups}")
    if "s" in mixers and not (m.selective.inner and m.selective.rank):
        raise ValueError("Mamba-1 needs its widths ssm_inner and ssm_rank")
    if "k" in mixers and (not m.delta.value_heads or m.delta.key_heads != m.delta.value_heads):
        raise ValueError("delta_key_heads and delta_value_heads must be equal where decays are "
                         "by channel")  # fmt: skip
    if "g" in mixers:
        keys, values = m.delta.key_heads, m.delta.value_heads
        if not keys or not values or values % keys:
            raise ValueError(
                f"delta_value_heads {values} must be a multiple of delta_key_heads {keys}"
            )
        if m.products not in _PRODUCTS:
            raise ValueError(f"delta_products {m.products} is none of 1, 2, 4, 6")


def _untrained(body: Body, op: Op) -> Op:
    """The op, or, in the frozen base of adapters, a norm without its weight's gradient."""
    return op if body.trains else replace(op, bwd=op.bwd[:1])


def mamba(body: Body, m: MixerShape, reads: str) -> None:
    """Add Mamba-2's mixer (mamba_ssm, modules/mamba2.py; Megatron-Core, ssm/mamba_mixer.py).

    One autograd function starts at the first product's result (mamba_split_conv1d_scan_combined).
    It saves that result and, of the scan, only the result; the norm's backward recomputes the last
    product's input. ``apart`` (Megatron-Core): the function ends before the norm and applies the
    gate.
    """
    s = m.ssd
    body.param("A_log", s.heads)
    body.param("D", s.heads)
    body.param("dt_bias", s.heads)
    body.param("conv1d.weight", s.channels * s.conv)
    if m.conv_bias:
        body.param("conv1d.bias", s.channels)
    body.linear("in_proj", m.seq, m.hidden, s.width, bias=m.bias, reads=reads)
    body.add(
        ops.causal_conv(
            "mixer.conv", m.seq, s.channels, s.conv, recomputes=True, save_input=False
        ),
        ops.ssd_scan(
            "mixer.scan", s, gated=m.apart or not m.normed, recomputes=not (m.apart or m.normed)
        ),
    )  # fmt: skip
    last = "mixer.rms" if m.normed else "mixer.scan"
    if m.normed:
        # Each group of heads is a row of the norm; the scan already saves z and its result.
        body.add(_untrained(body, ops.gated_norm(
            "mixer.rms", float(m.seq * s.groups), s.inner // s.groups, gated=not m.apart,
            recomputes=not m.apart, input_kept=not m.apart, gate_kept=True,
        )))  # fmt: skip
        body.param("mixer.norm.weight", s.inner)
    if not m.apart:
        body.kept.add(last)
    body.linear("out_proj", m.seq, s.inner, m.hidden, bias=m.bias, reads=last)


def selective(body: Body, m: MixerShape, norm: str, reads: str) -> None:
    """Add Mamba-1's mixer (transformers, JambaMambaMixer), with or without norms of steps, B and C.

    The first product's result is laid out by tokens, but the kernels read channels: x, gate, B and
    C are copied. x and its gate are one storage, which the convolution saves.
    """
    s, rows = m.selective, float(m.seq)
    x = rows * s.inner
    body.param("A_log", s.inner * s.state)
    body.param("D", s.inner)
    body.param("conv1d.weight", s.inner * s.conv)
    if m.conv_bias:
        body.param("conv1d.bias", s.inner)
    body.linear("in_proj", rows, m.hidden, 2 * s.inner, bias=m.bias, reads=reads)
    body.add(ops.causal_conv("mixer.conv", m.seq, s.inner, s.conv), ops.keep("mixer.gate", x))
    body.linear("x_proj", rows, s.inner, s.width, reads="mixer.x")
    parts = (("dt", s.rank), ("b", s.state), ("c", s.state)) if s.normed else ()
    for part, dim in parts:
        body.norm(f"{part}_norm", rows, dim, norm, narrow=True)
    body.linear("dt_proj", rows, s.rank, s.inner, reads="dt_norm" if s.normed else "x_proj")
    body.param("dt_proj.bias", s.inner)
    body.add(
        ops.accumulate("mixer.x.forks", x),
        ops.copy("mixer.rows", 2 * x + 2 * rows * s.state),
        ops.selective_scan("mixer.scan", s),
    )
    body.linear("out_proj", rows, s.inner, m.hidden, bias=m.bias, reads="mixer.scan")


def delta_net(body: Body, m: MixerShape, reads: str) -> None:
    """Add Gated DeltaNet.

    transformers, Qwen3NextGatedDeltaNet; Megatron-Core, gated_delta_net.py.
    """
    s, rows = m.delta, float(m.seq)
    _delta_params(body, m, s.value_heads)
    qkv, z, each = s.channels, s.values, s.value_heads
    widths = {
        1: (qkv + z + 2 * each,), 2: (qkv + z, 2 * each), 4: (qkv, z, each, each),
        6: (s.keys, s.keys, s.values, z, each, each),
    }  # fmt: skip
    for i, width in enumerate(widths[m.products]):
        body.linear(f"in_proj{i or ''}", rows, m.hidden, width, bias=m.bias, reads=reads)
    if more := m.products - 1:
        high = reads in body.high
        body.add(ops.accumulate("mixer.inputs", rows * m.hidden, times=more, high=high))
    gate = 0 if m.products == 6 else s.values  # with a product of its own it is not copied
    body.add(ops.copy("mixer.parts", rows * (s.channels + gate)))
    _delta_rule(body, m, s, bias=m.bias)


def _delta_params(body: Body, m: MixerShape, steps: int) -> None:
    """Add the parameters of decays, of as many ``steps``, and of the convolution."""
    body.param("A_log", m.delta.value_heads)
    body.param("dt_bias", steps)
    body.param("conv1d.weight", m.delta.channels * m.delta.conv)
    if m.conv_bias:
        body.param("conv1d.bias", m.delta.channels)


def _delta_rule(body: Body, m: MixerShape, s: ops.DeltaShape, *, bias: bool) -> None:
    """Add what follows the products of the input: convolution, rule, gated norm, product."""
    rows = float(m.seq)
    body.add(
        ops.causal_conv("mixer.conv", m.seq, s.channels, s.conv),
        ops.delta_gates("mixer.gates", s),
        ops.delta_split("mixer.split", s),
        ops.delta_rule("mixer.rule", s),
        _untrained(body, ops.gated_norm("mixer.rms", rows * s.value_heads, s.value_dim)),
    )
    body.param("mixer.norm.weight", s.value_dim)
    body.linear("out_proj", rows, s.values, m.hidden, bias=bias, reads="mixer.rms")


def kimi_delta(body: Body, m: MixerShape, reads: str) -> None:
    """Add Kimi Delta Attention (transformers, KimiLinearDeltaAttention; fla/layers/kda.py).

    Two narrow products each compute the decays and the norm's gate from the input, or one wide
    product (Ling 3).
    """
    s, rows = replace(m.delta, by_channel=True), float(m.seq)
    _delta_params(body, m, s.keys)
    inner = {"q": s.keys, "k": s.keys, "v": s.values}
    for part, width in inner.items():
        body.linear(part, rows, m.hidden, width, reads=reads)
    body.linear("b", rows, m.hidden, s.value_heads, reads=reads)
    for part, rank, width in (("f", s.key_dim, s.keys), ("g", s.value_dim, s.values)):
        if m.wide_gates:
            body.linear(part, rows, m.hidden, width, reads=reads)
        else:
            body.linear(f"{part}_a", rows, m.hidden, rank, reads=reads)
            body.linear(f"{part}_b", rows, rank, width, reads=f"{part}_a")
    high = reads in body.high
    body.add(
        ops.accumulate("mixer.inputs", rows * m.hidden, times=5, high=high),
        ops.copy("mixer.parts", rows * s.channels, as_it_lies=True),
    )
    _delta_rule(body, m, s, bias=False)


def lightning(body: Body, s: AttentionShape, reads: str) -> None:
    """Add lightning attention, with as many heads as attention has.

    As in transformers, MiniMaxLightningAttention: q, k and v pass SiLU; the result passes a norm
    over all heads and is multiplied by a sigmoid gate of the input.
    """
    rows, wide = float(s.seq), float(s.seq * s.q_dim)
    body.linear("qkv", rows, s.hidden, 3 * s.q_dim, reads=reads)
    body.add(
        ops.activation("mixer.silu", 3 * wide),
        ops.lightning_attention("mixer.lightning", s.seq, s.own.heads, s.own.head_dim),
    )
    # The norm is over heads, which tensor ranks share out: it is no norm of whole hidden rows.
    body.norm("mixer_norm", rows, s.q_dim, s.norm, narrow=True)
    body.linear("output_gate", rows, s.hidden, s.q_dim, reads=reads)
    body.add(
        ops.accumulate("mixer.inputs", rows * s.hidden, high=reads in body.high),
        ops.activation("output_gate.sigmoid", wide, saves="output"),
        ops.binary("output_gate.product", wide, saves=wide, grads=2),
    )
    body.linear("out_proj", rows, s.q_dim, s.hidden, reads="gated")


def short_conv(body: Body, m: MixerShape, reads: str) -> None:
    """Add LFM2's gated convolution over a few preceding tokens (transformers, Lfm2ShortConv).

    One product gives two gates and x. Gates and convolution are tensor operations on channels that
    lie in rows of tokens, and the result is copied back; gradients of the three parts are joined.
    """
    rows, elems = float(m.seq), float(m.seq * m.hidden)
    body.param("conv.weight", m.hidden * m.ssd.conv)
    if m.conv_bias:
        body.param("conv.bias", m.hidden)
    body.linear("in_proj", rows, m.hidden, 3 * m.hidden, bias=m.bias, reads=reads)
    body.add(
        ops.grad_only("mixer.cat", 6.0 * elems, kind="copy"),
        ops.binary("mixer.gate_in", elems, saves=3 * elems, grads=2),
        ops.causal_conv("mixer.conv", m.seq, m.hidden, m.ssd.conv),
        ops.binary("mixer.gate_out", elems, saves=elems, grads=2),
        ops.copy("mixer.rows", elems),
    )
    body.linear("out_proj", rows, m.hidden, m.hidden, bias=m.bias, reads="mixer.rows")
