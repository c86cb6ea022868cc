"""Time of a kernel from its work and a device's rates: the one roofline, and the traffic laws.

    t = start + sqrt(tc^2 + tm^2)

``tc`` is FLOP over the rate that the kernel reaches at its shape (``physics.fill``), ``tm`` the
time of its memory traffic. Calibration inverts this formula (``calibrate.ops.model``), and
``timing.compute`` prices every kernel of a step with it. All laws of traffic are in this module:

- cache: what was written just before is read from L2;
- rows: kernels of a thread block a row read rows twice and need a least time per row;
- indexed: elements that are addressed or converted one by one, limited by integer arithmetic;
- blocks: kernels whose thread blocks reduce channels, which run in whole waves;
- layout turns: channels-first tensors of convolutions, transposed or computed on vector units;
- column sums: sums over rows, a thread block for 32 columns, which few SMs may run;
- alignment: unaligned rows, which matrix units load a few elements at a time.

Pure functions on broadcasting arrays: usually K kernels x C configurations.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.record import dataclass

FloatArray: TypeAlias = NDArray[np.float64]
FloatLike: TypeAlias = float | NDArray[np.floating[Any]]


def roofline_s(compute_s: FloatLike, memory_s: FloatLike, start_s: FloatLike = 0.0) -> FloatArray:
    """Seconds of kernels that compute and move data at once: a roofline with a rounded knee.

        start + sqrt(compute^2 + memory^2)

    The exponent 2 is close to the fit of op tables (1.9) and needs no power function.
    """
    return np.sqrt(np.square(compute_s) + np.square(memory_s)) + start_s


# -- memory traffic --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Traffic:
    """What kernels move, and what they handle one by one; arrays that broadcast.

    ``n_bytes``: bytes that they read and write. ``rows``: rows that a thread block each processes,
    ``row_bytes``: bytes of one of them, ``reread_bytes``: bytes of all that are read a second time.
    ``indexed``: elements addressed or converted one by one.
    """

    n_bytes: FloatLike
    rows: FloatLike = 0.0
    row_bytes: FloatLike = 0.0
    reread_bytes: FloatLike = 0.0
    indexed: FloatLike = 0.0


@dataclass(frozen=True)
class TrafficLimits:
    """A device's figures for what limits traffic besides its bandwidth; 0: no such limit.

    ``rows_per_l2_byte``: rows in flight over the bytes of L2. ``row_s``: least seconds per row.
    ``indexed_s``: seconds per indexed element. ``l2_bytes``: size of L2; ``l2_bytes_per_s``: its
    bandwidth, 0 where it is unknown.
    ``sm_bytes_per_s``: what one SM reads from it, 0 where it is unknown.
    """

    rows_per_l2_byte: float = 0.0
    row_s: float = 0.0
    indexed_s: float = 0.0
    l2_bytes: float = 0.0
    l2_bytes_per_s: float = 0.0
    sm_bytes_per_s: float = 0.0


def traffic_s(traffic: Traffic, bytes_per_s: FloatLike, limits: TrafficLimits) -> FloatArray:
    """Seconds of the memory traffic of kernels, by the laws of rows and of indexed elements.

        max(bytes / rate, rows · row_s, indexed · indexed_s)

    ``bytes`` includes what is read from memory a second time (:func:`missed_frac`).
    ``bytes_per_s``: bandwidth that the kernels sustain.
    """
    reread = traffic.reread_bytes * missed_frac(traffic.row_bytes, limits.rows_per_l2_byte)
    stream_s = (traffic.n_bytes + reread) / bytes_per_s
    one_by_one_s = np.maximum(traffic.rows * limits.row_s, traffic.indexed * limits.indexed_s)
    return np.maximum(stream_s, one_by_one_s)


#: Bytes read and written by the rows in flight, over the L2 size: up to STAYS the second pass finds
#: all of a row in L2, from LEAVES on nothing. Layer norms on eight devices with 2 to 40 MiB of L2
#: show this step (half of the reads miss near 1.0 on A100, near 1.2 on P4 and T4).
STAYS: Final = 0.6
LEAVES: Final = 1.6


def missed_frac(row_bytes: FloatLike, rows_per_l2_byte: float) -> FloatArray:
    """Share of the bytes of a row's second reading that miss L2 and come from memory.

    ATen's layer norm (native/cuda/layer_norm_kernel.cu) gives each row a block of four warps. A
    first pass computes mean and variance, a second pass reads the row once more and writes the
    result. The backward does the same with gradient and input. L2 serves the second pass as long as
    it holds all rows that are in flight at once.

    ``row_bytes``: bytes read and written per row; ``rows_per_l2_byte``: rows in flight over the
    bytes of L2.
    """
    over_l2 = np.asarray(row_bytes, dtype=float) * rows_per_l2_byte
    return np.minimum(np.maximum((over_l2 - STAYS) / (LEAVES - STAYS), 0.0), 1.0)


#: Clocks of a block per element that it reads or writes, by bytes per element.
#: fp32: 3 passes of 16 x 64 x 256 x 256 take 0.558 ms on H100 (KernelBench); backward of 64, 256
#: and 512 channels takes 5.66, 5.12 and 5.09 passes of a stream on V100 (a TensorFlow profile).
#: 16 bit: all norms of a ResNet-50 at 128 images on A100 (profiles of PyTorch, both layouts).
_CLOCKS: Final = {4.0: 0.27, 2.0: 0.55}


def clocks_per_element(element_bytes: float) -> float:
    """Clocks of a channel's block per element of ``element_bytes`` that it reads or writes."""
    return _CLOCKS.get(element_bytes, _CLOCKS[4.0])


def blocks_s(blocks: FloatLike, block_s: FloatLike, slots: FloatLike) -> FloatArray:
    """Seconds by which thread blocks that reduce channels keep a kernel, which join its traffic's.

        ceil(blocks / slots) · seconds of one block

    cuDNN's batch norms of channels-first tensors (``bn_fw_tr_1C11_kernel_NCHW``,
    ``bn_bw_1C11_kernel_new``; PyTorch chooses them in training unless tensors are channels last,
    ATen native/cudnn/BatchNorm.cpp) launch one block of 512 threads per channel. A block streams
    its channel with few loads in flight, so that 64 channels leave most of a device's bandwidth
    idle. PyTorch's own kernels are alike (ATen native/cuda/Normalization.cuh). Each wave of blocks,
    the last one included, takes as long as one block. ``slots``: blocks in flight, 0 where the
    device's library has no such kernels; the result is then 0. Join it with :func:`roofline_s`.
    """
    filled = np.where(np.asarray(slots) > 0.0, slots, np.inf)  # without slots no wave
    waves: FloatArray = np.ceil(np.asarray(blocks, dtype=float) / filled)
    return waves * block_s


#: Columns whose sums over the rows are a thread block's in ATen's gradients of a norm's weight and
#: bias (layer_norm_kernel.cu, LaunchGammaBetaBackwardCUDAKernel and, before torch 2.8,
#: GammaBetaBackwardCUDAKernel_32x32). Above so many rows further blocks share them, if columns
#: alone would keep less than half of the SMs at work.
SUMMED_COLUMNS: Final = 32.0
SHARED_ROWS: Final = 65536.0


def column_sums_s(
    rows: FloatLike, columns: FloatLike, n_bytes: FloatLike, sm_count: float, sm_bytes_per_s: float
) -> FloatArray:
    """The least seconds of a kernel that sums over rows, whose thread blocks may fill few SMs.

        ceil(blocks / SMs) · bytes / (blocks · bytes per second of an SM),  blocks = columns / 32

    A block of 1,024 threads reads 32 columns of all rows, so that a narrow tensor of many rows is
    read by a few SMs, each at the rate at which it reads L2 (``sm_bytes_per_s``). 0 where the rows
    are so many that further blocks share them. :func:`roofline_s` joins it with the traffic's time.
    """
    blocks = np.ceil(np.asarray(columns, dtype=float) / SUMMED_COLUMNS)
    shared = (np.asarray(rows) > SHARED_ROWS) & (blocks < sm_count / 2.0)
    seconds = np.ceil(blocks / sm_count) * n_bytes / (blocks * sm_bytes_per_s)
    return np.where(shared, 0.0, seconds)


#: Bytes of a tensor over the size of L2: up to STILL_THERE the next kernel finds it, from GONE on
#: nothing of it, since other reads and its own writes pass through L2 too. Norms and sums that were
#: timed just after the kernel before them change there on A100 and H100 (Vidur's tables).
STILL_THERE: Final = 0.4
GONE: Final = 0.6
#: Share of such a tensor that is found: these kernels save half of the time of its bytes on both
#: devices, whose L2 is 3.2 times as fast as their memory (``l2_bytes_per_clock``, runtime.yaml).
FOUND: Final = 0.72


def in_cache_frac(tensor_bytes: FloatLike, l2_bytes: float) -> FloatArray:
    """Share of a tensor's bytes that the kernel after the one that wrote it reads from L2.

    FOUND · clip((GONE - bytes / L2) / (GONE - STILL_THERE), 0, 1)
    """
    over_l2 = np.asarray(tensor_bytes, dtype=float) / l2_bytes
    return FOUND * np.clip((GONE - over_l2) / (GONE - STILL_THERE), 0.0, 1.0)


# -- layout and alignment --------------------------------------------------------------------------


def either_layout_s(
    channels_last_s: FloatLike, turned_bytes: FloatLike, s_per_byte: FloatLike, direct_s: FloatLike
) -> FloatArray:
    """Seconds of convolutions of channels-first tensors: the faster of two ways.

        min(channels last + turned bytes · seconds per byte, direct)

    Either matrix units compute in channels-last layout (``channels_last_s``) and kernels before and
    after transpose ``turned_bytes``, or vector units take the tensors as they are (``direct_s``).
    """
    return np.minimum(channels_last_s + turned_bytes * s_per_byte, direct_s)


#: Output tile of kernels for unaligned rows, as their names state it.
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


#: Clocks by which storing an element of an operand along the depth takes longer than of one across
#: it. 8,192 rows to 50,257 columns, forward (both along the depth) over the gradient of the weight
#: (neither): 1.35 times on RTX A6000 (SLinOSS's census of kernels), 1.22 to 1.56 on H200 (three
#: shapes, validate/cards and a machine of another day): 1.6 and 1.3 clocks.
DEPTH_STORE: Final = 1.5
#: Share of a tile's loaded elements that lie along the depth, by the number of operands that do: of
#: one, the shorter side (..._256x128_nn_align1 on H200, of which that of 128 rows does).
_ALONG_DEPTH: Final = (0.0, 1.0 / 3.0, 1.0)


def narrow_load_slowdown(
    fma_per_clock: float,
    load_elems: int,
    elem_bytes: float,
    *,
    copies: bool,
    asynchronous: bool,
    operands_along_depth: int = 0,
) -> float:
    """Time of matrix products whose rows are not aligned to 16 bytes, over that of aligned ones.

    A kernel for matrix units copies tiles of its operands into shared memory, 16 bytes per
    instruction and lane if every row begins at a multiple of 16 bytes. With other rows an
    instruction loads fewer elements. Since cuBLAS 11 such products have special kernels:
    cutlass_75_tensorop_bf16_s1688gemm_bf16_128x64_tn_align1 on an A100 (pegainfer pull request
    1046), ..._align2 on Hopper (kestrel pull request 143).

    Per unit of depth an SM spends ``128 · 64 / fma_per_clock`` clocks on products and ``(128 + 64)
    / (32 load_elems)`` on loads. Stores into shared memory take as long again, unless direct copies
    avoid them (``copies``: since Ampere, for 4 bytes and more), and ``DEPTH_STORE`` more for
    elements of the ``operands_along_depth`` whose rows run along the depth, across which products
    want them (in kernels since Ampere; those of Volta are others). Products and loads are assumed
    not to overlap: kernels of two stages hold loaded data in registers until products are done.

    ``fma_per_clock``: of an SM; ``load_elems``: elements per load and lane; ``elem_bytes``: bytes
    per element; ``asynchronous``: whether the device's matrix instructions are asynchronous.
    """
    products = TILE[0] * TILE[1] / fma_per_clock
    straight = copies and load_elems * elem_bytes >= COPIED_BYTES
    stores = 0.0 if straight else 1.0 + DEPTH_STORE * _ALONG_DEPTH[operands_along_depth] * copies
    loads = sum(TILE) / (LANES * load_elems) * (1.0 + stores)
    return 1.0 / (WARPWISE_FRAC if asynchronous else 1.0) + loads / products
