"""What the tests let the server's processes do."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

from simcore.base.errors import DataError, UsageError


def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "awake"


def hoard(n_bytes: int) -> int:
    return len(bytearray(n_bytes))


def refuse() -> None:
    raise DataError("is wrong", file="x.yaml", line=3)


KEPT: list[bytearray] = []


def keep(n_bytes: int) -> int:
    KEPT.append(bytearray(n_bytes))
    return len(KEPT)


def fall(once: str, how: int) -> str:
    """End this process by a signal (negative) or exit code; with ``once``, the first time alone."""
    if once and Path(once).exists():
        return "awake"
    Path(once or os.devnull).touch()
    if how >= 0:
        os._exit(how)
    os.kill(os.getpid(), -how)
    return "still here"


class OddError(Exception):
    """Cannot be sent to another process."""

    def __init__(self) -> None:
        super().__init__(lambda: None)


def raise_odd() -> None:
    raise OddError


def fail(how: str) -> None:
    """Fail as Python and libraries do without memory."""
    if how == "system":
        raise SystemError("returned NULL without setting an exception")
    if how == "told":
        raise OSError(errno.ENOMEM, "Cannot allocate memory")
    try:
        raise ImportError("x.so: failed to map segment from shared object")
    except ImportError:
        raise UsageError("a report needs matplotlib") from None
