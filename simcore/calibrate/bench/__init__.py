"""Micro-benchmarks: families of cases that the harness times.

No module here imports torch before a benchmark runs.
"""

from __future__ import annotations


def load_families() -> None:
    """Import the modules of all families, which register them in ``case.FAMILIES``."""
    from simcore.calibrate.bench import (  # noqa: F401
        convolutions,
        host,
        kernels,
        launch,
        memory_bound,
        messages,
        steps,
    )
