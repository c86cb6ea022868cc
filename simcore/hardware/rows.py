"""Rows or channels in flight in kernels of one thread block per row, and SM time per row."""

from __future__ import annotations

from typing import Final

from simcore.hardware.estimates import families_of
from simcore.hardware.spec import GpuSpec

#: Most resident warps per SM (CUDA C++ Programming Guide, technical specifications per compute
#: capability), or waves per compute unit (ROCm, accelerator specifications).
_WARPS: Final = {
    "Kepler": 64, "Maxwell": 64, "Pascal": 64, "Volta": 64, "Turing": 32, "Ampere-GA100": 64,
    "Ampere": 48, "Ada": 48, "Hopper": 64, "Blackwell": 64, "Blackwell-GB202": 48,
    "GCN5": 40, "CDNA1": 40, "CDNA2": 32, "CDNA3": 32, "CDNA4": 32,
}  # fmt: skip
#: Warps in the block of a row (ATen thread_constants.h, ``num_threads``: four warps of 32 threads,
#: or of 64 on ROCm).
_BLOCK: Final = 4


def rows_in_flight(gpu: GpuSpec) -> float:
    """Rows that a whole device works on at once; 0 if unknown."""
    warps = _WARPS.get(families_of(gpu)[-1]) or _WARPS.get(gpu.architecture)
    if warps is None or gpu.sm_count is None:
        return 0.0
    return gpu.sm_count.value * (warps // _BLOCK)


def rows_per_l2_byte(gpu: GpuSpec) -> float:
    """Rows in flight, over the bytes of L2; 0 if one of them is unknown."""
    return rows_in_flight(gpu) / gpu.l2_size.value if gpu.l2_size else 0.0


def row_s(gpu: GpuSpec, row_clocks: float) -> float:
    """Least seconds per row of a device, at ``row_clocks`` SM clocks per row; 0 if unknown.

    The clocks pay for the launch of the row's block, dependent reductions and barriers, however
    short the row is.
    """
    if not rows_in_flight(gpu) or gpu.sm_count is None or gpu.boost_clock is None:
        return 0.0
    return row_clocks / (gpu.sm_count.value * gpu.boost_clock.value)


#: Warps per block of cuDNN's batch norm (``1C11``), and resident blocks per SM. TensorFlow's
#: profiler records blocks of 512 threads with 40 registers each, and a full occupancy of 48 warps.
_CHANNEL_WARPS: Final = 16
_CHANNEL_BLOCKS: Final = 3


def channel_slots(gpu: GpuSpec) -> float:
    """Channels of a cuDNN batch norm in flight on a whole device; 0 for other libraries."""
    warps = _WARPS.get(families_of(gpu)[-1]) or _WARPS.get(gpu.architecture)
    if gpu.vendor != "NVIDIA" or warps is None or gpu.sm_count is None:
        return 0.0
    return gpu.sm_count.value * min(_CHANNEL_BLOCKS, warps // _CHANNEL_WARPS)
