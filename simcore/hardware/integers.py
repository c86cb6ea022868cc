"""Kernels that integer arithmetic holds up: indices and conversions, element by element."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from simcore.hardware.profile_tables import leaf
from simcore.hardware.spec import GpuSpec

#: Lanes of 32-bit integers in an SM since Volta, beside 64 or 128 of fp32 (CUDA C++ Programming
#: Guide, throughput of native arithmetic instructions); before, every lane does both. In a compute
#: unit of AMD's (CDNA white papers: 64 stream processors), whose fp32 peak counts pairs from CDNA3.
INTEGER_LANES: Final = 64
_VENDORS: Final = ("NVIDIA", "AMD")
_BEFORE_VOLTA: Final = ("Kepler", "Maxwell", "Pascal")


def integer_ops_per_s(gpu: GpuSpec) -> float:
    """32-bit integer operations a second of a whole device; 0 where its vector rate is unknown.

    Of other makers every fp32 lane is taken to do both.
    """
    lanes_per_s = (gpu.peak("fp32") or 0.0) / 2.0  # a multiply-add a lane and clock
    if gpu.vendor not in _VENDORS or gpu.architecture in _BEFORE_VOLTA:
        return lanes_per_s
    clock = gpu.boost_clock.value if gpu.boost_clock else 0.0
    if not clock or gpu.sm_count is None:
        return lanes_per_s / 2.0
    return INTEGER_LANES * gpu.sm_count.value * clock


def indexed_s(runtime: Mapping[str, Any], gpu: GpuSpec) -> float:
    """Seconds an element that a kernel addresses or converts by itself; 0: not known.

    ATen's elementwise kernels load vectors where all operands are contiguous and of one type; else
    they compute an offset (``OffsetCalculator``) or look up a type (``LoadWithCast``) an element.
    """
    rate = integer_ops_per_s(gpu)
    return leaf(runtime["indexed"]["integer_ops_per_element"]).value / rate if rate else 0.0
