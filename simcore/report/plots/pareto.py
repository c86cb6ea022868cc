"""Points of a sweep: throughput against GPUs or memory, and the Pareto front of what fits."""

from __future__ import annotations

import numpy as np

from simcore.base.units import GIGA
from simcore.planning.sweep import SweepResult
from simcore.report.plots.canvas import (
    INK,
    MARKS,
    SERIES,
    SMALL,
    Drawing,
    canvas,
    finish,
    label_counts,
    nothing,
    plain_numbers,
    single,
)

#: A step of the front narrower than this share of the axis is not labelled.
_LABEL_FRAC = 0.12
#: With more GPU counts than ``_COUNTS`` the axis labels only powers of two; with more points than
#: ``_MARKS`` the marks are drawn as a bitmap.
_COUNTS, _MARKS = 12, 3_000


def draw(sweep: SweepResult) -> Drawing:
    """One mark per strategy, hollow if the point does not fit; the front is a stepped line.

    Raises UsageError if the sweep did not store its points.
    """
    columns = sweep.columns()
    if not len(columns["fits"]):
        return nothing(canvas(), "no configuration is valid")
    figure, axes = single()
    resource, on_front = sweep.front_of, sweep.on_front(columns)
    by_gpus = resource == "n_gpus"
    x = columns[resource] / (1.0 if by_gpus else GIGA)
    rate, fit, strategy = sweep.throughput(columns), columns["fits"], columns["strategy"]
    names = list(dict.fromkeys(strategy.tolist()))
    for s, name in enumerate(names):
        mark, colour = MARKS[s % len(MARKS)], SERIES[s % len(SERIES)]
        shift = 1.0 + 0.03 * (s - (len(names) - 1) / 2) * by_gpus
        for fits, face, label in ((True, colour, name), (False, "none", None)):
            rows = (strategy == name) & (fit == fits)
            axes.plot(
                x[rows] * shift, rate[rows], mark, markersize=6, markerfacecolor=face,
                markeredgecolor=INK if fits else "0.55", zorder=4 + fits, markeredgewidth=0.8,
                label=label, rasterized=len(x) > _MARKS,
            )  # fmt: skip
    front = np.flatnonzero(on_front)
    front = front[np.argsort(x[front])]
    axes.step(x[front], rate[front], where="post", color="black", linewidth=1.6, zorder=3,
              label="Pareto front of what fits")  # fmt: skip
    widest = np.log(x.max() / x.min()) if len(front) else 0.0
    for n, (i, after) in enumerate(zip(front, [*front[1:], None], strict=True)):
        step = np.log(x[after] / x[i]) if after is not None else widest
        if step < _LABEL_FRAC * widest:
            continue  # its label would overlap the next one
        last = after is None and n > 0
        axes.annotate(
            f"{strategy[i]}, {columns['micro_batch'][i]:.0f}",
            (x[i], rate[i]),
            xytext=(-12, 0) if last else (14, -3),
            textcoords="offset points",
            ha="right" if last else "left",
            va="center" if last else "top",
            fontsize=SMALL,
            zorder=7,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0},
        )
    if not fit.all():
        axes.plot([], [], "o", markerfacecolor="none", markeredgecolor="0.55",
                  label="hollow: does not fit")  # fmt: skip
    axes.set(xscale="log", yscale="log")
    axes.margins(x=0.12, y=0.16)
    if by_gpus:
        label_counts(axes.xaxis, _shown(sorted({int(n) for n in columns["n_gpus"]})))
    else:
        plain_numbers(axes.xaxis, subs=(1.0, 2.0, 5.0))
    low, high = axes.get_ylim()
    plain_numbers(axes.yaxis, subs=(1.0, 2.0, 5.0) if high / low < 200 else (1.0,))
    title = f"{len(x):,} configurations; on the front: strategy, micro-batch"
    resource = "GPUs" if by_gpus else "memory a GPU [GB]"
    text = any(tokens is not None for tokens in columns["tokens_per_s"][:1])
    finish(
        axes, title, resource, f"{'tokens' if text else 'samples'} a second", legend="lower right"
    )
    return figure


def _shown(counts: list[int]) -> list[int]:
    """The GPU counts of the sweep at which to label the axis."""
    if len(counts) <= _COUNTS:
        return counts
    return [n for n in counts if n & (n - 1) == 0] or counts[:: len(counts) // _COUNTS]
