"""Kernels that cast the operands of matrix products to formats with one scale per block (MXFP8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simcore.hardware.estimates import families_of
from simcore.hardware.profile_tables import leaf
from simcore.hardware.spec import GpuSpec


def block_cast_share(runtime: Mapping[str, Any], gpu: GpuSpec) -> float | None:
    """Share of the memory bandwidth that a block-scaling cast reaches; None where none was timed.

    The kernel finds the largest of 32 elements along rows and along columns and scales the elements
    twice. Arithmetic limits it, not memory (TransformerEngine pull request 1628).
    """
    table: Mapping[str, Any] = runtime["block_cast"]
    entry = next((table[f] for f in families_of(gpu) if f in table), None)
    return leaf(entry).value if entry else None
