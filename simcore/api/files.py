"""Arguments that are one file or several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simcore.base.errors import UsageError


def paths_of(files: Sequence[Path | str] | Path | str) -> list[Path]:
    """One file or several, as a list of paths. Raises UsageError for an empty list."""
    found = [files] if isinstance(files, str | Path) else list(files)
    if not found:
        raise UsageError("no file given: name a table or a log")
    return [Path(f) for f in found]
