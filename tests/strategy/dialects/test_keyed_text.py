"""Texts of launch files, held against the parsers of their forms."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
import yaml

from simcore.strategy.dialects.keyed import written_text

DATA: dict[str, Any] = {
    "a": 1, "b.c": "x: #y", "b.d.e": [1, "z"], "f": True, "b.g": None, "h.i.j.k": 0.5, "l": "",
}  # fmt: skip
NESTED = {
    "a": 1, "b": {"c": "x: #y", "d": {"e": [1, "z"]}, "g": None}, "f": True,
    "h": {"i": {"j": {"k": 0.5}}}, "l": "",
}  # fmt: skip


def test_parsers_read_what_was_written() -> None:
    assert json.loads(written_text(DATA, "json")) == NESTED
    assert yaml.safe_load(written_text(DATA, "yaml")) == NESTED
    without = {k: v for k, v in DATA.items() if v is not None}  # TOML has no null
    read = tomllib.loads(written_text(without, "toml"))
    assert read == {**NESTED, "b": {"c": "x: #y", "d": {"e": [1, "z"]}}}


def test_layout_of_the_text() -> None:
    data = {"a": 1, "b.c": 2, "b.d.e": 3}
    assert written_text(data, "yaml") == "a: 1\nb:\n  c: 2\n  d:\n    e: 3\n"
    assert written_text(data, "toml") == "a = 1\n\n[b]\nc = 2\n\n[b.d]\ne = 3\n"
    assert written_text(data, "json").startswith('{\n  "a": 1,\n  "b": {\n    "c": 2')
    assert written_text({"b.c": 1}, "toml") == "[b]\nc = 1\n"


@pytest.mark.parametrize(
    ("data", "text"),
    [({"a": 1, "b": True, "c": False, "d": "x"}, "--a 1\n--b\n--d x\n"), ({"a": 0}, "--a 0\n"),
     ({}, "")],
)  # fmt: skip
def test_flags(data: dict[str, Any], text: str) -> None:
    assert written_text(data, "flags") == text
