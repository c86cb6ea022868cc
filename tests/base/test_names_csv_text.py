"""Tables as spreadsheets save them."""

from __future__ import annotations

import pytest

from simcore.base.names import between, decoded


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_text_is_read_whatever_its_mark(encoding: str) -> None:
    assert decoded("model;GPUs ä".encode(encoding)) == "model;GPUs ä"


def test_other_bytes_are_no_text() -> None:
    with pytest.raises(UnicodeDecodeError):
        decoded(b"caf\xe9")


@pytest.mark.parametrize(
    ("heading", "parts"),
    [("a,b,c", ","), ("a;b;c", ";"), ("a\tb", "\t"), ("alone", ","), ('"a, b";c;d', ";")],
)
def test_what_stands_most_often_parts_the_cells(heading: str, parts: str) -> None:
    assert between(heading) == parts
