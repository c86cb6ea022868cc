"""Slowdown of matrix products whose operand rows are not aligned to 16 bytes.

A kernel for matrix units copies tiles of its operands into shared memory, 16 bytes per instruction
and lane if every row begins at a multiple of 16 bytes. With other rows an instruction loads fewer
elements. Since cuBLAS 11 such products have special kernels: cutlass_75_tensorop_bf16_s1688gemm_
bf16_128x64_tn_align1 on an A100 (pegainfer pull request 1046), ..._align2 on Hopper (kestrel pull
request 143).
"""

from __future__ import annotations

from typing import Final

#: Output tile of those kernels, as their names state it.
TILE: Final = (128, 64)
#: Load and store units of an SM: they run one instruction of a warp per clock (Volta to Hopper: 4
#: quarters of 8 units).
LANES: Final = 32
#: Least bytes of a direct copy into shared memory (PTX ISA, cp.async: 4, 8 or 16).
COPIED_BYTES: Final = 4
#: Share of the peak that warp-wise matrix instructions (mma) reach on devices with asynchronous
#: ones (wgmma), which unaligned loads cannot feed (Luo et al. 2024, mma on H800: 62.9 % on
#: average).
WARPWISE_FRAC: Final = 0.629


def narrow_load_slowdown(
    fma_per_clock: float,
    load_elems: int,
    elem_bytes: float,
    *,
    copies: bool,
    asynchronous: bool,
) -> float:
    """Time of products with unaligned rows over that with aligned rows.

    Per unit of depth an SM spends ``128 · 64 / fma_per_clock`` clocks on products and ``(128 + 64)
    / (32 load_elems)`` on loads. Stores into shared memory take as long again, unless direct copies
    avoid them (``copies``: since Ampere, for 4 bytes and more). Products and loads are assumed not
    to overlap: kernels of two stages hold loaded data in registers until the products are done.

    ``fma_per_clock``: of an SM; ``load_elems``: elements per load and lane; ``elem_bytes``: bytes
    per element; ``asynchronous``: whether the device's matrix instructions are asynchronous.
    """
    products = TILE[0] * TILE[1] / fma_per_clock
    straight = copies and load_elems * elem_bytes >= COPIED_BYTES
    loads = sum(TILE) / (LANES * load_elems) * (1.0 if straight else 2.0)
    return 1.0 / (WARPWISE_FRAC if asynchronous else 1.0) + loads / products
