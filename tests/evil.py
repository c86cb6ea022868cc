"""A module that leaves a mark when it is imported, in a folder of its own."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

#: Builds a network, with its sample input; the import alone leaves the mark.
MODULE = """
from pathlib import Path
Path(__file__).with_name("RAN").touch()
import torch
def make():
    return torch.nn.Linear(8, 8), torch.empty(2, 8)
"""
NAME = "evilmod:make"
#: What the refusal says, whatever stands before it.
REFUSED = f"model '{NAME}' is Python code"
PERMITS = "--allow-code"


class Evil:
    """The folder, which is the current one and on ``sys.path``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mark = folder, folder / "RAN"
        (folder / "evilmod.py").write_text(MODULE)

    @property
    def ran(self) -> bool:
        """Whether code of the folder has run."""
        return self.mark.exists()

    def write(self, name: str, text: str) -> Path:
        """A file of the folder."""
        path = self.folder / name
        path.write_text(text)
        return path

    def pickled(self) -> bytes:
        """A pickle that leaves the mark when it is loaded."""
        return pickle.dumps(_Touches(str(self.mark)))


class _Touches:
    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return _touch, (self.mark,)


def _touch(mark: str) -> None:
    Path(mark).touch()


@contextmanager
def evil_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Evil]:
    """The folder while a test runs; afterwards nobody has imported its module."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("SIMCORE_CONFIG", "off")
    monkeypatch.setenv("SIMCORE_TRACE_CACHE", "off")
    try:
        yield Evil(folder)
    finally:
        sys.modules.pop("evilmod", None)
