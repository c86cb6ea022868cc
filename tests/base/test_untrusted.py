"""YAML from strangers is data or one clear error, whatever it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.base.database import parse_yaml
from simcore.base.errors import DataError
from simcore.base.units import KIB
from simcore.base.untrusted import MAX_NODES, decode, untrusted_yaml
from simcore.hardware.calibrations import NOT_CALIBRATIONS

ROOT = Path(__file__).resolve().parents[2]
#: What makes YAML more than text, and what makes it fail late.
PIECES = [
    "a", "b: ", "- ", "? ", ": ", "\n", "\n  ", "{", "}", "[", "]", ",", "&x ", "*x", "!!int ",
    "!<tag:x> ", "|\n ", "> ", "'", '"', "#", "---\n", "...\n", "%YAML 1.1\n", "<<: ", "~",
    "0x1F", "1e999", "2026-13-45", ".nan", "\t", "\x00", "é", "\u2028", "=", "@", "`",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_any_text_is_data_or_a_clear_error(text: str) -> None:
    try:
        untrusted_yaml(text, "calibration.yaml")  # nothing else may be raised
    except DataError as err:
        assert str(err).startswith("calibration.yaml")
        assert "\n" not in str(err)


@given(st.binary(max_size=200))
def test_any_bytes_are_text_or_a_clear_error(raw: bytes) -> None:
    try:
        assert isinstance(decode(raw, "f", 100), str)
        assert len(raw) <= 100
    except DataError as err:
        assert str(err).startswith("f")


def test_shipped_calibrations_read_as_ever() -> None:
    files = [p for p in (ROOT / "hardware_db/calibrations").glob("*.yaml")
             if p.stem not in NOT_CALIBRATIONS]  # fmt: skip
    assert files
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert untrusted_yaml(text, path.name) == parse_yaml(text, path)


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: 1\nb: &x 2\n", 2), ("a: 1\nb:\n  - !t 2\n", 3), ("- 1\n" * (MAX_NODES + 5), MAX_NODES)],
)
def test_the_error_names_the_line(text: str, line: int) -> None:
    with pytest.raises(DataError) as told:
        untrusted_yaml(text, "f")
    assert told.value.line == line


def test_sizes_are_told_in_kib() -> None:
    with pytest.raises(DataError, match="larger than 64 KiB"):
        decode(b"x" * (64 * KIB + 1), "f", 64 * KIB)
