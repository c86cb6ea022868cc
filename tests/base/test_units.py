"""Durations as a person reads them."""

from __future__ import annotations

import pytest

from simcore.base.units import format_seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.431, "431 ms"), (113.4, "113 s"), (120.0, "2 min"), (179.4, "2 min 59 s"),
        (179.6, "3 min"), (3599.7, "1 h"), (7195.0, "2 h"), (93784.0, "1 d 2 h"),
        (86400.0 * 10, "10 d"),
    ],
)  # fmt: skip
def test_a_duration_has_two_units_and_is_rounded_to_the_second(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.2, "1.20 s"), (1.07, "1.07 s"), (1.0996, "1.10 s"), (10.0, "10.0 s"), (113.0, "113 s"),
        (0.9996, "1.00 s"), (0.9994, "999 ms"), (0.0999996, "100 ms"), (5e-6, "5.00 us"),
        (2.5e-9, "2.50 ns"), (2.5e-10, "0.250 ns"), (0.0, "0 s"), (119.97, "120 s"),
    ],
)  # fmt: skip
def test_a_duration_has_three_significant_digits(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(5e-6, "5 us"), (1.2, "1.2 s"), (9.5e-7, "950 ns")])
def test_a_constant_has_no_more_digits_than_it_is_told_with(seconds: float, text: str) -> None:
    assert format_seconds(seconds, padded=False) == text
