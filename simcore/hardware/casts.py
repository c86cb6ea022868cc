"""Kernels that bring operands of products to blocks with scales of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simcore.hardware.estimates import families_of
from simcore.hardware.profile_tables import leaf
from simcore.hardware.spec import GpuSpec


def block_cast_share(runtime: Mapping[str, Any], gpu: GpuSpec) -> float | None:
    """Share of the memory bandwidth that such a kernel reaches; None where none was timed.

    It finds the largest of 32 elements along rows and along columns and scales them twice:
    arithmetic, not memory, holds it up (TransformerEngine pull request 1628).
    """
    table: Mapping[str, Any] = runtime["block_cast"]
    found = next((table[f] for f in families_of(gpu) if f in table), None)
    return leaf(found).value if found else None
