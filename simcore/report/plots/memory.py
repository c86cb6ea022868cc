"""The peak memory of the fullest GPU, stacked by term, with the capacity of the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from simcore.answer.result import Prediction
from simcore.base.units import GIGA
from simcore.memory.result import MemoryResult
from simcore.report.plots.bars import legend_right, memory_bar, names_of, order_of, stack, title_of
from simcore.report.plots.canvas import INK, MEMORY_ORDER, TEXT, Drawing, canvas, headline
from simcore.report.terms import memory_label


def draw(results: Sequence[Prediction] | MemoryResult) -> Drawing:
    """One bar per prediction; the thick line is the capacity of its device."""
    if isinstance(results, MemoryResult):
        figure = canvas(8.0, 3.0)
        panel(figure.add_subplot(), [results], [""])
        return figure
    figure = canvas(8.0, 3.0 + 0.45 * (len(results) - 1))
    panel(figure.add_subplot(), [p.memory for p in results], names_of(results), results)
    return figure


def panel(
    axes: Axes,
    memories: Sequence[MemoryResult],
    names: Sequence[str],
    predictions: Sequence[Prediction] = (),
    title: str = "",
) -> None:
    """Draw the bars on given axes, with 80 % intervals, device limits and measured peaks.

    ``names`` label the bars; ``predictions`` supply the measured peaks and the default title.
    """
    bars = [memory_bar(m, GIGA, name) for m, name in zip(memories, names, strict=True)]
    stack(axes, bars, memory_label, order_of(bars, MEMORY_ORDER))
    limits = [m.capacity_bytes / GIGA for m in memories]
    for i, m in enumerate(memories):
        used = m.device_bytes / GIGA
        axes.errorbar(
            used, i, xerr=[[used - m.low_bytes / GIGA], [m.high_bytes / GIGA - used]],
            fmt="none", ecolor=INK, elinewidth=1.4, capsize=5, capthick=1.4, zorder=5,
            label="80 % interval" if i == 0 else None,
        )  # fmt: skip
    _measured(axes, predictions)
    same = len(set(limits)) == 1
    named = f"device limit, {limits[0]:.1f} GB" if same else "device limit"
    for i, limit in enumerate(limits):
        axes.plot([limit, limit], [i - 0.45, i + 0.45], color="black", linewidth=2.6,
                  solid_capstyle="butt", zorder=6, label=named if i == 0 else None)  # fmt: skip
    axes.set_xlim(0.0, 1.05 * max([*limits, *(m.high_bytes / GIGA for m in memories)]))
    axes.set_xlabel("memory [GB]", fontsize=TEXT)
    headline(axes, title or title_of(predictions, "memory of the fullest GPU"))
    legend_right(axes)


def _measured(axes: Axes, predictions: Sequence[Prediction]) -> None:
    style: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": INK, "markersize": 7,
                             "zorder": 7, "linestyle": "none"}  # fmt: skip
    for i, p in enumerate(predictions):
        for row in p.measured:
            if row.quantity == "peak_memory_bytes":
                axes.plot(row.measured / GIGA, i, "D", label=f"measured ({row.source})", **style)
