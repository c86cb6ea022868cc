"""Configurations of a sweep: samples a second against GPUs, and the front of what fits."""

from __future__ import annotations

import numpy as np
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from simcore.engine.sweep import Sweep
from simcore.report.plots.canvas import (
    INK,
    MARKS,
    SERIES,
    SMALL,
    TEXT,
    Drawing,
    canvas,
    headline,
    plain,
    plain_numbers,
)


def draw(sweep: Sweep) -> Drawing:
    """A mark a strategy, hollow where it does not fit; the front is a stepped line."""
    figure = canvas(8.0, 4.5)
    axes = figure.add_subplot()
    known = np.isfinite(sweep.samples_per_s)
    for s, name in enumerate(sweep.strategies):
        mark, colour = MARKS[s % len(MARKS)], SERIES[s % len(SERIES)]
        of = known & (sweep.strategy == s)
        shift = 1.0 + 0.03 * (s - (len(sweep.strategies) - 1) / 2)
        for fits, face, label in ((True, colour, name), (False, "none", None)):
            rows = of & (sweep.fits == fits)
            axes.plot(
                sweep.n_gpus[rows] * shift, sweep.samples_per_s[rows], mark, markersize=6,
                markerfacecolor=face, markeredgecolor=INK if fits else "0.55", zorder=4 + fits,
                markeredgewidth=0.8, label=label,
            )  # fmt: skip
    front = np.flatnonzero(sweep.front)
    axes.step(sweep.n_gpus[front], sweep.samples_per_s[front], where="post", color="black",
              linewidth=1.6, zorder=3, label="front of what fits")  # fmt: skip
    last = -np.inf
    for i in front:
        if np.log(sweep.n_gpus[i]) - last < 0.3:
            continue
        last = float(np.log(sweep.n_gpus[i]))
        axes.annotate(
            f"{sweep.strategies[sweep.strategy[i]]}, micro-batch {sweep.micro_batch[i]:.0f}",
            (sweep.n_gpus[i], sweep.samples_per_s[i]), xytext=(-4, 9),
            textcoords="offset points", ha="center", va="bottom", fontsize=SMALL, zorder=7,
        )  # fmt: skip
    if (~sweep.fits & known).any():
        axes.plot([], [], "o", markerfacecolor="none", markeredgecolor="0.55",
                  label="hollow: does not fit")  # fmt: skip
    axes.set(xscale="log", yscale="log")
    axes.margins(x=0.12, y=0.16)
    counts = sorted({int(n) for n in sweep.n_gpus[known]})
    axes.xaxis.set_major_locator(FixedLocator([float(n) for n in counts]))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{n:,}" for n in counts]))
    axes.xaxis.set_minor_locator(NullLocator())
    low, high = axes.get_ylim()
    plain_numbers(axes.yaxis, subs=(1.0, 2.0, 5.0) if high / low < 200 else (1.0,))
    axes.set_xlabel("GPUs", fontsize=TEXT)
    axes.set_ylabel("samples a second", fontsize=TEXT)
    headline(axes, f"{int(known.sum()):,} configurations")
    plain(axes, grid="both")
    axes.legend(loc="lower right", fontsize=SMALL, framealpha=0.95)
    return figure
