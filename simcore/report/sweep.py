"""A sweep as text: what was tried, and the front of what fits."""

from __future__ import annotations

from math import log

import numpy as np

from simcore.base.units import GIGA, format_seconds
from simcore.engine.sweep import Sweep
from simcore.report.tables import table
from simcore.report.words import WIDTH, figure

#: Characters of the longest bar, where there is room; beyond this span bars are logarithmic.
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
        rows = [
            [
                f"{s.n_gpus[i]:,}",
                s.clusters[s.cluster[i]],
                s.strategies[s.strategy[i]],
                f"{s.micro_batch[i]:.0f}",
                format_seconds(float(s.step_time_s[i])),
                f"{s.memory_bytes[i] / GIGA:.1f} GB",
                figure(float(s.samples_per_s[i])),
            ]
            for i in front
        ]
        titles = ["GPUs", "cluster", "strategy", "batch", "step", "memory", "samples/s"]
        drawn = table(titles, rows, right=(0, 3, 4, 5, 6)).splitlines()
        room = WIDTH - 2 - max(map(len, drawn))
        bars = _bars([float(s.samples_per_s[i]) for i in front], min(BAR, room))
        lines += ["", "fastest that fits, by GPUs"]
        lines += [f"{line}  {bar}".rstrip() for line, bar in zip(drawn, ["", *bars], strict=True)]
    lines += [f"left out {n:,}: {why}" for why, n in s.invalid.items()]
    return "\n".join(lines) + "\n"


def _bars(rates: list[float], width: int) -> list[str]:
    """A bar a rate, the longest ``width``; logarithmic where rates lie far apart."""
    top, bottom = max(rates), min(rates)
    if top / bottom > _WIDE:
        shares = [log(2.0 * r / bottom) / log(2.0 * top / bottom) for r in rates]
    else:
        shares = [r / top for r in rates]
    return ["=" * (max(1, round(width * share)) if width > 0 else 0) for share in shares]
