"""Benchmarks of reading and writing the local drive, without the page cache.

The files are in the folder of temporary files.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable
from typing import Final

from simcore.base.units import GIB, MIB
from simcore.calibrate.bench.case import FAMILIES, Case, Columns, Device, Prepare, Run, World

SIZE_BYTES: Final = {"cpu": 64 * MIB, "cuda": GIB}
CHUNK_BYTES: Final = 8 * MIB


def _prepare(write: bool, n_bytes: int) -> Prepare:
    def prepare(device: Device) -> Run:
        file = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the case)
        block = os.urandom(CHUNK_BYTES)

        def fill() -> None:
            file.seek(0)
            for _ in range(n_bytes // CHUNK_BYTES):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())

        def run() -> float:
            if not write:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            start = time.perf_counter()
            if write:
                fill()
            else:
                file.seek(0)
                while file.read(CHUNK_BYTES):
                    pass
            return time.perf_counter() - start

        fill()
        return run

    return prepare


@FAMILIES.register("disk")
def cases(device: Device, world: World) -> Iterable[Case]:
    """Writing and reading at one size, with few calls because drives are slow."""
    n_bytes = SIZE_BYTES[device.kind]
    for op in ("disk-write", "disk-read"):
        columns: Columns = {"gpu": device.name, "op": op, "bytes": n_bytes, "count": 1}
        yield Case("disk", "host", columns, _prepare(op == "disk-write", n_bytes), calls=3)
