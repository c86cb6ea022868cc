"""Modules that this process has imported, and whether their files have changed since.

``pkg.net:build`` refers to the file. A module that the user's program has imported itself, such as
the cells of a notebook, may have changed without any file, so it is traced in its current state at
each request. A module that only a trace has imported is imported again when one of its files
changes.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Module imported for a trace -> modules that were imported with it, their files and digests.
_here: dict[str, dict[str, tuple[str, str]]] = {}


def digest(path: str) -> str:
    """The SHA-256 hash of a file; empty if it cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def own_files() -> dict[str, str]:
    """Module -> file, for loaded modules outside Python's library and installed packages.

    simcore's own modules are not included, except those of ``calibrate``, which define networks
    that it trains.
    """
    ours = Path(__file__).resolve().parents[2]
    skipped = tuple(str(d) for d in ours.iterdir() if d.name != "calibrate")
    skipped = (str(Path(os.__file__).parent), *skipped)
    files = {}
    for module, loaded in list(sys.modules.items()):
        name = getattr(loaded, "__file__", None)
        if not name or not name.endswith(".py") or "site-packages" in name:
            continue
        path = Path(name).resolve()
        if not str(path).startswith(skipped) and path.is_file():
            files[module] = str(path)
    return files


def is_the_programs(module: str) -> bool:
    """Whether the user's program has imported the module, or is that module.

    simcore's own modules do not count, because they do not change.
    """
    return module in sys.modules and module not in _here and module.split(".")[0] != "simcore"


def forget_changed(module: str) -> None:
    """Unload a module that a trace imported, and those imported with it, if a file has changed.

    The next trace then imports them again.
    """
    imported = _here.get(module, {})
    if any(digest(file) != old for file, old in imported.values()):
        for name in (module, *imported):
            sys.modules.pop(name, None)
        del _here[module]
        importlib.invalidate_caches()


@contextmanager
def importing(module: str) -> Iterator[None]:
    """A context that records the modules which are imported in it for ``module``."""
    before = set(sys.modules)
    try:
        yield
    finally:
        imported = {name: file for name, file in own_files().items() if name not in before}
        if module not in before and (imported or module in sys.modules):
            _here[module] = {name: (file, digest(file)) for name, file in imported.items()}
