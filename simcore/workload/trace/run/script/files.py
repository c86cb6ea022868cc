"""Files that a script writes: kept in a temporary folder, where the script finds them again."""

from __future__ import annotations

import builtins
import io
import os
import shutil
from pathlib import Path
from typing import Any

from simcore.workload.trace.run.patches import Patches

#: Functions of ``os`` that change what is at a path; with two paths, rename, replace and link.
_CHANGES_ONE = ("remove", "unlink", "rmdir", "chmod", "utime", "truncate")
_CHANGES_TWO = ("rename", "replace", "link", "symlink")
_READS = ("stat", "lstat", "listdir", "scandir", "access", "readlink", "statvfs")
_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


#: The functions as they are before a script runs.
_STAT, _MKDIR, _OPEN = os.stat, os.mkdir, builtins.open


def _lexists(path: Any, lstat: Any = os.lstat) -> bool:
    try:
        lstat(path)
    except (OSError, ValueError):
        return False
    return True


def _make_folders(path: str) -> None:
    if not _lexists(path):
        _make_folders(os.path.dirname(path))  # noqa: PTH120
        _MKDIR(path)


def _copy(path: Any, to: str) -> None:
    with _OPEN(path, "rb") as source, _OPEN(to, "wb") as target:
        shutil.copyfileobj(source, target)


class Overlay:
    """A folder in which files that are written have the place of their whole path."""

    def __init__(self, folder: Path) -> None:
        self.folder = os.path.realpath(folder)

    def is_free(self, path: Any) -> bool:
        """Whether a path may be written as it is: in the folder, or a device such as /dev/null."""
        if not isinstance(path, str | bytes | os.PathLike):
            return True  # a number of an open file
        full = os.path.abspath(os.fsdecode(path))  # noqa: PTH100
        return full.startswith((self.folder + os.sep, "/dev/")) or full == self.folder

    def copy_of(self, path: Any) -> str:
        """The place of a path in the folder."""
        return self.folder + os.path.abspath(os.fsdecode(path))  # noqa: PTH100

    def reading(self, path: Any) -> Any:
        """The place from which to read: in the folder, if the script wrote there."""
        if self.is_free(path):
            return path
        copy = self.copy_of(path)
        return copy if _lexists(copy) else path

    def writing(self, path: Any, keep: bool) -> Any:
        """The place at which to write; ``keep``: with the content that the file has."""
        if self.is_free(path):
            return path
        copy = self.copy_of(path)
        if not _lexists(copy):
            if not _lexists(os.path.dirname(copy)):  # noqa: PTH120
                # The folder must exist, in the file system or among those that the script made.
                _STAT(os.path.dirname(os.path.abspath(os.fsdecode(path))))  # noqa: PTH100, PTH120
                _make_folders(os.path.dirname(copy))  # noqa: PTH120
            if keep and _lexists(path):
                _copy(path, copy)
        return copy

    def redirect(self, patches: Patches) -> None:
        """Replace the functions by which Python reads and writes files."""
        open_file, open_number = builtins.open, os.open

        def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            writes = set(mode) & set("wax+")
            place = self.writing(file, "w" not in mode) if writes else self.reading(file)
            return open_file(place, mode, *args, **kwargs)

        def number(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if kwargs.get("dir_fd") is not None:
                return open_number(path, flags, *args, **kwargs)
            writes = flags & _TO_WRITE
            place = self.writing(path, not flags & os.O_TRUNC) if writes else self.reading(path)
            return open_number(place, flags, *args, **kwargs)

        def folder(plain: Any, path: Any, *args: Any, **kwargs: Any) -> None:
            if not self.is_free(path) and _lexists(path):
                raise FileExistsError(17, "File exists", os.fspath(path))
            plain(self.writing(path, keep=False), *args, **kwargs)

        def read(plain: Any, path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            return plain(self.reading(path), *args, **kwargs)

        def change_two(plain: Any, old: Any, new: Any, *args: Any, **kwargs: Any) -> Any:
            return plain(self.reading(old), self.writing(new, keep=False), *args, **kwargs)

        for module in (builtins, io):
            patches.set(module, "open", opened)
        patches.set(os, "open", number)
        patches.wrap(os, "mkdir", folder)
        for name in (*_READS, *_CHANGES_ONE):
            patches.wrap(os, name, read)
        patches.wrap(shutil, "rmtree", read)
        patches.set(shutil, "_use_fd_functions", False)  # names files by their paths
        patches.wrap(shutil, "move", change_two)
        for name in _CHANGES_TWO:
            patches.wrap(os, name, change_two)
