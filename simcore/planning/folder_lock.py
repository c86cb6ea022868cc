"""One process at a time in a folder: a lock file that names its holder.

The lock is the operating system's (POSIX record locks), so that it ends with its holder however
that ends: a file that a killed process left is no lock. Processes begun by the holder have no
share in it. Where a file system or system has no such locks there is none.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
from datetime import datetime
from pathlib import Path

from simcore.base.errors import UsageError

try:
    import fcntl
except ImportError:  # no POSIX system
    fcntl = None  # type: ignore[assignment]

LOCK = "lock"
#: Folders locked by this process: a record lock does not keep its own process out.
_held: set[str] = set()
_guard = threading.Lock()


class FolderLock:
    """The lock of a folder, which is made where there is none.

    Raises UsageError where another holds it, with its process and host; OSError.
    """

    def __init__(self, folder: Path) -> None:
        self._key = os.path.realpath(folder)
        self._file = folder / LOCK
        self._released = False
        with _guard:
            if self._key in _held:
                raise _in_use(folder, f"another sweep of this process ({os.getpid()})")
            _held.add(self._key)
        try:
            self._handle = _locked(folder, self._file)
        except BaseException:
            self._forget()
            raise

    def release(self) -> None:
        """Give the lock up and remove its file."""
        if self._released:
            return
        self._released = True
        try:
            self._file.unlink(missing_ok=True)
        finally:
            os.close(self._handle)
            self._forget()

    def _forget(self) -> None:
        with _guard:
            _held.discard(self._key)


def _locked(folder: Path, file: Path) -> int:
    """The open lock file. Its last holder may remove it, and the folder, at any moment."""
    while True:
        folder.mkdir(exist_ok=True)
        try:
            handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:
            continue
        try:
            _take(handle, folder)
            if _is_at(handle, file):
                about = {"pid": os.getpid(), "host": socket.gethostname(),
                         "since": datetime.now().isoformat(" ", "seconds")}  # fmt: skip
                os.ftruncate(handle, 0)
                os.pwrite(handle, json.dumps(about).encode(), 0)
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _take(handle: int, folder: Path) -> None:
    if fcntl is None:
        return
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as err:
        if err.errno in (errno.EACCES, errno.EAGAIN):
            raise _in_use(folder, _holder(os.pread(handle, 1000, 0))) from None
        if err.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
            raise


def _is_at(handle: int, file: Path) -> bool:
    """Whether the open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(handle), file.stat())
    except FileNotFoundError:
        return False


def _holder(text: bytes) -> str:
    try:
        about = json.loads(text)
        return f"process {about['pid']} on {about['host']} since {about['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"


def _in_use(folder: Path, holder: str) -> UsageError:
    return UsageError(
        f"{folder.name} is in use by {holder}: wait for it, end it, or give another -o"
    )
