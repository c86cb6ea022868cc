"""Micro-benchmarks: one module per family, each with a list of cases that the harness times.

No module here imports torch before a benchmark runs.
"""

from __future__ import annotations

from importlib import import_module

from simcore.calibrate.bench.case import FAMILIES, Case, Device

#: The modules that register families of benchmarks.
FILES = (
    "launch", "memory_bound", "gemm", "attention", "conv", "optimizer", "transfer", "disk",
    "memory_probe", "collectives", "overlap", "steps",
)  # fmt: skip


def load_families() -> None:
    """Import the module of every family, which registers it in ``FAMILIES``."""
    for name in FILES:
        import_module(f"simcore.calibrate.bench.{name}")


__all__ = ["FAMILIES", "Case", "Device", "load_families"]
