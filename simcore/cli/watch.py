"""``simcore predict --watch``: repeats the command whenever a file that it reads has changed.

Each answer is computed in a new process, so that no cache holds the old content of the file.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from simcore.base.errors import UsageError
from simcore.cli.output import complain

FLAG = "--watch"
_FOLDERS = ("hardware_db", "models_db", "programs_db")
Changes = Iterable[Collection[tuple[Any, str]]]


def watched(words: Sequence[str]) -> list[Path]:
    """The files and folders that the command reads: those on its line, defaults and databases."""
    from simcore.base.database import search_roots
    from simcore.cli.config import files

    named = [w.partition("=")[2] if w.startswith("--") and "=" in w else w for w in words]
    on_line = [Path(w) for w in named if w and not w.startswith("-") and _is_file(w)]
    folders = [root / name for root in search_roots() for name in _FOLDERS]
    found = [*on_line, *(f for f in files() if f.is_file()), *(f for f in folders if f.is_dir())]
    return list(dict.fromkeys(p.resolve() for p in found))


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    except OSError:  # a quoted line of flags is too long for a file name
        return False


def _changes(paths: Sequence[Path]) -> Changes:
    try:
        from watchfiles import watch
    except ImportError:
        raise UsageError("--watch needs watchfiles: pip install '.[watch]'") from None
    # Editors replace files, so the folder of a file is watched and names are compared.
    places = {p if p.is_dir() else p.parent for p in paths}
    wanted = {str(p) for p in paths if not p.is_dir()}
    inside = tuple(f"{p}/" for p in paths if p.is_dir())
    return watch(
        *places,
        watch_filter=lambda _, name: (
            name in wanted or (name.startswith(inside) and name.endswith((".yaml", ".json")))
        ),
        raise_interrupt=False,
    )


def rerun(words: Sequence[str]) -> int:
    """Run the command in a new process and return its exit code."""
    return subprocess.run([sys.executable, "-m", "simcore", *words], check=False).returncode


def watch(
    words: Sequence[str],
    *,
    run: Callable[[Sequence[str]], int] = rerun,
    changes: Callable[[Sequence[Path]], Changes] = _changes,
) -> int:
    """Run ``words`` without the flag now and after every change; returns the last exit code."""
    plain = [w for w in words if w != FLAG]
    paths = watched(plain)
    stream = changes(paths)
    code = run(plain)
    complain(f"watching {len(paths)} files and folders; Ctrl-C ends")
    for change in stream:
        names = ", ".join(sorted({Path(name).name for _, name in change}))
        complain(f"--- {time.strftime('%H:%M:%S')} {names} changed")
        code = run(plain)
    return code
