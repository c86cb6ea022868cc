"""Goodput, the share of the time that is useful training, against the checkpoint interval."""

from __future__ import annotations

import numpy as np

from simcore.base.units import HOUR, PERCENT
from simcore.planning.goodput import Goodput, goodput_over
from simcore.report.plots.canvas import (
    INK,
    MARKS,
    SERIES,
    SMALL,
    Drawing,
    canvas,
    finish,
    nothing,
    plain_numbers,
    single,
)

#: The factor by which the curve extends below the smallest and above the largest marked interval.
_SPAN = 20.0


def draw(g: Goodput) -> Drawing:
    """Goodput over the interval, with marks at the chosen one and at three optima.

    The optima are the exact one, Young's and Daly's approximations.
    """
    if not np.isfinite(g.exact_s):
        return nothing(canvas(8.0, 4.0), "nothing fails: no checkpoint is needed")
    figure, axes = single(8.0, 4.0)
    marks = {"taken": g.interval_s, "exact": g.exact_s, "Young": g.young_s, "Daly": g.daly_s}
    low, high = min(marks.values()) / _SPAN, max(marks.values()) * _SPAN
    every_s = np.geomspace(low, high, 200)
    axes.plot(every_s / HOUR, goodput_over(g, every_s) * PERCENT, color="black", linewidth=1.4,
              zorder=3)  # fmt: skip
    for i, (name, seconds) in enumerate(marks.items()):
        share = float(goodput_over(g, np.array([seconds]))[0])
        axes.plot([seconds / HOUR], [share * PERCENT], MARKS[i], color=SERIES[i], label=name,
                  markeredgecolor=INK, markersize=11 - 2 * i, linestyle="none",
                  zorder=4 + i)  # fmt: skip
    axes.set(xscale="log", ylim=(0.0, 102.0))
    plain_numbers(axes.xaxis, subs=(1.0,))
    title = f"goodput of {g.n_gpus:,} GPUs"
    finish(axes, title, "work between checkpoints [h]", "useful share of the time [%]")
    axes.legend(loc="lower center", fontsize=SMALL, framealpha=0.95, ncols=len(marks))
    return figure
