"""Rows and channels that kernels of a block each work on at once, and what a row costs an SM."""

from __future__ import annotations

from typing import Final

from simcore.hardware.estimates import families_of
from simcore.hardware.spec import GpuSpec

#: Warps that are resident on an SM (CUDA C++ Programming Guide, technical specifications per
#: compute capability), waves on a compute unit (ROCm, accelerator specifications).
_WARPS: Final = {
    "Kepler": 64, "Maxwell": 64, "Pascal": 64, "Volta": 64, "Turing": 32, "Ampere-GA100": 64,
    "Ampere": 48, "Ada": 48, "Hopper": 64, "Blackwell": 64, "Blackwell-GB202": 48,
    "GCN5": 40, "CDNA1": 40, "CDNA2": 32, "CDNA3": 32, "CDNA4": 32,
}  # fmt: skip
#: Warps of a row's block (ATen thread_constants.h, ``num_threads``: four of 32, or of 64 on ROCm).
_BLOCK: Final = 4


def rows_in_flight(gpu: GpuSpec) -> float:
    """Rows of a whole device; 0 where it is not known."""
    warps = _WARPS.get(families_of(gpu)[-1]) or _WARPS.get(gpu.architecture)
    if warps is None or gpu.sm_count is None:
        return 0.0
    return gpu.sm_count.value * (warps // _BLOCK)


def rows_per_l2_byte(gpu: GpuSpec) -> float:
    """Rows in flight over the bytes of L2; 0 where one of them is not known."""
    return rows_in_flight(gpu) / gpu.l2_size.value if gpu.l2_size else 0.0


def row_s(gpu: GpuSpec, row_clocks: float) -> float:
    """Seconds a row at least, of which each takes an SM so many clocks; 0 where it is not known.

    That is the launch of its block, dependent reductions and barriers, however short it is.
    """
    if not rows_in_flight(gpu) or gpu.sm_count is None or gpu.boost_clock is None:
        return 0.0
    return row_clocks / (gpu.sm_count.value * gpu.boost_clock.value)


#: Blocks of cuDNN's batch norm (``1C11``) that an SM has room for: of 512 threads with 40 registers
#: each, as TensorFlow's profiler records them beside a full occupancy of 48 warps.
_CHANNEL_WARPS: Final = 16
_CHANNEL_BLOCKS: Final = 3


def channel_slots(gpu: GpuSpec) -> float:
    """Channels of a batch norm in flight on a whole device; 0 where its kernels are not cuDNN's."""
    warps = _WARPS.get(families_of(gpu)[-1]) or _WARPS.get(gpu.architecture)
    if gpu.vendor != "NVIDIA" or warps is None or gpu.sm_count is None:
        return 0.0
    return gpu.sm_count.value * min(_CHANNEL_BLOCKS, warps // _CHANNEL_WARPS)
