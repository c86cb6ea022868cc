"""A machine's fits as a picture: every measurement is there, beside what the fit says of it."""

from __future__ import annotations

import numpy as np
import pytest

from simcore.calibrate.curves import Curve

pytest.importorskip("matplotlib")

from simcore.report.plots import draw


def test_points_and_fit_of_every_class() -> None:
    x = np.array([1e3, 1e4, 1e5])
    curves = [
        Curve(name, "bytes", "seconds", x, x * 1e-9, x * 1.1e-9) for name in ("copy", "norm", "sum")
    ]
    figure = draw("calibration", curves)
    panels = [a for a in figure.axes if a.get_visible()]
    assert len(panels) == 3
    for axes, curve in zip(panels, curves, strict=True):
        lines = {line.get_label(): line.get_ydata() for line in axes.lines}
        assert lines["measured"] == pytest.approx(curve.measured)
        assert lines["fit"] == pytest.approx(curve.fitted)
        assert axes.get_title(loc="left") == f"{curve.title}: 10 % mean error"
