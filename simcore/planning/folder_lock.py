"""A lock that lets one process at a time use a folder; its file names the holder.

The operating system keeps the lock (POSIX record locks) and releases it when the process ends, even
if it is killed: a lock file that remains does not lock anything. Child processes do not inherit the
lock. On systems and file systems without such locks, nothing is locked.
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
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

LOCK = "lock"
#: Folders locked by this process, since a record lock does not exclude its own process.
_held: set[str] = set()
_guard = threading.Lock()


class FolderLock:
    """The lock of a folder, which is created if it does not exist.

    Raises UsageError that names process and host where another process holds it; OSError.
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
        """Release the lock and remove its file."""
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
    """Handle of the open, locked file, which its previous holder may remove at any moment."""
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
    """Whether the open file is still the one with this name."""
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
