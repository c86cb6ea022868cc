"""Lightning attention: linear attention with a constant decay a head, by blocks of tokens (Qin et
al. 2024, arXiv 2401.04658; MiniMax 2025, arXiv 2501.08313).

Priced as the scan of ``ops.ssd``: products as batched matrix products, all else as memory traffic,
unmeasured.
"""

from __future__ import annotations

from math import ceil

from simcore.base.units import FP32_BYTES
from simcore.workload.graph import Affine, Kernel, Op
from simcore.workload.ops.ssd import chunk_product
from simcore.workload.saved import Saved

#: Tokens of a block (transformers, MiniMaxConfig.block_size; lightning_attention.py, BLOCK).
BLOCK = 256


def lightning_attention(name: str, seq: int, heads: int, width: int) -> Op:
    """q, k and v of ``heads`` of ``width`` D: within blocks of B tokens all pairs, across blocks a
    D x D state, one block after the other.

    Forward, a token and head: q k' and pairs with v, 2BD each; q with the state and k' v, 2DD each.
    Backward makes for each of q, k and v's gradients the pairs that it needs once more, 12BD, and
    states and theirs, 10DD. Kept: q, k and v.
    """
    block = min(BLOCK, seq)
    tokens = float(seq) * heads
    x, blocks = tokens * width, float(ceil(seq / block))
    states = FP32_BYTES * blocks * heads * width**2
    of_pairs, of_state = 2 * tokens * block * width, 2 * tokens * width**2

    def within(pairs: float, low: float) -> Kernel:
        return chunk_product(pairs * of_pairs, low, (block, width, block), blocks * heads)

    def across(times: float, low: float) -> Kernel:
        """A head's states, one block after the other: a product as deep as the sequence."""
        return Kernel(
            kind="gemm", flop=times * of_state, low=low, raw_bytes=2 * states, m=Affine(width),
            n=Affine(width), k=Affine(seq), groups=Affine(0, heads), wide=True,
        )  # fmt: skip

    return Op(
        name=name,
        fwd=(within(2, 4 * x), across(2, 4 * x)),
        bwd=(within(6, 7 * x), across(5, 7 * x)),
        saved=Saved(low=3 * x),
        result=Saved(low=x),
    )
