"""Traces on disk are data: a folder that somebody else can write runs nothing."""

from __future__ import annotations

import pytest
from evil import Evil

from simcore.base.lookup import cached_parse
from simcore.workload.trace import cache


def test_entries_are_json_whatever_they_hold(evil: Evil, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMCORE_TRACE_CACHE", str(evil.folder))
    cache.store("entry", {"name": "net"}, ())
    assert cache.load("entry") == {"name": "net"}
    (evil.folder / "entry.json").write_bytes(evil.pickled())
    assert cache.load("entry") is None and not evil.ran


def test_so_are_cached_records(evil: Evil, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMCORE_CACHE", str(evil.folder))
    assert cached_parse("text", lambda t: [t]) == ["text"]
    (entry,) = (evil.folder / "yaml").iterdir()
    entry.write_bytes(evil.pickled())
    assert cached_parse("text", lambda t: [t]) == ["text"] and not evil.ran


def test_every_file_that_a_trace_depends_on_is_there() -> None:
    """A file that moves away takes its name along; otherwise no model could be traced."""
    cache._code_hash.cache_clear()
    assert len(cache._code_hash()) == 64
