"""Products on matrix units of operands whose rows begin anywhere: few elements a load.

A matrix unit's kernel copies tiles of its operands into shared memory, 16 bytes an instruction
and lane where every row begins at a multiple of 16 bytes. Where rows do not, an instruction takes
less. Since cuBLAS 11 such products have kernels of their own: cutlass_75_tensorop_bf16_s1688gemm_
bf16_128x64_tn_align1 on an A100 (pegainfer pull request 1046), ..._align2 on Hopper (kestrel pull
request 143).
"""

from __future__ import annotations

from typing import Final

#: Output tile of those kernels, by their names.
TILE: Final = (128, 64)
#: Lanes of the load and store units of an SM: one instruction of a warp a clock (Volta to Hopper:
#: 4 quarters of 8 units).
LANES: Final = 32
#: Bytes that are copied straight into shared memory at least (PTX ISA, cp.async: 4, 8 or 16).
COPIED_BYTES: Final = 4
#: Share of the peak that warp-wise instructions reach on devices of asynchronous ones, whose
#: operands such loads cannot feed (Luo et al. 2024, mma on H800: 62.9 % on average).
WARPWISE_FRAC: Final = 0.629


def narrow_load_slowdown(
    fma_per_clock: float,
    load_elems: int,
    elem_bytes: float,
    *,
    copies: bool,
    asynchronous: bool,
) -> float:
    """How much longer products take than those of aligned rows.

    A unit of depth takes an SM ``128 · 64 / fma_per_clock`` clocks of products and ``(128 + 64) /
    (32 load_elems)`` of loads, and as many of stores into shared memory unless ``copies`` spare
    them (4 bytes and more, since Ampere). Both are taken to add up: kernels of two stages hold
    what they loaded in registers meanwhile.
    """
    products = TILE[0] * TILE[1] / fma_per_clock
    straight = copies and load_elems * elem_bytes >= COPIED_BYTES
    loads = sum(TILE) / (LANES * load_elems) * (1.0 if straight else 2.0)
    return 1.0 / (WARPWISE_FRAC if asynchronous else 1.0) + loads / products
