"""A scaling curve as text: bars to scale, marks, 80 columns whatever the numbers."""

from __future__ import annotations

import pytest

from simcore import api
from simcore.base.figures import Interval
from simcore.report.formatting import WIDTH
from simcore.report.text_of import bar, render_scaling


@pytest.mark.parametrize(
    ("value", "low", "high", "drawn"),
    [
        (1.0, 1.0, 1.0, "=========="),
        (0.7, 0.4, 0.9, "===|===--"),
        (0.2, 0.01, 0.3, "==-"),
        (0.0, 0.0, 0.0, ""),
        (0.95, 0.5, 1.4, "====|====="),
    ],
)
def test_bars_are_to_scale(value: float, low: float, high: float, drawn: str) -> None:
    assert bar(Interval(value, low, high, ""), 10) == drawn


def test_longer_bars_are_better_efficiencies() -> None:
    curve = api.scaling("latte-xl", "4x8xA6000ada")
    shares = [round(20 * p.efficiency_frac.value) for p in curve.points]
    bars = [bar(p.efficiency_frac, 20) for p in curve.points]
    assert [b.count("=") + b.count("|") for b in bars] == shares


@pytest.mark.parametrize(
    ("model", "gpus", "options"),
    [("latte-xl", "4x8xA6000ada", {}), ("llama-3-70b", "1250x8xH100", {"tp": 8}),
     ("resnet152", "512x8xV100", {}), ("gpt2", "1x1xT4", {})],
)  # fmt: skip
def test_it_stays_in_eighty_columns(model: str, gpus: str, options: dict[str, int]) -> None:
    text = render_scaling(api.scaling(model, gpus, **options))
    assert max(map(len, text.splitlines())) <= WIDTH


def test_what_does_not_fit_and_what_was_measured_are_marked() -> None:
    text = render_scaling(api.scaling("latte-xl", "1x2xRTX4090"))
    assert "1*" in text and "* does not fit" in text and "measured" not in text
    text = render_scaling(api.scaling("latte-l", "1x8xA6000ada"))
    assert "over the measured rate of one GPU" in text
    assert "5.79" in next(line for line in text.splitlines() if line.startswith("   8"))
