"""Where the residuals come from: rows of errors, and the share inside without their source."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from validate.residuals import Row, fitted


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
