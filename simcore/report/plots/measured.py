"""Predicted against measured values, with intervals: the result of ``api.validate`` as a plot."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.axes import Axes

from simcore.base.units import GIGA
from simcore.report.formatting import percent
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

#: Quantity -> (title, unit, the unit in SI).
_QUANTITIES = {
    "step_time": ("step or run time", "s", 1.0),
    "peak_memory": ("peak memory", "GB", GIGA),
    "speedup": ("speed-up", "x", 1.0),
    "resident_memory": ("resident memory", "GB", GIGA),
}
#: More rows than this are drawn without their intervals, which would hide the marks.
_MANY = 80
#: The error at which the dotted lines are drawn.
_BAND_FRAC = 0.25


def draw(verdict: dict[str, Any]) -> Drawing:
    """One panel per quantity that has rows; the marks of flagged rows are hollow."""
    rows = [r for r in verdict["per_row"] if r["measured"] > 0 and r["predicted"] > 0]
    kinds = [q for q in _QUANTITIES if any(r["quantity"] == q for r in rows)]
    figure = canvas(3.7 * min(max(len(kinds), 1), 2), 0.2 + 3.9 * math.ceil(max(len(kinds), 1) / 2))
    if not kinds:
        figure.text(0.5, 0.5, "no row could be compared", ha="center", fontsize=TEXT)
        return figure
    panels = figure.subplots(math.ceil(len(kinds) / 2), min(len(kinds), 2), squeeze=False).flat
    for quantity, axes in zip(kinds, panels, strict=False):
        _panel(axes, [r for r in rows if r["quantity"] == quantity], quantity, verdict)
    for axes in list(panels):  # panels of the grid that are not used
        axes.set_visible(False)
    figure.suptitle(
        f"{verdict['simulated']:,} of {verdict['rows']:,} rows predicted, "
        f"{verdict.get('mode', 'blind')}; line: equal; dotted: 25 % off; hollow: flagged",
        fontsize=SMALL,
    )
    return figure


def _panel(axes: Axes, rows: list[dict[str, Any]], quantity: str, verdict: dict[str, Any]) -> None:
    title, unit, scale = _QUANTITIES[quantity]
    values = [v / scale for r in rows for v in (r["measured"], r["predicted"])]
    low, high = min(values) / 1.4, max(values) * 1.4
    axes.plot([low, high], [low, high], color="black", linewidth=1.2, zorder=2)
    for factor in (1.0 - _BAND_FRAC, 1.0 + _BAND_FRAC):
        axes.plot([low, high], [factor * low, factor * high], color=INK, linestyle=":",
                  linewidth=0.9, zorder=2)  # fmt: skip
    suspects = verdict.get("suspects") or {}
    few = len(rows) <= _MANY
    groups = sorted({_group(r["id"]) for r in verdict["per_row"]})
    for g, group in enumerate(groups):
        for flagged in (False, True):
            of = [
                r
                for r in rows
                if _group(r["id"]) == group
                and bool(r.get("flag") or r["id"] in suspects) == flagged
            ]
            if not of:
                continue
            x = [r["measured"] / scale for r in of]
            y = [r["predicted"] / scale for r in of]
            if few:
                spread = [
                    [max(0.0, b - r["low"] / scale) for b, r in zip(y, of, strict=True)],
                    [max(0.0, r["high"] / scale - b) for b, r in zip(y, of, strict=True)],
                ]
                axes.errorbar(x, y, yerr=spread, fmt="none", ecolor="0.6", elinewidth=1.0, zorder=3)
            axes.plot(
                x, y, MARKS[g % len(MARKS)], linestyle="none", markersize=6 if few else 3.5,
                markerfacecolor="white" if flagged else SERIES[g % len(SERIES)],
                markeredgecolor=INK, markeredgewidth=0.7, alpha=1.0 if few else 0.6, zorder=4,
                label=None if flagged or len(groups) > 8 else group,
            )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    axes.set_xlabel(f"measured [{unit}]", fontsize=TEXT)
    axes.set_ylabel(f"predicted [{unit}]", fontsize=TEXT)
    score = verdict.get(quantity) or {}
    scores = [f"{len(rows):,} rows"]
    if (mape := score.get("mape_frac")) is not None:
        scores.append(f"MAPE {percent(mape)}")
    if (inside := score.get("coverage80_frac")) is not None:
        scores.append(f"{percent(inside)} inside 80 %")
    headline(axes, f"{title}\n{', '.join(scores)}")
    subs: tuple[float, ...] = (1.0, 2.0, 5.0) if high / low < 40 else (1.0,)
    if high / low < 10:
        subs = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    for axis in (axes.xaxis, axes.yaxis):
        plain_numbers(axis, subs=subs)
    plain(axes, grid="both")
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="lower right", fontsize=SMALL, framealpha=0.95)


def _group(row_id: str) -> str:
    """The group of a row: its id without the last part, which numbers the rows of a table."""
    return row_id.rpartition("-")[0] or row_id
