"""Rate of 3x3 convolutions at stride 1 by the faster of implicit GEMM and Winograd's algorithm.

F(4x4, 3x3) computes a tile of 4x4 outputs with 36 multiplications per pair of channels, where a
direct convolution needs 144 (Lavin & Gray 2016). Libraries run it as separate kernels (cuDNN's
WINOGRAD_NONFUSED): transforms of input, filter and result, and 36 matrix products between them,
whose operands pass through memory. Pure functions on broadcasting arrays.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from simcore.base.arrays import NDArray
from simcore.physics.fill import matmul_fill
from simcore.physics.roofline import FloatArray, FloatLike

#: Outputs along a tile's side; multiplications per tile and pair of channels; taps of a 3x3 filter.
TILE: Final = 4.0
PRODUCTS: Final = 36.0
TAPS: Final = 9.0
#: Bytes per element of the operands between the kernels: fp32.
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
    """Rate of a 3x3 convolution over that of large matrix products; above 1 where Winograd wins.

    ``pixels``: output pixels per image; ``inner``, ``outer``: input and output channels;
    ``flop_per_byte``: rate of large products [FLOP/s] over the memory's [bytes/s]; the other
    arguments as for :func:`simcore.physics.fill.matmul_fill`.
    """
    direct = matmul_fill(pixels * images, outer, TAPS * inner, 1.0, sm_count, wave_frac, half_depth)
    tiles = images * np.square(np.ceil(np.sqrt(np.maximum(pixels, 1.0)) / TILE))
    filled = matmul_fill(tiles, outer, inner, PRODUCTS, sm_count, wave_frac, half_depth)
    products = 2.0 * PRODUCTS * tiles * inner * outer / filled
    # The products and the transforms each move every operand and every result once.
    moved = _WIDTH * PRODUCTS * (tiles * (inner + outer) + inner * outer) * flop_per_byte
    saved: FloatArray = (2.0 * TAPS * pixels * images * inner * outer) / (
        np.hypot(products, moved) + moved
    )
    return np.maximum(direct, saved)


def conv_geometry(
    m: FloatArray, n: FloatArray, k: FloatArray, of_weight: NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(pixels of all images, inner channels, outer channels) of an implicit GEMM [m, k] @ [k, n].

    ``of_weight``: whether the product is the gradient of the weight, which contracts the pixels.
    """
    return np.where(of_weight, k, m), np.where(of_weight, m, k) / TAPS, n


__all__ = ["conv_fill", "conv_geometry"]
