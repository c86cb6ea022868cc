"""Starts a ``simcore serve`` for a measurement and stops it afterwards."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


@dataclass(frozen=True)
class Served:
    """A server's address and the number of its process."""

    address: str
    pid: int


@contextmanager
def served(*options: str) -> Iterator[Served]:
    """A server on a free port of this machine. Raises RuntimeError."""
    process = subprocess.Popen(
        [sys.executable, "-m", "simcore", "serve", "--port", "0", *options],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        match = _ADDRESS.search(line)
        if match is None:
            raise RuntimeError(f"simcore serve did not start: {line.strip()}")
        yield Served(match[0], process.pid)
    finally:
        process.terminate()
        process.wait(timeout=10)
