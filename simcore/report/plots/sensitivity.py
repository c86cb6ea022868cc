"""The step time with half and with twice as much of each resource, as a tornado chart."""

from __future__ import annotations

from simcore.answer.views import Swing
from simcore.base.units import MILLI, format_seconds
from simcore.report.formatting import percent
from simcore.report.plots.canvas import (
    INK,
    ORANGE,
    SKY,
    SMALL,
    Drawing,
    finish,
    rows,
    single,
)

#: Shorter times are drawn in milliseconds.
_MS_BELOW_S = 1.0


def draw(data: tuple[float, tuple[Swing, ...]]) -> Drawing:
    """One bar per resource in the order given; percentages are changes of the step time.

    ``data`` is the step time in seconds and its swings.
    """
    centre, swings = data
    widest = max([centre, *(s.half_s for s in swings)])
    scale, unit = (1.0, "s") if widest >= _MS_BELOW_S else (MILLI, "ms")
    figure, axes = single(8.0, 1.5 + 0.42 * len(swings))
    for label, colour, hatch, ends in (
        ("half of it", ORANGE, "\\\\\\", [s.half_s for s in swings]),
        ("twice of it", SKY, "", [s.double_s for s in swings]),
    ):
        axes.barh(
            range(len(swings)), [(e - centre) / scale for e in ends], left=centre / scale,
            height=0.6, facecolor=colour, hatch=hatch, edgecolor=INK, linewidth=0.6, label=label,
        )  # fmt: skip
        for i, end in enumerate(ends):
            change = end / centre - 1.0
            if abs(change) < 5e-4:
                continue
            axes.annotate(
                percent(change, signed=True),
                (end / scale, i), xytext=(4 if change > 0 else -4, 0), textcoords="offset points",
                ha="left" if change > 0 else "right", va="center", fontsize=SMALL,
            )  # fmt: skip
    for i, swing in enumerate(swings):
        if max(swing.half_s - centre, centre - swing.double_s) < 5e-4 * centre:
            axes.annotate("no change", (centre / scale, i), xytext=(5, 0), va="center",
                          textcoords="offset points", fontsize=SMALL)  # fmt: skip
    axes.axvline(centre / scale, color="black", linewidth=1.4)
    rows(axes, [s.resource for s in swings])
    axes.margins(x=0.14)
    title = f"what the step time depends on: {format_seconds(centre)} as it is"
    finish(axes, title, f"step time [{unit}]", grid="x", legend="lower right")
    return figure
