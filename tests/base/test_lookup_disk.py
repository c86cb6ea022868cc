"""Cached YAML: the same data, for the same text only, and no error where the cache is unusable."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import simcore
from simcore.base import lookup
from simcore.base.database import parse_shipped, shipped_root
from simcore.base.lookup import cached_parse

DATA: dict[str, Any] = {"a": [1, 1.0, True, None, "é"], "b": {"c": float("inf")}}


class Parser:
    """Counts its calls."""

    def __init__(self, data: Any) -> None:
        self.data, self.calls = data, 0

    def __call__(self, text: str) -> Any:
        self.calls += 1
        return self.data


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIMCORE_CACHE", str(tmp_path))
    return tmp_path / "yaml"


def test_a_text_is_parsed_once_and_gives_the_same_values_of_the_same_types() -> None:
    parse = Parser(DATA)
    first, second = cached_parse("x", parse), cached_parse("x", parse)
    assert first == second == DATA and repr(first) == repr(second)
    assert parse.calls == 1
    cached_parse("y", parse)
    assert parse.calls == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: b"",
        lambda raw: b'{"a": [1',
        lambda raw: b"\xff\xfe",
        lambda raw: b"null",
        lambda raw: b"[]",
        lambda raw: raw.partition(b"\n")[0] + b"\nnull",
        lambda raw: raw.replace(b"1.0", b"9.0"),
    ],
)
def test_a_broken_or_altered_entry_is_parsed_anew(
    change: Callable[[bytes], bytes], folder: Path
) -> None:
    parse = Parser(DATA)
    cached_parse("x", parse)
    (entry,) = folder.iterdir()
    assert change(entry.read_bytes()) != entry.read_bytes()
    entry.write_bytes(change(entry.read_bytes()))
    assert cached_parse("x", parse) == cached_parse("x", parse) == DATA
    assert parse.calls == 2


def test_an_entry_that_another_user_could_write_is_not_trusted(folder: Path) -> None:
    parse = Parser(DATA)
    cached_parse("x", parse)
    (entry,) = folder.iterdir()
    assert entry.stat().st_mode & 0o077 == 0
    entry.chmod(0o622)
    cached_parse("x", parse)
    assert parse.calls == 2


def test_an_entry_of_another_user_is_not_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse = Parser(DATA)
    cached_parse("x", parse)
    monkeypatch.setattr("os.getuid", lambda: -7)
    cached_parse("x", parse)
    assert parse.calls == 2


def test_an_entry_of_another_text_is_not_taken_for_it(folder: Path) -> None:
    parse = Parser(DATA)
    cached_parse("x", parse)
    (first,) = folder.iterdir()
    cached_parse("y", parse)
    (second,) = set(folder.iterdir()) - {first}
    second.write_bytes(first.read_bytes())
    cached_parse("y", parse)
    assert parse.calls == 3


@pytest.mark.parametrize("data", [{1: "a"}, {"day": date(2026, 1, 1)}, {"a": float("nan")}])
def test_data_that_json_does_not_restore_is_not_cached(data: Any, folder: Path) -> None:
    parse = Parser(data)
    assert cached_parse("x", parse) is data and cached_parse("x", parse) is data
    assert not folder.exists()


def test_off_and_a_folder_that_cannot_be_made_cache_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    (tmp_path / "file").write_text("")
    for chosen in ("off", str(tmp_path / "file")):
        monkeypatch.setenv("SIMCORE_CACHE", chosen)
        parse = Parser(DATA)
        assert cached_parse("x", parse) == cached_parse("x", parse) == DATA
        assert parse.calls == 2
    assert not folder.exists()


def test_shipped_files_read_from_the_cache_as_parsed(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    files = [*shipped_root().glob("hardware_db/*/a*.yaml"), *shipped_root().glob("models_db/l*")]
    texts = [f.read_text(encoding="utf-8") for f in files]
    first = [repr(parse_shipped(t)) for t in texts]
    assert 10 < len(list(folder.iterdir())) <= len(set(texts))
    again = [repr(parse_shipped(t)) for t in texts]
    monkeypatch.setenv("SIMCORE_CACHE", "off")
    assert first == again == [repr(parse_shipped(t)) for t in texts]


def test_a_package_installed_anew_makes_its_entries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two installations of one release may differ; an entry of the other one is not read."""
    package = tmp_path / "simcore"
    (package / "_data").mkdir(parents=True)
    init = package / "__init__.py"
    init.write_text("")
    monkeypatch.setattr(simcore, "__file__", str(init))
    found = []
    for installed_s in (10, 20, 10):
        os.utime(init, (installed_s, installed_s))
        lookup.code_version.cache_clear()
        found.append(lookup.code_version())
    lookup.code_version.cache_clear()
    assert found[0] == found[2] != found[1]
