"""Where the time of a run goes that is no useful training, against the checkpoint interval."""

from __future__ import annotations

import numpy as np
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from simcore.base.units import DAY, HOUR, PERCENT, format_seconds
from simcore.planning.goodput import Goodput, shares_over
from simcore.report.plots.canvas import (
    GREEN,
    INK,
    LIGHT,
    ORANGE,
    SKY,
    SMALL,
    VERMILION,
    Drawing,
    canvas,
    finish,
    nothing,
    single,
)

#: The factor by which the axis extends below the smallest and above the largest marked interval.
_SPAN = 20.0
#: The loss at which the axis ends, in multiples of the loss at the chosen interval.
_HIGHEST = 4.0
#: The stacked shares, lowest first, with label, colour and hatch.
_LOSSES = {
    "straggler": ("waiting for slow nodes", GREEN, "|||"),
    "restart": ("restarts", LIGHT, "xx"),
    "saving": ("writing checkpoints", SKY, ""),
    "lost": ("work done again after a failure", ORANGE, "\\\\\\"),
}
_TICKS = {
    "1 s": 1.0, "5 s": 5.0, "20 s": 20.0, "1 min": 60.0, "5 min": 300.0, "20 min": 1200.0,
    "1 h": HOUR, "6 h": 6 * HOUR,
    "1 d": DAY, "7 d": 7 * DAY, "30 d": 30 * DAY, "1 y": 365 * DAY, "10 y": 3650 * DAY,
}  # fmt: skip


def draw(g: Goodput) -> Drawing:
    """Shares of lost time over the interval, their sum at other failure rates, the one chosen."""
    if not np.isfinite(g.exact_s):
        return nothing(canvas(8.0, 4.0), "nothing fails: no checkpoint is needed")
    figure, axes = single(8.0, 4.5)
    low, high = min(g.interval_s, g.exact_s) / _SPAN, max(g.interval_s, g.exact_s) * _SPAN
    every_s = np.geomspace(low, high, 200)
    shares = {k: v * PERCENT for k, v in shares_over(g, every_s).items()}
    shown = [k for k in _LOSSES if shares[k].max() > 0]
    areas = axes.stackplot(every_s, [shares[k] for k in shown], linewidth=0.6, edgecolor=INK,
                           labels=[_LOSSES[k][0] for k in shown],
                           colors=[_LOSSES[k][1] for k in shown])  # fmt: skip
    for area, key in zip(areas, shown, strict=True):
        area.set_hatch(_LOSSES[key][2])
    loss = PERCENT * (1.0 - g.goodput_frac)
    top = min(PERCENT, _HIGHEST * loss)
    for ratio, name, style in (
        (2.0, "failures twice as often", "--"),
        (0.5, "failures half as often", ":"),
    ):
        total = PERCENT - PERCENT * shares_over(g, every_s, ratio)["useful"]
        axes.plot(every_s, total, style, color=INK, linewidth=1.2, label=name)
    axes.plot([g.interval_s], [loss], "o", color=VERMILION, markeredgecolor=INK, markersize=8,
              zorder=6)  # fmt: skip
    axes.annotate(
        f"every {format_seconds(g.interval_s)}: {loss:.3g} % lost", (g.interval_s, loss),
        xytext=(0, 34), textcoords="offset points", ha="center", fontsize=SMALL, zorder=7,
        arrowprops={"arrowstyle": "-", "color": INK},
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5},
    )  # fmt: skip
    ticks = {name: seconds for name, seconds in _TICKS.items() if low <= seconds <= high}
    axes.set(xscale="log", xlim=(low, high), ylim=(0.0, top))
    axes.xaxis.set_major_locator(FixedLocator(list(ticks.values())))
    axes.xaxis.set_major_formatter(FixedFormatter(list(ticks)))
    axes.xaxis.set_minor_locator(NullLocator())
    title = (
        f"{g.n_gpus:,} GPUs, {PERCENT * g.goodput_frac:.3g} % useful: a failure every "
        f"{format_seconds(g.mtbf_s)}, {format_seconds(g.save_s)} to save, "
        f"{format_seconds(g.restart_s)} to restart"
    )
    finish(axes, title, "work between two checkpoints", "share of the time that is lost [%]")
    handles, names = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], names[::-1], fontsize=SMALL, framealpha=0.95, loc="upper center",
                ncols=2)  # fmt: skip
    return figure
