"""Lightning attention: linear attention with a constant decay per head, by blocks of tokens.

Qin et al. 2024, arXiv 2401.04658; MiniMax 2025, arXiv 2501.08313. Priced as the scan of
``ops.ssd``; no measurement supports this.
"""

from __future__ import annotations

from math import ceil

from simcore.base.units import FP32_BYTES
from simcore.workload.graph import Kernel, Op
from simcore.workload.ops.ssd import chunk_product, chunk_states
from simcore.workload.saved import Saved

#: Tokens per block (transformers, MiniMaxConfig.block_size; lightning_attention.py, BLOCK).
BLOCK = 256


def lightning_attention(name: str, seq: int, heads: int, width: int) -> Op:
    """Linear attention over q, k and v of ``heads`` heads of ``width`` D, in blocks of B tokens.

    Within a block all pairs of tokens are computed; across blocks a D x D state is passed on, one
    block after the other. FLOP of forward per token and head: q k' and pairs with v, 2BD each; q
    with the state and k' v, 2DD each. For each gradient of q, k and v, backward computes the pairs
    that it needs once more, 12BD, and states and their gradients, 10DD. Saves q, k and v.
    """
    block = min(BLOCK, seq)
    tokens = float(seq) * heads
    x, blocks = tokens * width, float(ceil(seq / block))
    states = FP32_BYTES * blocks * heads * width**2
    of_pairs, of_state = 2 * tokens * block * width, 2 * tokens * width**2

    def within(pairs: float, low: float) -> Kernel:
        return chunk_product(pairs * of_pairs, low, blocks * heads)

    def across(times: float, low: float) -> Kernel:
        return chunk_states(times * of_state, low, heads, raw_bytes=2 * states)

    return Op(
        name=name,
        fwd=(within(2, 4 * x), across(2, 4 * x)),
        bwd=(within(6, 7 * x), across(5, 7 * x)),
        saved=Saved(low=3 * x),
        result=Saved(low=x),
    )
