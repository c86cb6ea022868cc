"""Errors of predicted step times: their histogram, and the share of rows inside the interval."""

from __future__ import annotations

from typing import Any

import numpy as np

from simcore.report.formatting import percent
from simcore.report.plots.canvas import (
    INK,
    SERIES,
    SMALL,
    TEXT,
    Drawing,
    canvas,
    headline,
    plain,
)

#: Larger errors are counted in the outermost bins.
_LIMIT_FRAC = 0.6
_BIN_FRAC = 0.05
#: The number of groups whose coverage is drawn, the largest groups first.
_MOST_GROUPS = 16
#: The share of measurements that the interval should hold.
TARGET_FRAC = 0.8


def draw(verdict: dict[str, Any]) -> Drawing:
    """A histogram of step-time errors, and the share inside the 80 % interval by group of rows."""
    rows = [r for r in verdict["per_row"] if r["quantity"] == "step_time"]
    groups = _groups(rows)
    figure = canvas(7.4, max(2.8, 0.9 + 0.2 * len(groups)))
    if not rows:
        figure.text(0.5, 0.5, "no step time could be compared", ha="center", fontsize=TEXT)
        return figure
    left, right = figure.subplots(1, 2)
    errors = np.clip([r["error_frac"] for r in rows], -_LIMIT_FRAC, _LIMIT_FRAC) * 100.0
    bins = np.arange(-_LIMIT_FRAC, _LIMIT_FRAC + _BIN_FRAC, _BIN_FRAC) * 100.0
    left.hist(errors, bins=list(bins), color=SERIES[0], edgecolor=INK, linewidth=0.5)
    left.axvline(0.0, color="black", linewidth=1.0)
    left.set_xlabel("error of the step time [%]; end bins: and beyond", fontsize=SMALL)
    left.set_ylabel("rows", fontsize=TEXT)
    headline(left, f"errors of {len(rows):,} rows")
    plain(left, grid="y")
    names = list(groups)[::-1]
    shares = [100.0 * float(np.mean([r["covered"] for r in groups[n]])) for n in names]
    right.barh(range(len(names)), shares, color=SERIES[1], edgecolor=INK, linewidth=0.5)
    right.axvline(100.0 * TARGET_FRAC, color="black", linewidth=1.0, linestyle=":")
    right.set_yticks(range(len(names)), [f"{n} ({len(groups[n])})" for n in names], fontsize=SMALL)
    right.set_xlim(0, 100)
    right.set_xlabel("measured inside the 80 % interval [%]", fontsize=SMALL)
    inside = float(np.mean([r["covered"] for r in rows]))
    headline(right, f"inside, of all: {percent(inside)}")
    plain(right, grid="x")
    return figure


def _groups(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows grouped by their id without its last part, the largest groups first."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for r in rows:
        groups.setdefault(r["id"].rpartition("-")[0] or r["id"], []).append(r)
    ranked = sorted(groups.items(), key=lambda g: (-len(g[1]), g[0]))
    return dict(ranked[:_MOST_GROUPS])
