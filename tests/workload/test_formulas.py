"""Formulas of records: what they mean, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from simcore.workload.archs.formulas import formula, round8
from simcore.workload.archs.tape import T

NAMED = {"a": 7, "b": 2.0, "yes": True, "word": "wide", "rows": [3, 4, 5], "x": T(6, (2, 5))}


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a * b - 1", 13.0), ("-a // 2 % 3", -4 % 3), ("a / b ** 2", 1.75),
        ("word == 'wide' and a > 6", True), ("a < 7 or not yes", False), ("a != 7", False),
        ("1 if yes else undefined", 1), ("[a] + rows", [7, 3, 4, 5]), ("rows[-1]", 5),
        ("rows[1:]", [4, 5]), ("rows[:-1]", [3, 4]), ("x.c * x.grid[1]", 30),
        ("x.elems", 60.0), ("max(min(a, b), 3)", 3), ("ceil(a / b)", 4), ("prod(rows)", 60),
        ("gcd([12, 18])", 6), ("len(rows) + sum(rows)", 15), ("round8(44.8)", 48),
        ("int(b) + float(a)", 9.0), ("a >= 7", True), ("a <= 6", False),
    ],
)  # fmt: skip
def test_a_formula_computes_from_names(text: str, meant: Any) -> None:
    assert formula(text)(NAMED) == meant


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "x.__class__", "(lambda: 1)()", "[i for i in rows]", "open('f')",
     "rows.append(1)", "{1: 2}", "f'{a}'", "1 < 2 < 3"],
)  # fmt: skip
def test_a_formula_has_no_other_syntax(text: str) -> None:
    with pytest.raises(ValueError, match="is nothing that a formula may have"):
        formula(text)(NAMED)


def test_channels_are_multiples_of_eight_but_never_a_tenth_less() -> None:
    assert [round8(w) for w in (3, 12, 44.8, 11, 27.9)] == [8, 16, 48, 16, 32]
