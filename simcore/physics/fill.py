"""Fill of a device: rate of a product at its shape over that of large matrix products.

It is in (0, 1] for products by tiles and for attention, and may exceed 1 for convolutions by
Winograd's algorithm. Pure functions on broadcasting arrays: usually K kernels x C configurations.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from simcore.base.arrays import NDArray
from simcore.physics.kernel import FloatArray, FloatLike

#: Output tiles among which libraries choose: size along the output's long side, then the short one.
TILES: Final[tuple[tuple[int, int], ...]] = ((256, 128), (128, 128), (128, 64), (64, 64), (64, 32))
#: Relative cost of the operand loads of smaller tiles: per 1/128 by which 1/long + 1/short exceeds
#: that of 256 x 128. Fits of op tables give 0.01 (Hopper, Blackwell) to 0.2 (A100).
TILE_PENALTY: Final = 0.05
#: Least depth of a block with split-K.
SPLIT_K: Final = 512
#: Query rows of one block of flash attention.
ATTENTION_ROWS: Final = 128
#: Depth of one matrix instruction along the head dimension (16-bit inputs).
MATRIX_DEPTH: Final = 16.0

_LONG = np.array([t[0] for t in TILES], dtype=float)
_SHORT = np.array([t[1] for t in TILES], dtype=float)
_SPEED = 1.0 / (1.0 + TILE_PENALTY * (128.0 / _LONG + 128.0 / _SHORT - 1.5))


def matmul_fill(
    m: FloatLike,
    n: FloatLike,
    k: FloatLike,
    groups: FloatLike,
    sm_count: FloatLike,
    wave_frac: FloatLike = 0.0,
    half_depth: FloatLike = 0.0,
    tile: tuple[FloatLike, FloatLike] | None = None,
) -> FloatArray:
    """Fill of ``groups`` products [m, k] @ [k, n] by the best of :data:`TILES`.

        max over tiles of  speed · useful / waves · depth / (depth + half_depth)

    ``useful``: waves of tiles that the output would fill without padding. ``waves``: blocks / SMs;
    ``wave_frac`` says how far the last, partial wave counts as a full one (1: fully, since a block
    waits for a free SM; 0: not at all, since persistent kernels balance the tail). Below one wave
    split-K cuts k into slices of at least 512; ``depth`` is that of a slice. ``half_depth``
    [elements]: the depth at which starting the pipeline takes as long as the products. A product
    with a short side of 1 (matrix by vector, depthwise convolution) uses no tiles: its fill is 1,
    and memory limits it. Geometry below 1 counts as 1. ``tile`` (rows, columns): the smallest tile
    of the library, to whole multiples of which outputs are padded.
    """
    k, groups = np.maximum(k, 1.0), np.maximum(groups, 1.0)
    no_tiles = np.minimum(m, n) <= 1.0
    useful: FloatLike = 1.0
    if tile is not None:
        padded_m, padded_n = np.ceil(m / tile[0]) * tile[0], np.ceil(n / tile[1]) * tile[1]
        useful = m * n / (padded_m * padded_n)
        m, n = padded_m, padded_n
    long, short = np.maximum(m, n), np.minimum(m, n)
    shape = np.broadcast_shapes(
        *(np.shape(a) for a in (long, k, groups, sm_count, wave_frac, half_depth))
    )
    axes = (len(TILES),) + (1,) * len(shape)
    tile_long, tile_short = _LONG.reshape(axes), _SHORT.reshape(axes)
    per_sm = groups / np.asarray(sm_count, dtype=float)
    blocks = np.ceil(long / tile_long) * np.ceil(short / tile_short)
    waves = blocks * per_sm
    tail = wave_frac * np.ceil(waves) + (1.0 - np.asarray(wave_frac)) * waves
    split = np.maximum(k / SPLIT_K, 1.0)
    spread = np.maximum(waves, 1.0 / split)  # below one wave: a slice's share of the depth
    spent = np.where(waves >= 1.0, tail, spread)
    depth = k * np.minimum(spread, 1.0)
    fill = (long * short * per_sm) * (_SPEED / (_LONG * _SHORT)).reshape(axes) / spent
    best: FloatArray = (fill * (depth / (depth + half_depth))).max(axis=0)
    return np.where(no_tiles, 1.0, useful * np.minimum(best, 1.0))


def own_sides(sides: FloatArray) -> FloatArray:
    """Sides [..., 4, 2] of products without the rows by which tiles exceed those of their groups.

    Such rows are the fixed part of a side that grows with the batch.
    """
    padded = (sides[..., 3:, :1] > 1.0) & (sides > 0.0).all(axis=-1, keepdims=True)
    own = sides.copy()
    own[..., :1] = np.where(padded, 0.0, sides[..., :1])
    return own


def array_fill(side: float, *lengths: FloatLike) -> FloatArray:
    """Share of a systolic array of ``side`` x ``side`` that operands of these lengths use.

        product of  length / (length rounded up to a multiple of side)

    The contracted length and one length of the output lie along the array; the other one passes
    through it ("How to Scale Your Model", TPUs: shorter axes are padded to the array's side).
    """
    filled = (x / (np.maximum(np.ceil(x / side), 1.0) * side) for x in map(np.asarray, lengths))
    return np.prod(np.broadcast_arrays(*filled), axis=0)


def attention_fill(
    seq_q: FloatLike,
    head_dim: FloatLike,
    seq_kv: FloatLike,
    heads: FloatLike,
    sm_count: FloatLike,
    wave_frac: FloatLike = 0.0,
    half_depth: FloatLike = 0.0,
    half_width: FloatLike = 0.0,
) -> FloatArray:
    """Fill of flash attention over ``heads`` heads of the whole batch.

        tail of (ceil(seq_q / 128) · heads / SMs) · seq_kv/(seq_kv + half_depth)
                                                  · head_dim/(padded + half_width)

    ``half_depth`` [keys] stands for the fixed cost of a call: filling the pipeline, rescaling,
    copies of the inputs. ``padded``: head_dim rounded up to a multiple of 16, the depth of a matrix
    instruction. ``half_width`` [elements] comes from :func:`softmax_width`.
    """
    blocks = np.maximum(np.ceil(np.asarray(seq_q) / ATTENTION_ROWS), 1.0)
    waves = blocks * np.maximum(heads, 1.0) / sm_count
    wave_frac = np.asarray(wave_frac, dtype=float)
    tail = np.where(waves >= 1.0, wave_frac * np.ceil(waves) + (1.0 - wave_frac) * waves, 1.0)
    seq_kv, head_dim = np.maximum(seq_kv, 1.0), np.maximum(head_dim, 1.0)
    padded = np.ceil(head_dim / MATRIX_DEPTH) * MATRIX_DEPTH
    return waves / tail * (seq_kv / (seq_kv + half_depth)) * (head_dim / (padded + half_width))


#: Tiles of CUTLASS's memory-efficient attention in fp32, Ampere and later: queries of a block, keys
#: and columns of the output up to a head dimension of 64 and above, elements of the head dimension
#: read at once, and blocks of an SM up to 64 and above (PyTorch, mem_eff_attention: cutlassF.h,
#: 64x64 and 64x128; kernel_forward.h, 12 warps an SM, one for each 32 x 32 of a tile).
_TILED_QUERIES: Final = 64.0
_TILE_COLUMNS: Final = (64.0, 128.0)
_TILE_DEPTH: Final = 32.0
_TILED_BLOCKS: Final = (3.0, 1.0)
#: Blocks of such tiles that an SM needs to reach its full rate: 64 blocks of 512 and of 1,024 keys
#: on the 132 SMs of an H200 (rows as ``attention_fp32`` of runtime.yaml); above 64 one has 8 warps.
_BUSY_BLOCKS: Final = (1.6, 1.0)


def tiled_attention_fill(
    seq_q: FloatLike, head_dim: FloatLike, seq_kv: FloatLike, heads: FloatLike, sm_count: FloatLike,
    _: FloatLike, half_depth: FloatLike, half_width: FloatLike,
) -> FloatArray:  # fmt: skip
    """Fill of CUTLASS's memory-efficient attention in fp32; arguments of :func:`attention_fill`.

        min(blocks / busy, 1) · seq_kv / (keys computed + half_depth)
                              · head_dim / (padded + half_width)

    Keys and output columns fill whole tiles, the scores' product whole pieces of the head
    dimension; ``padded`` is the mean of both. Where queries see half as many keys as they are many
    on average (a causal mask), a block also computes half a tile beyond, and the last blocks have
    twice the mean work: keys computed = mean + tile / 2 + mean / waves. ``busy``: blocks at which
    all SMs have their full rate.
    """
    seq_kv, head_dim = np.maximum(seq_kv, 1.0), np.maximum(head_dim, 1.0)
    small = head_dim <= _TILE_COLUMNS[0]
    columns = np.where(small, *_TILE_COLUMNS)
    rows = np.maximum(np.ceil(np.asarray(seq_q) / _TILED_QUERIES), 1.0)
    blocks = rows * np.maximum(heads, 1.0) / sm_count
    waves = np.maximum(blocks / np.where(small, *_TILED_BLOCKS), 1.0)
    triangle = seq_kv + columns / 2.0 + seq_kv / waves
    keys = np.where(2.0 * seq_kv == seq_q, triangle, np.ceil(seq_kv / columns) * columns)
    depth = np.ceil(head_dim / _TILE_DEPTH) * _TILE_DEPTH
    padded = (depth + np.ceil(head_dim / columns) * columns) / 2.0
    along = seq_kv / (keys + half_depth) * head_dim / (padded + half_width)
    return np.minimum(blocks / np.where(small, *_BUSY_BLOCKS), 1.0) * along


#: Exponentials per SM and clock (MUFU.EX2): 4 per quadrant since Volta; doubled in Blackwell
#: Ultra (developer.nvidia.com, "Making Softmax More Efficient with NVIDIA Blackwell Ultra").
EXP_PER_SM_CLOCK: Final = 16.0
#: Share of the exponentials' time that the products do not hide. Fits of op tables give 0.5 to 1.1
#: by device; the lower end transfers best to other devices (error on families left out of the fit
#: 13 % at 0.4 and 16 % at 0.8; on the fitted shapes 8.8 and 8.1 %).
EXP_EXPOSED_FRAC: Final = 0.5
#: FLOP of attention's two products per score and element of the head dimension.
_FLOP_PER_SCORE_ELEMENT: Final = 4.0


def softmax_width(
    peak_flop_per_s: float, sm_count: float, clock_hz: float, exp_per_sm_clock: float
) -> float:
    """Head dimension [elements] at which attention's products take as long as its exponentials.

    Of the exponentials of the softmax, only the part that does not overlap with the products
    counts: 0.5 · peak / (4 · SMs · clock · exponentials per SM and clock)
    """
    exp_per_s = sm_count * clock_hz * exp_per_sm_clock
    return EXP_EXPOSED_FRAC * peak_flop_per_s / (_FLOP_PER_SCORE_ELEMENT * exp_per_s)


#: Outputs along a tile's side; multiplications per tile and pair of channels; taps of a 3x3 filter.
WINOGRAD_TILE: Final = 4.0
WINOGRAD_PRODUCTS: Final = 36.0
TAPS: Final = 9.0
#: Bytes per element of the operands between the kernels: fp32.
_WINOGRAD_BYTES: Final = 4.0


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
    """Rate of a 3x3 convolution at stride 1 over that of large matrix products.

    It is the faster of implicit GEMM and Winograd's algorithm; above 1 where the latter wins.
    F(4x4, 3x3) computes a tile of 4x4 outputs with 36 multiplications per pair of channels, where a
    direct convolution needs 144 (Lavin & Gray 2016). Libraries run it as separate kernels (cuDNN's
    WINOGRAD_NONFUSED): transforms of input, filter and result, and 36 matrix products between them,
    whose operands pass through memory.

    ``pixels``: output pixels per image; ``inner``, ``outer``: input and output channels;
    ``flop_per_byte``: rate of large products [FLOP/s] over the memory's [bytes/s]; the other
    arguments as for :func:`matmul_fill`.
    """
    direct = matmul_fill(pixels * images, outer, TAPS * inner, 1.0, sm_count, wave_frac, half_depth)
    tiles = images * np.square(np.maximum(np.ceil(np.sqrt(pixels) / WINOGRAD_TILE), 1.0))
    filled = matmul_fill(tiles, outer, inner, WINOGRAD_PRODUCTS, sm_count, wave_frac, half_depth)
    products = 2.0 * WINOGRAD_PRODUCTS * tiles * inner * outer / filled
    # The products and the transforms each move every operand and every result once.
    operands = WINOGRAD_PRODUCTS * (tiles * (inner + outer) + inner * outer)
    moved = _WINOGRAD_BYTES * operands * flop_per_byte
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
