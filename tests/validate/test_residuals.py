"""Where the residuals come from: rows of errors, and the share inside without their source."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simcore.hardware.estimates import Estimate
from validate.residuals import Row, fitted, foreign

#: The width in force of what comes and goes.
WIDTHS = [Estimate(0.05, 0.0, "")]


def _rows(source: str, sd: float, n: int, seed: int) -> list[Row]:
    sizes = np.abs(np.random.default_rng(seed).standard_normal(n)) * sd
    return [Row("t", source, "step", float(s), 0.0, (1.0,)) for s in sizes]


def test_a_source_unlike_the_others_is_found_out_by_leaving_it_out() -> None:
    rows = [*_rows("a", 0.1, 300, 1), *_rows("b", 0.1, 300, 2), *_rows("c", 0.5, 300, 3)]
    found = fitted(rows, ("any",))
    assert found["tables"]["t"]["inside_frac"] == pytest.approx(0.8, abs=0.02)
    assert found["sources"]["c, step"]["inside_frac"] > found["sources"]["c, step"]["left_out_frac"]
    assert found["sources"]["c, step"]["left_out_frac"] < 0.35


def test_alike_sources_are_held_without_their_own_rows() -> None:
    rows = [r for i in range(5) for r in _rows(f"s{i}", 0.2, 200, 10 + i)]
    found = fitted(rows, ("any",))
    assert found["widths"]["any"] == pytest.approx(0.2, rel=0.1)
    assert found["tables"]["t"]["left_out_frac"] == pytest.approx(0.8, abs=0.03)
    lone = fitted([replace(r, source="only") for r in rows], ("any",))
    assert lone["tables"]["t"]["inside_frac"] == pytest.approx(0.8, abs=0.02)


def _figures(source: str, program: str, shift: float, n: int, seed: int) -> list[Row]:
    """Memory: 0.05 of what comes and goes, and a shift of all that is held, twice as much."""
    noise = 0.05 * np.random.default_rng(seed).standard_normal(n)
    sizes = np.abs(noise + 2.0 * shift)
    return [Row("t", source, "allocated", float(s), 0.0, (1.0,), 2.0, program) for s in sizes]


def test_what_sources_left_out_need_is_the_spread_between_them() -> None:
    shifts = 0.1 * np.random.default_rng(5).standard_normal(40)
    rows = [r for i, d in enumerate(shifts) for r in _figures(f"s{i}", "torch", d, 50, i)]
    found = foreign(rows, WIDTHS)
    assert found["left_out_frac"][1] == pytest.approx(0.8, abs=0.08)
    assert found["left_out_frac"][1] >= found["left_out_frac"][0]
    # the pooled width is of the same spread, so that little is lacking beside it
    assert found["width"] < 0.1


def test_widths_for_sources_hold_those_left_out_as_often_as_they_say() -> None:
    """A source of a thousand rows that lies near, and 40 small ones that lie apart."""
    shifts = 0.1 * np.random.default_rng(6).standard_normal(40)
    rows = _figures("large", "torch", 0.0, 1000, 1)
    rows += [r for i, d in enumerate(shifts) for r in _figures(f"s{i}", "torch", d, 20, i)]
    by_rows = fitted(rows, ("any",))
    by_sources = fitted(rows, ("any",), for_sources=True)
    assert by_rows["left_out_of_sources_frac"] < 0.7
    assert by_sources["left_out_of_sources_frac"] == pytest.approx(0.8, abs=0.06)
    assert by_sources["widths"]["any"] > by_rows["widths"]["any"]


def test_a_large_source_does_not_speak_for_small_ones() -> None:
    """A thousand rows set the widths; what twelve small sources lack decides of another."""
    rows = _figures("large", "torch", 0.0, 1000, 1)
    for i in range(12):
        rows += _figures(f"s{i}", "fsdp" if i else "rare", 0.1 + 0.01 * i, 4, 10 + i)
    found = foreign(rows, WIDTHS)
    assert found["left_out_frac"][0] < 0.2 < 0.8 <= found["left_out_frac"][1]
    assert found["width"] == pytest.approx(0.21 / 1.2816, rel=0.15)
    assert set(found["kinds"]) == {"torch", "fsdp"}  # four rows are no figure of a kind
    assert found["kinds"]["torch"] == pytest.approx(0.0, abs=0.005)


def test_a_kind_with_figures_has_what_its_own_rows_need() -> None:
    """Of releases that lie 0.2 of all that they hold off, one lies 0.05 off in each of its rows."""
    rows = _figures("large", "torch", 0.0, 1000, 1)
    rows += [r for i in range(10) for r in _figures(f"s{i}", f"other{i}", 0.2, 4, i)]
    rows += [Row("t", "mine", "allocated", 0.1, 0.0, (1.0,), 2.0, "mine")] * 8
    found = foreign(rows, WIDTHS)
    need = np.sqrt((0.1 / 1.2816) ** 2 - 0.05**2) / 2.0
    assert found["kinds"]["mine"] == pytest.approx(need, rel=1e-3)
    assert "other0" not in found["kinds"]
    assert found["width"] > 2.0 * need


def test_errors_of_state_alone_count_beside_the_widths() -> None:
    """Rows at the update, where nothing comes and goes, need all of their error."""
    alike = [r for i in range(6) for r in _figures(f"s{i}", "torch", 0.0, 50, i)]
    state = [Row("t", "state", "shown", 0.3, 0.0, (0.0,), 1.0, "fsdp")] * 5
    found = foreign([*alike, *state], WIDTHS)
    assert found["sources"]["state"][0] == 0.0
    assert found["width"] == pytest.approx(0.3 / 1.2816, rel=1e-3)
