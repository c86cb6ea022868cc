"""A sweep as text: what was tried, and the front of what fits."""

from __future__ import annotations

import numpy as np

from simcore.base.units import GIGA, format_seconds
from simcore.engine.sweep import Sweep
from simcore.report.tables import table
from simcore.report.words import figure

#: Characters of the longest bar; bars are logarithmic where rates span more than this factor.
BAR, _WIDE = 16, 30.0


def render_sweep(s: Sweep) -> str:
    """Counts, the Pareto front of samples a second over GPUs, and what could not be."""
    known = np.isfinite(s.step_time_s)
    front = np.flatnonzero(s.front)
    head = (
        f"{len(s):,} configurations, {int(known.sum()):,} possible, "
        f"{int((s.fits & known).sum()):,} fit"
    )
    lines = [head]
    if len(front):
        bars = _bars([float(s.samples_per_s[i]) for i in front])
        rows = [
            [
                f"{s.n_gpus[i]:,}",
                s.clusters[s.cluster[i]],
                s.strategies[s.strategy[i]],
                f"{s.micro_batch[i]:.0f}",
                format_seconds(float(s.step_time_s[i])),
                f"{s.memory_bytes[i] / GIGA:.1f} GB",
                figure(float(s.samples_per_s[i])),
                bar,
            ]
            for i, bar in zip(front, bars, strict=True)
        ]
        titles = ["GPUs", "cluster", "strategy", "batch", "step", "memory", "samples/s", ""]
        lines += ["", "fastest that fits, by GPUs",
                  table(titles, rows, right=(0, 3, 4, 5, 6))]  # fmt: skip
    lines += [f"left out {n:,}: {why}" for why, n in s.invalid.items()]
    return "\n".join(lines) + "\n"


def _bars(rates: list[float]) -> list[str]:
    top, bottom = max(rates), min(rates)
    if top / bottom > _WIDE:
        return ["=" * max(1, round(BAR * np.log(r / bottom * 2) / np.log(top / bottom * 2)))
                for r in rates]  # fmt: skip
    return ["=" * max(1, round(BAR * r / top)) for r in rates]
