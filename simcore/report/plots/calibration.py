"""The rate that each benchmark of a calibrated machine reaches, and that of the fit."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, FuncFormatter

from simcore.calibrate.machine.curves import Curve
from simcore.report.formatting import percent
from simcore.report.plots.canvas import BLUE, GREY, INK, SMALL, VERMILION, Drawing, canvas, finish

COLUMNS = 2
#: The letters of a line below a panel.
_LETTERS = 76
_WORK = {"FLOP": "work", "B": "bytes moved", "s": "shortest time by the datasheet"}
_RATE = {"FLOP": "FLOP/s", "B": "B/s", "s": "share of the datasheet's rate"}


def draw(curves: Sequence[Curve]) -> Drawing:
    """One panel per class: measured rates, those of the fit, and the benchmark farthest off."""
    rows = max(1, math.ceil(len(curves) / COLUMNS))
    figure = canvas(5.0 * COLUMNS, 0.4 + 3.2 * rows)
    panels = list(figure.subplots(rows, COLUMNS, squeeze=False).flat)
    for curve, axes in zip(curves, panels, strict=False):
        _panel(axes, curve)
    for axes in panels[len(curves) :]:
        axes.set_visible(False)
    if curves:
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=3, fontsize=SMALL,
                      frameon=False)  # fmt: skip
    return figure


def _panel(axes: Axes, curve: Curve) -> None:
    measured, fitted = curve.work / curve.measured, curve.work / curve.fitted
    axes.vlines(curve.work, measured, fitted, color=GREY, linewidth=0.8, zorder=2)
    axes.plot(curve.work, fitted, "_", color=BLUE, markersize=7, markeredgewidth=1.8, zorder=3,
              label="fit")  # fmt: skip
    axes.plot(curve.work, measured, "o", color=INK, markersize=3, zorder=4, label="measured")
    axes.set(xscale="log", yscale="log")
    axes.xaxis.set_major_formatter(EngFormatter(curve.unit))
    y = (
        FuncFormatter(lambda share, _: percent(share))
        if curve.unit == "s"
        else EngFormatter(_RATE[curve.unit])
    )
    axes.yaxis.set_major_formatter(y)
    error = curve.fitted / curve.measured - 1.0
    worst = int(np.argmax(np.abs(np.log(curve.fitted / curve.measured))))
    axes.plot([curve.work[worst]], [measured[worst]], "o", color="none", markersize=9, zorder=5,
              markeredgecolor=VERMILION, markeredgewidth=1.6, label="farthest off")  # fmt: skip
    off = percent(float(error[worst]), signed=True)
    case = textwrap.wrap(f"farthest off ({off}): {curve.names[worst]}", _LETTERS)
    x_label = "\n".join([_WORK[curve.unit], *case])
    title = (
        f"{curve.title}: {len(error)} benchmarks, {percent(float(np.abs(error).mean()))} mean error"
    )
    finish(axes, title, x_label, "achieved rate" if curve.unit != "s" else _RATE["s"])
    axes.xaxis.label.set_fontsize(SMALL)
