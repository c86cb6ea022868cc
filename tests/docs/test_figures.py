"""Figures that the model's page states by hand are those of the data they are from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simcore.base.units import PERCENT
from simcore.hardware.profile import load_profile

DOCS = Path(__file__).resolve().parents[2] / "docs"
_SHARE = re.compile(r"(\d+(?:\.\d+)?)(?= %| and \d+(?:\.\d+)? %)")


@pytest.fixture(scope="module")
def stated() -> set[str]:
    """Every share that the section on uncertainty states."""
    text = (DOCS / "model.md").read_text(encoding="utf-8")
    section = text.partition("\n## Uncertainty\n")[2].partition("\n## ")[0]
    return set(_SHARE.findall(section))


def test_widths_of_the_interval_are_the_profile_s(stated: set[str]) -> None:
    profile = load_profile()
    memory = ("memory_residual", "memory_residual_eager", "segments_residual", "memory_foreign",
              "memory_assumed")  # fmt: skip
    widths = {name: width.value for name, width in profile.step_residual.items()}
    widths |= {name: profile.runtime[name]["value"] for name in memory}
    assert len(widths) >= 10
    told = {name: f"{width * PERCENT:.3g}" for name, width in widths.items()}
    assert {name: text for name, text in told.items() if text not in stated} == {}


@pytest.mark.parametrize("source", ["spread", "memory-spread"])
def test_shares_inside_the_interval_are_those_kept_with_the_widths(
    source: str, stated: set[str]
) -> None:
    """``python -m validate.residuals`` prints them."""
    kept = load_profile().runtime["sources"][source]
    shares = re.findall(r"(\d+) % of (?:language models|data-parallel)", kept)
    assert len(shares) == 2, kept
    assert set(shares) <= stated
