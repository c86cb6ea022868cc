"""Altered files and random jobs end in answers or in simcore's own sentences."""

from __future__ import annotations

import pytest

from benchmarks.fuzz import KINDS, fuzz


@pytest.mark.slow
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (500, 1000, 1500))]
)
def test_no_input_ends_in_an_error_of_ours(first: int) -> None:
    """Two thousand inputs, a quarter each: a failure names the number that repeats it."""
    failures, ends = fuzz(500, first)
    assert not failures, "\n".join(failures)
    assert sum(ends.values()) == 500
    assert {end.rpartition(": ")[0] for end in ends} == set(KINDS)
    assert {end.rpartition(" ")[2] for end in ends} == {"0", "1", "2"}
