"""Tiles of a library's kernels where it has one for a class of product, whatever the shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from simcore.hardware.estimates import families_of
from simcore.hardware.spec import GpuSpec

#: Rows and columns of the output (rows of memory) that a block of cuBLAS 12.1's batched fp32
#: product computes, on families for which it has one kernel: maxwell_sgemm_128x64 (its first side
#: runs along memory) and ampere_sgemm_128x128, by the names beside NeuSight's times of P100, A100
#: and L4 at any shape. On Volta, Turing and Hopper it chooses (64x64, 128x32, 128x64 and more).
_ONLY_BATCHED_FP32: Final[Mapping[str, tuple[float, float]]] = {
    "Pascal": (64.0, 128.0),
    "Ampere": (128.0, 128.0),
    "Ampere-GA100": (128.0, 128.0),
    "Ada": (128.0, 128.0),
}


def only_batched_fp32_tile(gpu: GpuSpec) -> tuple[float, float] | None:
    """(rows, columns) that batched fp32 products are padded to; None where the library chooses."""
    return _ONLY_BATCHED_FP32.get(families_of(gpu)[-1])
