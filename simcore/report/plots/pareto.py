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

#: A step of the front narrower than this share of the axis carries no name.
_ROOM_FRAC = 0.12


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
    widest = np.log(sweep.n_gpus.max() / sweep.n_gpus.min()) if len(front) else 0.0
    for n, (i, after) in enumerate(zip(front, [*front[1:], None], strict=True)):
        step = np.log(sweep.n_gpus[after] / sweep.n_gpus[i]) if after is not None else widest
        if step < _ROOM_FRAC * widest:
            continue  # its name would run into the next
        last = after is None and n > 0
        axes.annotate(
            f"{sweep.strategies[sweep.strategy[i]]}, {sweep.micro_batch[i]:.0f}",
            (sweep.n_gpus[i], sweep.samples_per_s[i]),
            xytext=(-12, 0) if last else (14, -3),
            textcoords="offset points",
            ha="right" if last else "left",
            va="center" if last else "top",
            fontsize=SMALL,
            zorder=7,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0},
        )
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
    headline(axes, f"{int(known.sum()):,} configurations; on the front: strategy, micro-batch")
    plain(axes, grid="both")
    axes.legend(loc="lower right", fontsize=SMALL, framealpha=0.95)
    return figure
