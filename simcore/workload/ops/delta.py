"""The gated delta rule by chunks (Yang, Kautz & Hatamizadeh 2024, arXiv 2412.06464).

The kernels are those of flash-linear-attention (fla/ops/gated_delta_rule/chunk.py, wy_fast.py;
fla/ops/common/chunk_delta_h.py, chunk_o.py, chunk_scaled_dot_kkt.py). They are priced as the scan
of ``ops.ssd``: products as batched matrix products, everything else as memory traffic; no
measurement supports this.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from simcore.base.units import FP32_BYTES
from simcore.workload.graph import Affine, Kernel, Op
from simcore.workload.ops.ssd import chunk_product
from simcore.workload.saved import Saved

#: Tokens per chunk (chunk.py: chunk_size=64), the same for all models.
CHUNK = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaShape:
    """Sizes of a layer: ``key_heads`` of ``key_dim`` serve ``value_heads`` of ``value_dim``.

    ``conv``: taps of the convolution. ``by_channel``: each channel of a key has its own decay rate,
    not each head (Kimi Team 2025, arXiv 2510.26692: Kimi Delta Attention; fla/ops/kda).
    """

    seq: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv: int
    by_channel: bool = False

    @property
    def keys(self) -> int:
        """Width of q, and of k, before they are repeated for the heads of values."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Width of v, of the gate and of the result."""
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        """Channels of the convolution: q, k and v."""
        return 2 * self.keys + self.values


def delta_gates(name: str, s: DeltaShape) -> Op:
    """The gates of each head, in tensor operations.

    beta = sigmoid(b) and g = -exp(A) softplus(a + bias). Saves beta, the sum and its softplus in
    fp32. ``by_channel``: one kernel computes g and saves its inputs (fla/ops/kda/gate.py).
    """
    each = float(s.seq * s.value_heads)
    if s.by_channel:
        key_elems = each * s.key_dim
        return Op(
            name=name,
            fwd=(Kernel(kind="elementwise", low=2 * each),
                 Kernel(kind="elementwise", low=key_elems, raw_bytes=FP32_BYTES * key_elems)),
            bwd=(Kernel(kind="elementwise", low=3 * each),
                 Kernel(kind="elementwise", low=2 * key_elems, raw_bytes=FP32_BYTES * key_elems),
                 Kernel(kind="reduction", low=key_elems, launches=2.0)),
            saved=Saved(low=each + key_elems),
        )  # fmt: skip
    fwd = Kernel(kind="elementwise", low=3 * each, raw_bytes=7 * FP32_BYTES * each, launches=7.0)
    bwd = Kernel(kind="elementwise", low=4 * each, raw_bytes=8 * FP32_BYTES * each, launches=7.0)
    return Op(
        name=name, fwd=(fwd,), bwd=(bwd,), saved=Saved(low=each, raw_bytes=2 * FP32_BYTES * each)
    )


def delta_split(name: str, s: DeltaShape) -> Op:
    """q and k repeated for each head of values; all three tensors are made contiguous.

    Backward sums over the repeats and joins the three gradients.
    """
    repeated = float(s.seq * s.value_heads * s.key_dim)
    unrepeated, v = float(s.seq * s.keys), float(s.seq * s.values)
    fwd = Kernel(
        kind="copy", low=2 * (unrepeated + repeated + v), launches=3.0, indexed=2 * repeated + v
    )
    bwd = [Kernel(kind="copy", low=2 * (2 * unrepeated + v))]
    if s.value_heads > s.key_heads:
        bwd.insert(0, Kernel(kind="reduction", low=2 * (unrepeated + repeated), launches=2.0))
    return Op(name=name, fwd=(fwd,), bwd=tuple(bwd))


def delta_rule(name: str, s: DeltaShape) -> Op:
    """Norms of q and k, then the rule in chunks of T = 64 tokens by its WY representation.

    FLOP of forward, per token and head of keys K and values V: k k' 2TK; the triangular inverse
    T^2/3; w and u 2T(K + V); states 4KV (one after the other: only heads and columns run in
    parallel); the output 2T(K + V) + 2KV. Products do not skip masked pairs. Backward computes w, u
    and the states once more, 2T(K + V) + 4KV; then dv 2T(K + V), gradients of states 6KV, of q, k
    and w 2TV + 4TK + 6KV, and of the representation 10TK + 4TV + 4T^2. Saves normalised q and k, v,
    the inverse, g and two deviations.
    """
    heads, keys, values = s.value_heads, s.key_dim, s.value_dim
    chunk = min(CHUNK, s.seq)
    tokens = float(s.seq * heads)
    qk, v, inverse = tokens * keys, tokens * values, tokens * chunk
    each = float(ceil(s.seq / chunk) * heads)
    states = each * keys * values
    by_keys, by_values = 2 * chunk * qk, 2 * chunk * v
    by_state, square = 2 * tokens * keys * values, tokens * chunk**2
    gates = FP32_BYTES * tokens
    decays = gates * (keys if s.by_channel else 1)
    in_chunk = (chunk, keys, chunk)

    def product(flop: float, low: float, more: float = 0.0) -> Kernel:
        return chunk_product(flop, low, in_chunk, each, raw_bytes=gates + decays + more)

    def passing(flop: float, low: float) -> Kernel:
        """The states of a head, one chunk after the other: a product as deep as the sequence."""
        return Kernel(
            kind="gemm", flop=flop, low=low, raw_bytes=decays, m=Affine(keys), n=Affine(values),
            k=Affine(s.seq), groups=Affine(0, heads), wide=True,
        )  # fmt: skip

    summed = Kernel(kind="elementwise", raw_bytes=2 * decays)
    w_u = product(by_keys + by_values, 2 * (qk + v) + inverse)
    pass_on = passing(2 * by_state, 2 * qk + 2 * v + states)
    fwd = (
        Kernel(kind="norm", low=4 * qk, raw_bytes=2 * gates, launches=2.0),
        summed,
        product(by_keys, qk, FP32_BYTES * inverse),
        product(square / 3, inverse, FP32_BYTES * inverse),
        w_u,
        pass_on,
        product(by_keys + by_values + by_state, 2 * qk + 2 * v + states),
    )
    bwd = (
        w_u,
        pass_on,
        product(by_keys + by_values, 2 * qk + 2 * v),
        passing(3 * by_state, 3 * qk + 3 * v + states),
        product(2 * by_keys + by_values + 3 * by_state, 6 * qk + 3 * v + 2 * states),
        product(5 * by_keys + 2 * by_values + 4 * square, 4 * qk + 3 * v + inverse),
        Kernel(kind="elementwise", low=3 * qk, raw_bytes=3 * gates, launches=2.0),
        summed,
        Kernel(kind="norm", low=6 * qk, raw_bytes=2 * gates, launches=2.0),
    )
    # With decays by channel the pairs of q and k are saved too, and decays both as given and
    # summed.
    more = inverse if s.by_channel else 0.0
    kept_decays = 2 * decays if s.by_channel else decays
    saved = Saved(low=2 * qk + v + inverse + more, raw_bytes=2 * gates + kept_decays)
    return Op(name=name, fwd=fwd, bwd=bwd, saved=saved, result=Saved(low=v))
