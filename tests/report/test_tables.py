"""Tables: aligned, and where a terminal is narrow their texts go on in the next line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.report import catalog
from simcore.report.tables import table, wrapped_table

HEAD = ["gpu", "full name", "TFLOP/s dense", "note"]
ROWS = [
    ["A10", "NVIDIA A10 of a cloud with a long name", "125", "a sentence that says much of it"],
    ["H100", "NVIDIA H100", "989", ""],
]


def test_nothing_is_wrapped_where_there_is_room() -> None:
    assert wrapped_table(HEAD, ROWS, 200, right=(2,)) == table(HEAD, ROWS, right=(2,))


@given(st.integers(50, 120))
def test_every_word_stays_and_no_line_is_too_long(width: int) -> None:
    text = wrapped_table(HEAD, ROWS, width, right=(2,))
    assert max(map(len, text.splitlines())) <= width
    words = sorted(w for row in (HEAD, *ROWS) for cell in row for w in cell.split())
    assert sorted(text.split()) == words


@pytest.mark.parametrize("kind", ["gpus", "links", "strategies", "optimizers"])
def test_lists_fit_a_terminal_of_eighty_columns(kind: str) -> None:
    found = catalog.listing(kind)
    text = found.text(80)
    assert max(map(len, text.splitlines())) <= 80
    # the figures of a row stand in its first line
    lines = text.splitlines()
    for row in found.rows:
        (line,) = [x for x in lines if x.split()[:1] == row[0].split() and row[0] in x]
        assert all(row[i] in line for i in found.right)
