"""A cache of traced models on disk.

The key is a hash of the name of the callable or of the library's model, its inputs, the versions of
torch, Python and simcore, and simcore's own tracing code. An entry also holds the hash of every
source file that a callable loaded from outside the installed packages, and is valid only while all
of these files are unchanged. The cache serves processes that have not imported the callable's
module themselves (``loaded``). ``SIMCORE_TRACE_CACHE=off`` switches it off.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from simcore import __version__
from simcore.base.lookup import cache_folder, read_entry, write_entry
from simcore.workload.trace.loaded import digest

#: Files of simcore outside this folder on which the content or the format of a trace depends.
_CODE = ("graph.py", "ops/products.py", "archs/traced.py")


@cache
def _code_hash() -> str:
    """A hash of simcore's tracing code."""
    here = Path(__file__).resolve().parent
    files = [*sorted(here.glob("*.py")), *(here.parent / name for name in _CODE)]
    return _sha256(b"".join(f.read_bytes() for f in files))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def key_of(text: str, inputs: Iterable[str], made_of: Iterable[str] | None = None) -> str:
    """The key of a model with its inputs, which names its file in the cache.

    ``made_of``: versions and settings of the model's library; None for a callable, which depends on
    the current folder and PYTHONPATH instead.
    """
    from importlib.metadata import PackageNotFoundError, version  # takes long to import

    try:
        torch_version = version("torch")
    except PackageNotFoundError:
        torch_version = "none"
    if made_of is None:
        made_of = (str(Path.cwd()), os.environ.get("PYTHONPATH", ""))
    versions = (__version__, torch_version, sys.version_info[:2])
    parts = [_code_hash(), *versions, text, *inputs, *made_of]
    return _sha256(json.dumps(parts).encode())[:40]


def load(key: str) -> dict[str, Any] | None:
    """The cached record of a key; None if there is none, or if one of its source files changed."""
    if (entry := _entry(key)) is None:
        return None
    try:
        found = read_entry(entry)
        if all(digest(f) == h for f, h in found["sources"].items()):
            return found["record"]
    except (OSError, KeyError, TypeError, AttributeError):
        pass
    return None


def store(key: str, record: dict[str, Any], sources: Iterable[str]) -> None:
    """Write a record with the hashes of its source files; does nothing if that is impossible."""
    if (entry := _entry(key)) is not None:
        write_entry(entry, {"sources": {f: digest(f) for f in sources}, "record": record})


def _entry(key: str) -> Path | None:
    folder = cache_folder("SIMCORE_TRACE_CACHE", "traces")
    return None if folder is None else folder / f"{key}.json"
