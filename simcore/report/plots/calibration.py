"""The fits of a calibrated machine against its measurements, one panel per class of benchmark."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from simcore.calibrate.curves import Curve
from simcore.report.formatting import percent
from simcore.report.plots.canvas import BLUE, INK, TEXT, Drawing, canvas, finish

COLUMNS = 2


def draw(curves: Sequence[Curve]) -> Drawing:
    """Measured points, and the fit's value at each, over the size of the work."""
    rows = max(1, math.ceil(len(curves) / COLUMNS))
    figure = canvas(4.0 * COLUMNS, 0.2 + 3.0 * rows)
    panels = list(figure.subplots(rows, COLUMNS, squeeze=False).flat)
    for curve, axes in zip(curves, panels, strict=False):
        _panel(axes, curve)
    for axes in panels[len(curves) :]:
        axes.set_visible(False)
    return figure


def _panel(axes: Axes, curve: Curve) -> None:
    axes.plot(curve.x, curve.fitted, "_", color=BLUE, markersize=9, markeredgewidth=1.6,
              linestyle="none", label="fit")  # fmt: skip
    axes.plot(curve.x, curve.measured, "o", color=INK, markersize=3, linestyle="none",
              label="measured")  # fmt: skip
    axes.set(xscale="log", yscale="log")
    error = float(np.mean(np.abs(curve.fitted / curve.measured - 1.0)))
    title = f"{curve.title}: {percent(error)} mean error"
    finish(axes, title, curve.x_label, curve.y_label)
    axes.legend(fontsize=TEXT, frameon=False)
