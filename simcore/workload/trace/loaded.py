"""Whether what this process has imported is still what the files say.

``pkg.net:build`` means the file. A module that the program imported itself, a notebook's cells
above all, may have changed since without any file: it is traced as it is now, each time that is
asked. A module that only a trace has imported is imported anew when one of its files changes.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Of each module imported here: the modules that came with it, their files and digests.
_here: dict[str, dict[str, tuple[str, str]]] = {}


def digest(path: str) -> str:
    """Of a file's bytes; of none where it is gone."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def own_files() -> dict[str, str]:
    """Loaded modules that belong neither to Python nor to an installed package, and their files.

    Of simcore itself the files of ``calibrate`` count: they hold networks that it trains.
    """
    ours = Path(__file__).resolve().parents[2]
    skipped = tuple(str(d) for d in ours.iterdir() if d.name != "calibrate")
    skipped = (str(Path(os.__file__).parent), *skipped)
    found = {}
    for module, loaded in list(sys.modules.items()):
        name = getattr(loaded, "__file__", None)
        if not name or not name.endswith(".py") or "site-packages" in name:
            continue
        path = Path(name).resolve()
        if not str(path).startswith(skipped) and path.is_file():
            found[module] = str(path)
    return found


def is_the_programs(module: str) -> bool:
    """Whether the program imported it, or is it; simcore's own modules do not change."""
    return module in sys.modules and module not in _here and module.split(".")[0] != "simcore"


def forget_changed(module: str) -> None:
    """Let a module that a trace imported be imported anew, with what came with it, if changed."""
    came = _here.get(module, {})
    if any(digest(file) != was for file, was in came.values()):
        for name in (module, *came):
            sys.modules.pop(name, None)
        del _here[module]
        importlib.invalidate_caches()


@contextmanager
def importing(module: str) -> Iterator[None]:
    """Remember what is imported for ``module`` and was not there before."""
    before = set(sys.modules)
    try:
        yield
    finally:
        came = {name: file for name, file in own_files().items() if name not in before}
        if module not in before and (came or module in sys.modules):
            _here[module] = {name: (file, digest(file)) for name, file in came.items()}
