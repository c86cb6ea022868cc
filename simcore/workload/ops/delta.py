"""The gated delta rule by chunks (Yang, Kautz & Hatamizadeh 2024, arXiv 2412.06464).

The kernels are those of flash-linear-attention (fla/ops/gated_delta_rule/chunk.py, wy_fast.py;
fla/ops/common/chunk_delta_h.py, chunk_o.py, chunk_scaled_dot_kkt.py). Their products and the
passing of states take the clocks of their thread blocks (``hardware.linear_attention``) beside
their memory traffic, everything else its traffic alone.
"""

from __future__ import annotations

from math import ceil

from simcore.base.record import dataclass
from simcore.base.units import FP32_BYTES
from simcore.workload.graph import Kernel, Op
from simcore.workload.ops.ssd import chunk_product, chunk_states
from simcore.workload.saved import Saved

#: Tokens per chunk (chunk.py: chunk_size=64), the same for all models.
CHUNK = 64


@dataclass(frozen=True, kw_only=True)
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


def delta_rule(name: str, s: DeltaShape, *, repeated: bool = True) -> Op:
    """Norms of q and k, then the rule in chunks of T = 64 tokens by its WY representation.

    FLOP of forward, per token and head of keys K and values V: k k' 2TK; the triangular inverse
    T^2/3; w and u 2T(K + V); states 4KV (one after the other: only heads run in parallel); the
    output 2T(K + V) + 2KV. Products skip no masked pairs, and a last chunk counts whole. Backward
    computes w, u and the states once more, 2T(K + V) + 4KV; then dv 2T(K + V), gradients of states
    6KV, of q, k and w 2TV + 4TK + 6KV, and of the representation 10TK + 4TV + 4T^2. Saves
    normalised q and k, v, the inverse, g and two deviations. ``repeated``: q and k lie in memory
    once for each head of values, otherwise once for each head of keys.

    With decays by channel one kernel computes the pairs of k with k and of q with k, and another
    their gradients, 8TK of the representation's (fla/ops/kda/chunk_intra.py).
    """
    heads, keys, values = s.value_heads, s.key_dim, s.value_dim
    tokens = float(s.seq * heads)
    qk = float(s.seq * (heads if repeated else s.key_heads)) * keys
    v, inverse, w = tokens * values, tokens * CHUNK, tokens * keys
    each = float(ceil(s.seq / CHUNK) * heads)
    states, whole = each * keys * values, each * CHUNK
    by_keys, by_values = 2 * CHUNK * whole * keys, 2 * CHUNK * whole * values
    by_state, square = 2 * whole * keys * values, whole * CHUNK**2
    gates = FP32_BYTES * tokens
    decays = gates * (keys if s.by_channel else 1)
    once_more = by_keys if s.by_channel else 0.0  # FLOP of the pairs of q with k

    def product(flop: float, low: float, more: float = 0.0, *, pairs: bool = False) -> Kernel:
        by_channel = pairs and s.by_channel
        raw_bytes = gates + decays + more
        return chunk_product(flop, low, each, raw_bytes=raw_bytes, by_channel=by_channel)

    def passing(flop: float, low: float) -> Kernel:
        return chunk_states(flop, low, heads, raw_bytes=decays)

    summed = Kernel(kind="elementwise", raw_bytes=2 * decays)
    w_u = product(by_keys + by_values, qk + w + 2 * v + inverse)
    pass_on = passing(2 * by_state, qk + w + 2 * v + states)
    fwd = (
        Kernel(kind="norm", low=4 * qk, raw_bytes=2 * gates, launches=2.0),
        summed,
        product(by_keys + once_more, qk, FP32_BYTES * inverse, pairs=True),
        product(square / 3, inverse, FP32_BYTES * inverse, pairs=True),
        w_u,
        pass_on,
        product(by_keys + by_values + by_state - once_more, 2 * qk + 2 * v + states),
    )
    of_pairs: tuple[Kernel, ...] = ()
    if s.by_channel:  # q, k and their gradients so far; decays' gradients; both pairs' gradients
        more = 4 * w * FP32_BYTES + 2 * FP32_BYTES * inverse
        of_pairs = (product(4 * by_keys, 4 * qk, more, pairs=True),)
    bwd = (
        w_u,
        pass_on,
        product(by_keys + by_values, 2 * qk + 2 * v),
        passing(3 * by_state, 2 * qk + w + 3 * v + states),
        product(2 * by_keys + by_values + 3 * by_state, 4 * qk + 2 * w + 3 * v + 2 * states),
        product(5 * by_keys + 2 * by_values + 4 * square - 4 * once_more,
                3 * qk + w + 3 * v + inverse),
        *of_pairs,
        Kernel(kind="elementwise", low=3 * qk, raw_bytes=3 * gates, launches=2.0),
        summed,
        Kernel(kind="norm", low=6 * qk, raw_bytes=2 * gates, launches=2.0),
    )  # fmt: skip
    # With decays by channel the pairs of q and k are saved too, and decays both as given and
    # summed.
    more = inverse if s.by_channel else 0.0
    kept_decays = 2 * decays if s.by_channel else decays
    saved = Saved(low=2 * qk + v + inverse + more, raw_bytes=2 * gates + kept_decays)
    return Op(name=name, fwd=fwd, bwd=bwd, saved=saved, result=Saved(low=v))
