"""Micro-benchmarks: one file a family, each a list of cases; the harness times them.

Nothing here imports torch before a benchmark runs.
"""

from __future__ import annotations

from importlib import import_module

from simcore.calibrate.bench.case import FAMILIES, Case, Device

#: Modules that register families.
FILES = (
    "launch", "memory_bound", "gemm", "attention", "conv", "optimizer", "transfer", "disk",
    "memory_probe", "collectives", "overlap", "steps",
)  # fmt: skip


def load_families() -> None:
    """Import every family's file once."""
    for name in FILES:
        import_module(f"simcore.calibrate.bench.{name}")


__all__ = ["FAMILIES", "Case", "Device", "load_families"]
