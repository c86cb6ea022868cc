"""L2 misses of norms, whose kernels run one thread block per row and read every row twice.

ATen's layer norm (native/cuda/layer_norm_kernel.cu) gives each row a block of four warps. A first
pass computes mean and variance, a second pass reads the row once more and writes the result. The
backward does the same with gradient and input. L2 serves the second pass as long as it holds all
rows that are in flight at once.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from simcore.physics.roofline import FloatArray, FloatLike

#: Bytes read and written by the rows in flight, over the L2 size: up to STAYS the second pass finds
#: all of a row in L2, from LEAVES on nothing. Layer norms on eight devices with 2 to 40 MiB of L2
#: show this step (half of the reads miss near 1.0 on A100, near 1.2 on P4 and T4).
STAYS: Final = 0.6
LEAVES: Final = 1.6


def missed_frac(row_bytes: FloatLike, rows_per_l2_byte: float) -> FloatArray:
    """Share of the bytes of a row's second reading that miss L2 and come from memory.

    ``row_bytes``: bytes read and written per row; ``rows_per_l2_byte``: rows in flight over the
    bytes of L2.
    """
    over_l2 = np.asarray(row_bytes, dtype=float) * rows_per_l2_byte
    missed: FloatArray = np.clip((over_l2 - STAYS) / (LEAVES - STAYS), 0.0, 1.0)
    return missed
