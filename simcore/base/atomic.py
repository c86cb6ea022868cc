"""Files that appear in one piece: whole, or not at all, also after a crash."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Ending of a file that is being written; what is left of one after a crash can be removed.
PARTIAL = ".partial"


@contextmanager
def replacing(path: Path, folder: Path | None = None) -> Iterator[Path]:
    """A temporary path to write; it becomes ``path`` when the block ends without an error.

    The file is on the disk before it is renamed, and its new name before this returns. After an
    error the temporary file is removed and ``path`` is as it was. ``folder``: where the temporary
    file lies, on the same file system (default: beside ``path``). Raises OSError.
    """
    temporary = (folder or path.parent) / f"{path.name}.{uuid.uuid4().hex[:8]}{PARTIAL}"
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` at once: a reader sees the old file or the new one, never half."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sync_folder(folder: Path) -> None:
    """Put a folder's names on the disk, where the system can."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
