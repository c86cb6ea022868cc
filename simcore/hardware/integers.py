"""Kernels limited by integer arithmetic: indices and conversions computed for each element."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from simcore.hardware.profile_tables import leaf
from simcore.hardware.spec import GpuSpec

#: 32-bit integer lanes of an SM since Volta, which has 64 or 128 fp32 lanes too (CUDA C++
#: Programming Guide, throughput of native arithmetic instructions). Before Volta every lane does
#: both. An AMD compute unit has as many (CDNA white papers: 64 stream processors); from CDNA3 on
#: its fp32 peak counts pairs.
INTEGER_LANES: Final = 64
_VENDORS: Final = ("NVIDIA", "AMD")
_BEFORE_VOLTA: Final = ("Kepler", "Maxwell", "Pascal")


def integer_ops_per_s(gpu: GpuSpec) -> float:
    """32-bit integer operations per second of a whole device; 0 where its vector rate is unknown.

    Every fp32 lane of vendors other than NVIDIA and AMD is assumed to compute integers too.
    """
    lanes_per_s = (gpu.peak("fp32") or 0.0) / 2.0  # one multiply-add per lane and clock
    if gpu.vendor not in _VENDORS or gpu.architecture in _BEFORE_VOLTA:
        return lanes_per_s
    clock = gpu.boost_clock.value if gpu.boost_clock else 0.0
    if not clock or gpu.sm_count is None:
        return lanes_per_s / 2.0
    return INTEGER_LANES * gpu.sm_count.value * clock


def indexed_s(runtime: Mapping[str, Any], gpu: GpuSpec) -> float:
    """Seconds per element of a kernel that addresses or converts each singly; 0 if unknown.

    ATen's elementwise kernels load vectors where all operands are contiguous and of one type.
    Otherwise they compute an offset (``OffsetCalculator``) or look up a type (``LoadWithCast``) for
    each element.
    """
    rate = integer_ops_per_s(gpu)
    return leaf(runtime["indexed"]["integer_ops_per_element"]).value / rate if rate else 0.0
