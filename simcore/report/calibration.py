"""A machine's fits against its measurements, drawn. matplotlib is loaded to draw, no sooner."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simcore.base.errors import InvalidConfig, UsageError
from simcore.calibrate.curves import Curve

PLOT_FORMATS = ("png", "svg")
COLUMNS = 2


def save_plot(curves: Sequence[Curve], name: str, path: Path) -> None:
    """One panel a class: measured points, the fit as a line. Raises UsageError."""
    kind = path.suffix.lstrip(".").lower()
    if kind not in PLOT_FORMATS:
        raise UsageError(f"{str(path)!r} must end in .svg or .png")
    if not path.parent.is_dir():
        raise InvalidConfig([f"no such folder: {str(path.parent)!r}"])
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("a plot needs matplotlib: pip install 'simcore[plot]'") from None
    rows = -(-len(curves) // COLUMNS)
    made = Figure(figsize=(4.0 * COLUMNS, 3.0 * rows), layout="constrained")
    made.suptitle(f"{name}: fit (line) and measurements (points)")
    for i, curve in enumerate(curves):
        axes = made.add_subplot(rows, COLUMNS, i + 1)
        axes.loglog(curve.x, curve.measured, "o", markersize=3, color="black")
        axes.loglog(curve.x, curve.fitted, "-", linewidth=1, color="grey")
        axes.set_title(curve.title)
        axes.set_xlabel(curve.x_label)
        axes.set_ylabel(curve.y_label)
    made.savefig(path, format=kind, dpi=150)
