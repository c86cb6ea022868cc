"""Traces on disk are data: a folder that somebody else can write runs nothing."""

from __future__ import annotations

import pytest
from evil import Evil

from simcore.base.yaml_cache import cached_parse
from simcore.planning.store import _read_part
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


def test_parts_of_a_sweep_hold_numbers_alone(evil: Evil) -> None:
    import numpy as np

    from simcore.base.errors import DataError

    part = evil.folder / "part.npz"
    part.write_bytes(evil.pickled())
    with pytest.raises(DataError):
        _read_part(part)
    np.savez(part, heads=np.array([_Loaded(evil)], dtype=object))
    with pytest.raises(DataError):
        _read_part(part)
    assert not evil.ran


class _Loaded:
    """An object whose pickle leaves the mark when it is loaded."""

    def __init__(self, evil: Evil) -> None:
        self.folder = str(evil.folder)

    def __reduce__(self) -> tuple[object, ...]:
        from pathlib import Path

        return Path.touch, (Path(self.folder) / "RAN",)
