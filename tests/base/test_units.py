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
