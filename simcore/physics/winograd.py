"""3x3 convolutions at stride 1 as a library finds them quickest: implicit products, or Winograd's.

F(4x4, 3x3) turns a tile of 4x4 outputs into 36 multiplications a pair of channels where a direct
convolution makes 144 (Lavin & Gray 2016). Libraries run it as kernels of their own (cuDNN's
WINOGRAD_NONFUSED): transforms of input, filter and result, and 36 products between, whose operands
pass through memory. Pure functions on broadcasting arrays.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from simcore.base.arrays import NDArray
from simcore.physics.fill import matmul_fill
from simcore.physics.roofline import FloatArray, FloatLike

#: Side of a tile's outputs, and the multiplications of a tile.
TILE: Final = 4.0
PRODUCTS: Final = 36.0
TAPS: Final = 9.0
#: Bytes of an element between the kernels: fp32.
_WIDTH: Final = 4.0


def conv_fill(
    pixels: FloatLike,
    images: FloatLike,
    inner: FloatLike,
    outer: FloatLike,
    sm_count: FloatLike,
    wave_frac: FloatLike,
    half_depth: FloatLike,
    flop_per_byte: FloatLike,
) -> FloatArray:
    """Rate of a 3x3 convolution over that of large products; above one where Winograd's saves.

    ``pixels`` of an image's output, ``inner`` and ``outer`` channels. ``flop_per_byte``: rate of
    large products over that of memory.
    """
    direct = matmul_fill(pixels * images, outer, TAPS * inner, 1.0, sm_count, wave_frac, half_depth)
    tiles = images * np.square(np.ceil(np.sqrt(np.maximum(pixels, 1.0)) / TILE))
    filled = matmul_fill(tiles, outer, inner, PRODUCTS, sm_count, wave_frac, half_depth)
    products = 2.0 * PRODUCTS * tiles * inner * outer / filled
    # Each operand and result of the products once there, and once in its transform.
    moved = _WIDTH * PRODUCTS * (tiles * (inner + outer) + inner * outer) * flop_per_byte
    saved: FloatArray = (2.0 * TAPS * pixels * images * inner * outer) / (
        np.hypot(products, moved) + moved
    )
    return np.maximum(direct, saved)


def conv_geometry(
    m: FloatArray, n: FloatArray, k: FloatArray, of_weight: NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(pixels of all images, inner, outer channels) of the implicit product [m, k] @ [k, n].

    ``of_weight``: where it is the weight's gradient, which contracts the pixels.
    """
    return np.where(of_weight, k, m), np.where(of_weight, m, k) / TAPS, n


__all__ = ["conv_fill", "conv_geometry"]
