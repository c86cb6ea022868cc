"""Kernels of a block a row, which read a row, reduce it and read it again: norms.

ATen's layer norm (native/cuda/layer_norm_kernel.cu) gives each row a block of four warps: one
pass for mean and variance, one that reads the row once more and writes. Its backward does the same
with gradient and input. What the second pass reads comes from L2 as long as the rows that are in
flight at once leave it there.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from simcore.physics.roofline import FloatArray, FloatLike

#: Bytes of the rows in flight, read and written, over L2: up to the first all of a row is still
#: there when it is read again, from the second on nothing. Layer norms of eight devices, whose L2
#: has 2 to 40 MiB, step there (half is missed near 1.0 on A100, 1.2 on P4 and T4).
STAYS: Final = 0.6
LEAVES: Final = 1.6


def missed_frac(row_bytes: FloatLike, rows_per_l2_byte: float) -> FloatArray:
    """Share of a row's second reading that memory serves, and not L2.

    ``row_bytes`` read and written; ``rows_per_l2_byte``: rows in flight over L2.
    """
    over_l2 = np.asarray(row_bytes, dtype=float) * rows_per_l2_byte
    missed: FloatArray = np.clip((over_l2 - STAYS) / (LEAVES - STAYS), 0.0, 1.0)
    return missed
