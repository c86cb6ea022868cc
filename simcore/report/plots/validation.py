"""The result of ``api.validate``: predicted against measured values, and errors of step times."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from simcore.base.units import GIGA
from simcore.report.formatting import percent
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
#: Larger errors are counted in the outermost bins.
_LIMIT_FRAC = 0.6
_BIN_FRAC = 0.05
#: The number of groups whose coverage is drawn, the largest groups first.
_MOST_GROUPS = 16
#: The share of measurements that the interval should hold.
TARGET_FRAC = 0.8


def draw_measured(verdict: dict[str, Any]) -> Drawing:
    """One panel per quantity that has rows; the marks of flagged rows are hollow."""
    rows = [r for r in verdict["per_row"] if r["measured"] > 0 and r["predicted"] > 0]
    kinds = [q for q in _QUANTITIES if any(r["quantity"] == q for r in rows)]
    figure = canvas(3.7 * min(max(len(kinds), 1), 2), 0.2 + 3.9 * math.ceil(max(len(kinds), 1) / 2))
    if not kinds:
        return nothing(figure, "no row could be compared")
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
    score = verdict.get(quantity) or {}
    scores = [f"{len(rows):,} rows"]
    if (mape := score.get("mape_frac")) is not None:
        scores.append(f"MAPE {percent(mape)}")
    if (inside := score.get("coverage80_frac")) is not None:
        scores.append(f"{percent(inside)} inside 80 %")
    subs: tuple[float, ...] = (1.0, 2.0, 5.0) if high / low < 40 else (1.0,)
    if high / low < 10:
        subs = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    for axis in (axes.xaxis, axes.yaxis):
        plain_numbers(axis, subs=subs)
    named = bool(axes.get_legend_handles_labels()[1])
    finish(
        axes, f"{title}\n{', '.join(scores)}", f"measured [{unit}]", f"predicted [{unit}]",
        legend="lower right" if named else "",
    )  # fmt: skip


def _group(row_id: str) -> str:
    """The group of a row: its id without the last part, which numbers the rows of a table."""
    return row_id.rpartition("-")[0] or row_id


def draw_errors(verdict: dict[str, Any]) -> Drawing:
    """A histogram of step-time errors, and the share inside the 80 % interval by group of rows."""
    rows = [r for r in verdict["per_row"] if r["quantity"] == "step_time"]
    groups = _groups(rows)
    figure = canvas(7.4, max(2.8, 0.9 + 0.2 * len(groups)))
    if not rows:
        return nothing(figure, "no step time could be compared")
    left, right = figure.subplots(1, 2)
    errors = np.clip([r["error_frac"] for r in rows], -_LIMIT_FRAC, _LIMIT_FRAC) * 100.0
    bins = np.arange(-_LIMIT_FRAC, _LIMIT_FRAC + _BIN_FRAC, _BIN_FRAC) * 100.0
    left.hist(errors, bins=list(bins), color=SERIES[0], edgecolor=INK, linewidth=0.5)
    left.axvline(0.0, color="black", linewidth=1.0)
    x = "error of the step time [%]; end bins: and beyond"
    finish(left, f"errors of {len(rows):,} rows", x, "rows", grid="y")
    names = list(groups)[::-1]
    shares = [100.0 * float(np.mean([r["covered"] for r in groups[n]])) for n in names]
    right.barh(range(len(names)), shares, color=SERIES[1], edgecolor=INK, linewidth=0.5)
    right.axvline(100.0 * TARGET_FRAC, color="black", linewidth=1.0, linestyle=":")
    right.set_yticks(range(len(names)), [f"{n} ({len(groups[n])})" for n in names], fontsize=SMALL)
    right.set_xlim(0, 100)
    inside = float(np.mean([r["covered"] for r in rows]))
    x = "measured inside the 80 % interval [%]"
    finish(right, f"inside, of all: {percent(inside)}", x, grid="x")
    for axes in (left, right):
        axes.xaxis.label.set_size(SMALL)
    return figure


def _groups(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows grouped by their id without its last part, the largest groups first."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for r in rows:
        groups.setdefault(_group(r["id"]), []).append(r)
    ranked = sorted(groups.items(), key=lambda g: (-len(g[1]), g[0]))
    return dict(ranked[:_MOST_GROUPS])
