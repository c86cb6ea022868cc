"""A machine's fits as a picture: every measurement is there, beside what the fit says of it."""

from __future__ import annotations

import numpy as np
import pytest

from simcore.calibrate.machine.curves import Curve

pytest.importorskip("matplotlib")

from simcore.report.plots import draw


def test_rates_and_fit_of_every_class_and_the_benchmark_farthest_off() -> None:
    work = np.array([1e3, 1e4, 1e5])
    fitted = work * np.array([1.1e-9, 0.9e-9, 2e-9])
    names = ("dtype fp32, m 1", "dtype fp32, m 10", "dtype bf16, m 100")
    curves = [
        Curve(name, "B", work, work * 1e-9, fitted, names) for name in ("copy", "norm", "sum")
    ]
    figure = draw("calibration", curves)
    panels = [a for a in figure.axes if a.get_visible()]
    assert len(panels) == 3
    for axes, curve in zip(panels, curves, strict=True):
        lines = {line.get_label(): line for line in axes.lines}
        assert lines["measured"].get_ydata() == pytest.approx([1e9, 1e9, 1e9])
        assert lines["fit"].get_ydata() == pytest.approx([1e9 / 1.1, 1e9 / 0.9, 0.5e9])
        assert axes.get_title(loc="left") == f"{curve.title}: 3 benchmarks, 40 % mean error"
        assert list(lines["farthest off"].get_xdata()) == [1e5]
        assert "(+100 %): dtype bf16, m 100" in axes.get_xlabel()
