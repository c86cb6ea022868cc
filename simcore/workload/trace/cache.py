"""Traced models on disk, found by what they are made of.

The key is the callable or a library's name of it, its inputs, the versions of torch, Python and
simcore, and simcore's own code that traces; an entry also holds the hash of every source file that
a callable loaded from outside the installed packages, and counts only while all of them are the
same. It serves processes that have not imported the callable's module themselves (``loaded``).
``SIMCORE_TRACE_CACHE=off`` switches it off.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from simcore import __version__
from simcore.workload.trace.loaded import digest

#: Of simcore, beside this folder: what decides what a trace holds, and how it is written down.
_CODE = ("graph.py", "conv_kinds.py", "archs/traced.py")


def _folder() -> Path | None:
    chosen = os.environ.get("SIMCORE_TRACE_CACHE", "")
    if chosen.lower() in ("off", "0", "no"):
        return None
    if chosen:
        return Path(chosen).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("simcore")) / "traces"


@cache
def _own_code() -> str:
    here = Path(__file__).resolve().parent
    files = [*sorted(here.glob("*.py")), *(here.parent / name for name in _CODE)]
    return _name_of(b"".join(f.read_bytes() for f in files))


def _name_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def key_of(text: str, inputs: Iterable[str], made_of: Iterable[str] | None = None) -> str:
    """The name of the entry of a model with its inputs.

    ``made_of``: what its library is; None: a callable, found from this folder.
    """
    try:
        torch_version = version("torch")
    except PackageNotFoundError:
        torch_version = "none"
    if made_of is None:
        made_of = (str(Path.cwd()), os.environ.get("PYTHONPATH", ""))
    parts = [_own_code(), __version__, torch_version, sys.version_info[:2], text, *inputs, *made_of]
    return _name_of(json.dumps(parts).encode())[:40]


def load(key: str) -> dict[str, Any] | None:
    """The record of an entry whose sources have not changed; None if there is none."""
    folder = _folder()
    if folder is None:
        return None
    try:
        entry = json.loads((folder / f"{key}.json").read_text(encoding="utf-8"))
        if all(digest(f) == h for f, h in entry["sources"].items()):
            record: dict[str, Any] = entry["record"]
            return record
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def store(key: str, record: dict[str, Any], sources: Iterable[str]) -> None:
    """Keep a record; a folder that cannot be written is no error."""
    folder = _folder()
    if folder is None:
        return
    try:
        entry = {"sources": {f: digest(f) for f in sources}, "record": record}
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{key}.{os.getpid()}.part"
        part.write_text(json.dumps(entry), encoding="utf-8")
        part.replace(folder / f"{key}.json")
    except OSError:
        return
