"""Rows that a device's kernels of a block a row work on at once (``physics.rows``)."""

from __future__ import annotations

from typing import Final

from simcore.hardware.estimates import families_of
from simcore.hardware.spec import GpuSpec
from simcore.physics.rows import row_bound_s

#: Resident threads of an SM (CUDA C++ Programming Guide, technical specifications per compute
#: capability) and of a compute unit (ROCm, accelerator specifications: 40 waves of 64 on CDNA1, 32
#: since). Ampere's graphics chips have 1536, GA100 2048: with blocks of 128 12 and 16 rows.
_THREADS: Final = {
    "Kepler": 2048, "Maxwell": 2048, "Pascal": 2048, "Volta": 2048, "Turing": 1024,
    "Ampere-GA100": 2048, "Ampere": 1536, "Ada": 1536, "Hopper": 2048, "Blackwell": 2048,
    "Blackwell-GB202": 1536, "CDNA1": 2560, "CDNA2": 2048, "CDNA3": 2048, "CDNA4": 2048,
}  # fmt: skip
#: Threads of a row's block: four warps (ATen thread_constants.h, ``num_threads``: 256 on ROCm).
_BLOCK: Final = {"NVIDIA": 128, "AMD": 256}


def rows_in_flight(gpu: GpuSpec) -> float:
    """Rows of a whole device; 0 where it is not known."""
    block = _BLOCK.get(gpu.vendor)
    threads = _THREADS.get(families_of(gpu)[-1]) or _THREADS.get(gpu.architecture)
    if block is None or threads is None or gpu.sm_count is None:
        return 0.0
    return gpu.sm_count.value * (threads // block)


def rows_per_l2_byte(gpu: GpuSpec) -> float:
    """Rows in flight over the bytes of L2; 0 where one of them is not known."""
    return rows_in_flight(gpu) / gpu.l2_size.value if gpu.l2_size else 0.0


def row_s(gpu: GpuSpec, row_clocks: float) -> float:
    """Seconds a row at least, where an SM takes so many clocks; 0 where that is not known."""
    if not rows_in_flight(gpu) or gpu.sm_count is None or gpu.boost_clock is None:
        return 0.0
    return float(row_bound_s(1.0, row_clocks, gpu.sm_count.value, gpu.boost_clock.value))
