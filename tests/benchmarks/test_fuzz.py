"""Altered files and random jobs end in answers or in simcore's own sentences."""

from __future__ import annotations

import pytest

from benchmarks.fuzz import KINDS, fuzz


@pytest.mark.parametrize("kind", KINDS)
def test_no_input_ends_in_an_error_of_ours(kind: str) -> None:
    failures, ends = fuzz(12, first=1000, kinds=[kind])
    assert not failures, failures
    assert sum(ends.values()) == 12


@pytest.mark.long
def test_two_thousand_inputs() -> None:
    failures, ends = fuzz(2000)
    assert not failures, failures
    assert {end.rpartition(" ")[2] for end in ends} == {"0", "1", "2"}
