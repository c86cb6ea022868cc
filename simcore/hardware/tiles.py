"""Tile sizes of products for which cuBLAS uses one kernel, whatever the shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from simcore.hardware.estimates import families_of
from simcore.hardware.spec import GpuSpec

#: Rows and columns of the (row-major) output that a block of cuBLAS 12.1's batched fp32 product
#: computes, on families for which it has a single kernel: maxwell_sgemm_128x64 (whose first side
#: runs along memory) and ampere_sgemm_128x128. NeuSight's times of P100, A100 and L4 name these
#: kernels at every shape. On Volta, Turing and Hopper cuBLAS chooses among several (64x64, 128x32,
#: 128x64 and more).
_ONLY_BATCHED_FP32: Final[Mapping[str, tuple[float, float]]] = {
    "Pascal": (64.0, 128.0),
    "Ampere": (128.0, 128.0),
    "Ampere-GA100": (128.0, 128.0),
    "Ada": (128.0, 128.0),
}


def only_batched_fp32_tile(gpu: GpuSpec) -> tuple[float, float] | None:
    """(rows, columns) of the only tile for batched fp32 products; None where cuBLAS has several."""
    return _ONLY_BATCHED_FP32.get(families_of(gpu)[-1])
