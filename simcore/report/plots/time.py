"""The step time, stacked by term, with its 80 % interval."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from simcore.answer.result import Prediction
from simcore.base.units import MILLI
from simcore.report.plots.bars import (
    Bar,
    legend_right,
    names_of,
    order_of,
    stack,
    time_bar,
    title_of,
)
from simcore.report.plots.canvas import INK, TEXT, TIME_ORDER, Drawing, canvas, headline
from simcore.report.terms import time_label

#: Shorter steps are drawn in milliseconds.
_MS_BELOW_S = 1.0


def draw(predictions: Sequence[Prediction]) -> Drawing:
    """One bar per prediction; the whisker is the 80 % interval."""
    figure = canvas(8.0, 2.6 + 0.45 * (len(predictions) - 1))
    axes = figure.add_subplot()
    panel(axes, predictions)
    return figure


def panel(axes: Axes, predictions: Sequence[Prediction], title: str = "") -> None:
    """Draw the bars on given axes, with 80 % intervals and measured step times."""
    seconds = max(p.step_time_s.high for p in predictions)
    scale, unit = (1.0, "s") if seconds >= _MS_BELOW_S else (MILLI, "ms")
    bars = [
        Bar(b.name, {k: v / scale for k, v in b.parts.items()})
        for b in map(time_bar, predictions, names_of(predictions, fitting=True))
    ]
    stack(axes, bars, time_label, order_of(bars, TIME_ORDER))
    for i, p in enumerate(predictions):
        t = p.step_time_s
        axes.errorbar(
            t.value / scale, i,
            xerr=[[(t.value - t.low) / scale], [(t.high - t.value) / scale]],
            fmt="none", ecolor=INK, elinewidth=1.4, capsize=5, capthick=1.4, zorder=5,
            label="80 % interval" if i == 0 else None,
        )  # fmt: skip
        for row in p.measured:
            if row.quantity == "step_time_s":
                axes.plot(
                    row.measured / scale, i, "D", markerfacecolor="white", markeredgecolor=INK,
                    markersize=7, zorder=6, linestyle="none",
                    label=f"measured ({row.source})",
                )  # fmt: skip
    axes.set_xlim(left=0.0)
    axes.set_xlabel(f"step time [{unit}]", fontsize=TEXT)
    headline(axes, title or title_of(predictions, "step time"))
    legend_right(axes)
