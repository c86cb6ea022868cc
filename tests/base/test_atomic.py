"""A file appears whole, or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from simcore.base.atomic import replacing, write_text


def test_a_file_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "profile.yaml"
    write_text(path, "old\n")

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_text(path, "new\n")
    assert path.read_text(encoding="utf-8") == "old\n"
    assert [p.name for p in tmp_path.iterdir()] == ["profile.yaml"]


def test_the_new_file_is_on_the_disk_before_its_name_and_the_name_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could leave the name of an empty file, or no file that was reported."""
    path, other = tmp_path / "points.csv", tmp_path / "parts"
    other.mkdir()
    seen: list[tuple[bool, bool]] = []
    plain = os.fsync

    def fsync(handle: int) -> None:
        is_folder = os.path.samestat(os.fstat(handle), tmp_path.stat())
        seen.append((is_folder, path.exists()))
        plain(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with replacing(path, other) as partial:
        assert partial.parent == other
        partial.write_text("1,2\n")
    assert seen == [(False, False), (True, True)]
    assert path.read_text() == "1,2\n"
    assert not list(other.iterdir())


def test_what_was_not_written_to_its_end_is_gone(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "a") as partial:
        partial.write_text("half")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
