"""Mamba-2 between its two products: convolution, state space duality by chunks, gated norm.

Dao & Gu 2024 (arXiv 2405.21060), section 6, as mamba_ssm's kernels compute it
(ops/triton/ssd_combined.py: _mamba_chunk_scan_combined_fwd and _bwd,
MambaSplitConv1dScanCombinedFn). Products of chunks take the clocks of their thread blocks
(``hardware.linear_attention``) beside their memory traffic, everything else its traffic alone.
"""

from __future__ import annotations

from math import ceil

from simcore.base.record import dataclass
from simcore.base.units import FP32_BYTES
from simcore.workload.graph import Affine, Kernel, Op
from simcore.workload.saved import Saved

#: Kernels of tensor operations around the last kernel of backward, with one number per head: clone,
#: flip, cumsum, flip, two sums, and the sums of the gradients of A, D and the bias of dt
#: (ssd_combined.py).
_SMALL = 9.0


@dataclass(frozen=True, kw_only=True)
class SsdShape:
    """Sizes of a layer: ``heads`` of width ``head_dim`` with ``state`` numbers per element.

    ``groups``: groups of heads that share B and C; ``chunk``: tokens whose pairs are multiplied;
    ``conv``: taps of the convolution.
    """

    seq: int
    heads: int
    head_dim: int
    state: int
    groups: int
    chunk: int
    conv: int

    @property
    def inner(self) -> int:
        """Width of x, and of the gate z."""
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """Channels of the convolution: x, B and C."""
        return self.inner + 2 * self.groups * self.state

    @property
    def width(self) -> int:
        """Columns of the first product: z, x, B, C and dt."""
        return self.inner + self.channels + self.heads


def chunk_product(
    flop: float, low: float, blocks: float, *, raw_bytes: float = 0.0, launches: float = 1.0,
    by_channel: bool = False,
) -> Kernel:  # fmt: skip
    """A kernel of products within chunks, in 16 bit whatever the format of other products.

    Amounts are per sample. ``blocks``: chunks of all heads, a thread block each. ``by_channel``:
    each channel has its own decay.
    """
    return Kernel(
        kind="chunk_products_by_channel" if by_channel else "chunk_products", flop=flop, low=low,
        raw_bytes=raw_bytes, launches=launches, blocks=Affine(0, blocks), block_clocks=flop,
    )  # fmt: skip


def chunk_states(flop: float, low: float, heads: float, *, raw_bytes: float = 0.0) -> Kernel:
    """A kernel that passes the states of ``heads`` from chunk to chunk, a thread block a head."""
    return Kernel(
        kind="chunk_states", flop=flop, low=low, raw_bytes=raw_bytes, blocks=Affine(0, heads),
        block_clocks=flop,
    )  # fmt: skip


#: Tokens and channels of a thread block (causal_conv1d_fwd.cu, channellast: kChunkSizeL,
#: kChunkSizeC of 16-bit elements).
_CONV_TOKENS, _CONV_CHANNELS = 64, 64
#: Passes over the taps of an element in backward, where forward has one: for the activation's
#: gradient, the input's and the weights' (causal_conv1d_bwd.cu).
_CONV_BACKWARD = 3.0


def causal_conv(
    name: str,
    seq: int,
    channels: int,
    taps: int,
    *,
    recomputes: bool = False,
    save_input: bool = True,
) -> Op:
    """A depthwise convolution over preceding tokens, with SiLU, in one kernel (causal_conv1d).

    Backward recomputes the activation and computes the weights' gradient along with the input's.
    ``recomputes``: forward runs a second time before it. The taps are no matrix product: their
    2 * taps FLOP per element are left out, as those of other kernels without products are.
    """
    elems = float(seq) * channels
    weight = float(channels) * (taps + 1)
    blocks = Affine(0, float(ceil(seq / _CONV_TOKENS) * ceil(channels / _CONV_CHANNELS)))
    fwd = Kernel(
        kind="causal_conv", low=2 * elems, weight=weight, blocks=blocks, block_clocks=elems
    )
    bwd = Kernel(
        kind="causal_conv", low=3 * elems, weight=2 * weight, blocks=blocks,
        block_clocks=_CONV_BACKWARD * elems,
    )  # fmt: skip
    saved = Saved(low=elems * save_input)
    return Op(name=name, fwd=(fwd,), bwd=(fwd, bwd) if recomputes else (bwd,), saved=saved)


def ssd_scan(name: str, s: SsdShape, *, gated: bool, recomputes: bool = False) -> Op:
    """The scan by chunks: the state and the products of pairs of each chunk, states passed on.

    FLOP of forward for L tokens in chunks of Q, D = heads * head_dim, N states, G groups: states
    2LDN; C B' 2LQGN (all pairs); pairs with x 2LQD, of which causality leaves half; C with states
    2LDN. States and C B' are fp32. ``gated``: the kernel also multiplies by SiLU(z) and writes both
    results; ``recomputes``: backward recomputes the gated result for the product after it.

    Backward recomputes dt, C B' and the states; it has five products with states (states, their
    gradients, x, B, C), three with pairs (x, C B', decays) and two with C B' (B, C). Saves the
    first product's result, from which the convolution is recomputed, and the ungated result.
    """
    chunk = min(s.chunk, s.seq)
    chunks = float(ceil(s.seq / chunk))
    x, bc, dt = (float(s.seq) * n for n in (s.inner, s.groups * s.state, s.heads))
    states, pairs = chunks * s.inner * s.state, float(s.seq) * chunk * s.groups
    of_states, of_pairs = 2 * x * s.state, x * chunk
    of_cb = 2 * pairs * s.state
    each = chunks * s.heads
    groups = chunks * s.groups
    causal = FP32_BYTES * pairs / 2  # bytes of the fp32 pairs that causality leaves

    def by_states(low: float, raw_bytes: float, more: float = 0.0) -> Kernel:
        return chunk_product(of_states + more, low, each, raw_bytes=raw_bytes)

    decays = Kernel(kind="elementwise", low=dt, raw_bytes=2 * FP32_BYTES * dt)
    of_chunks = by_states(x + bc, FP32_BYTES * (states + 2 * dt))
    cb = chunk_product(of_cb, 2 * bc, groups, raw_bytes=FP32_BYTES * pairs)
    passed = Kernel(kind="elementwise", low=states, raw_bytes=FP32_BYTES * states)
    # x is read and the result written; if gated, z is read and the other result written too.
    scan = by_states((4 if gated else 2) * x + bc + states, causal + 2 * FP32_BYTES * dt, of_pairs)
    passed_wide = Kernel(kind="elementwise", raw_bytes=2 * FP32_BYTES * states)
    passed_back = Kernel(kind="elementwise", low=2 * states, raw_bytes=2 * FP32_BYTES * states)
    # Reads dout, z, the ungated result and x (for D); writes both gradients.
    ungate = (Kernel(kind="elementwise", low=(6 + recomputes) * x),) if gated else ()
    bwd = (
        decays, cb, of_chunks, passed_wide, *ungate,
        by_states(x + bc, FP32_BYTES * (states + dt)),  # gradient of the states
        passed_back,
        by_states(3 * x + bc + states, causal + 3 * FP32_BYTES * dt, of_pairs),  # gradient of x
        by_states(x + bc + states, FP32_BYTES * (bc + 2 * dt)),  # gradient of B
        by_states(x + bc + states, FP32_BYTES * (bc + 2 * dt)),  # gradient of C
        chunk_product(of_pairs, 2 * x, each, raw_bytes=FP32_BYTES * pairs),
        chunk_product(
            2 * of_cb, 4 * bc, groups, launches=2.0, raw_bytes=2 * FP32_BYTES * (pairs + bc)
        ),
        chunk_product(of_pairs, 2 * x, each, raw_bytes=causal + 2 * FP32_BYTES * dt),
        Kernel(
            kind="elementwise", low=dt, raw_bytes=2 * FP32_BYTES * dt * _SMALL, launches=_SMALL
        ),
        decays,
    )  # fmt: skip
    return Op(
        name=name,
        fwd=(decays, of_chunks, passed, cb, scan),
        bwd=bwd,
        saved=Saved(low=float(s.seq) * s.width + x),
        result=Saved(low=x),
    )


def gated_norm(
    name: str, rows: float, dim: int, *, gated: bool = True, recomputes: bool = False,
    input_kept: bool = False, gate_kept: bool = False,
) -> Op:  # fmt: skip
    """RMSNorm of ``rows`` of ``dim`` and SiLU of a gate in one kernel (layernorm_gated.py).

    Saves input, gate and a reciprocal deviation per row. ``gated=False``: the gate is applied
    elsewhere. ``recomputes``: backward writes the result a second time, for the product after it.
    ``input_kept``, ``gate_kept``: another op already saves the input, the gate.
    """
    elems = rows * dim
    fwd = Kernel(kind="norm", low=(3 if gated else 2) * elems, weight=float(dim))
    moved = (5 if gated else 3) + recomputes
    bwd = (
        Kernel(kind="norm", low=moved * elems, weight=float(dim)),
        Kernel(kind="reduction", weight=2.0 * dim),  # partial sums of the weight's gradient
    )
    kept = elems * ((not input_kept) + (gated and not gate_kept))
    saved = Saved(low=kept, raw_bytes=FP32_BYTES * rows)
    return Op(name=name, fwd=(fwd,), bwd=bwd, saved=saved, result=Saved(low=elems))
