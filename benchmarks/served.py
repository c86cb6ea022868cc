"""Starts a ``simcore serve`` for a measurement and stops it afterwards."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


@dataclass(frozen=True)
class Served:
    """A server's address and the number of its process."""

    address: str
    pid: int


def family(pid: int) -> list[int]:
    """The numbers of a process and of those that it began, and theirs."""
    found = [pid]
    for one in found:
        try:
            found += map(int, Path(f"/proc/{one}/task/{one}/children").read_text().split())
        except OSError:  # it has ended
            continue
    return found


def processor_s(pid: int) -> float:
    """Processor time of a process and those that it began."""
    ticks = 0
    for one in family(pid):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


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
