"""Benchmarks in the table ``host``: updates, copies between host and GPU, the local drive."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from functools import partial
from typing import Final

from simcore.base.units import GIB, KIB, MIB
from simcore.calibrate.bench.case import (
    FAMILIES,
    Case,
    Columns,
    Device,
    Run,
    World,
    seconds_of,
)

#: (number of tensors, elements of each) of an update, by kind of device.
UPDATES: Final = {
    "cpu": ((24, 40_000), (12, 400_000), (8, 2_000_000)),
    "cuda": ((200, 100_000), (100, 4_000_000), (40, 16_000_000)),
}
#: Implementations of AdamW's step, PyTorch's default one first, by kind of device.
IMPLS: Final = {"cpu": ("for-loop", "fused"), "cuda": ("foreach", "fused", "for-loop")}
#: fp32 elements that an update reads and writes per parameter, with the gradient. foreach and the
#: loop materialise temporaries (``strategy.precision``); the fused update reads g, w, m, v and
#: writes w, m, v in one pass.
ELEMENTS_MOVED: Final = {"for-loop": 16, "foreach": 16, "fused": 7}
#: Tensors that an update holds for each of its parameters' (gradient, state and temporaries among
#: them), and the share of the device's memory that they may take.
UPDATE_TENSORS, UPDATE_FRAC = 7, 0.25
#: Elements of one tensor that is updated on the host of a GPU.
OFFLOADED: Final = (4_000_000, 64_000_000)
#: Sizes of copies between host and GPU, and of the file on the drive, in bytes.
COPY_BYTES: Final = (64 * KIB, MIB, 16 * MIB, 256 * MIB)
FILE_BYTES: Final = {"cpu": 64 * MIB, "cuda": GIB}
CHUNK_BYTES: Final = 8 * MIB


def _columns(device: Device, op: str, n_bytes: int, count: int = 1) -> Columns:
    return {"gpu": device.name, "op": op, "bytes": n_bytes, "count": count}


def adamw(impl: str, tensors: int, numel: int, on_host: bool, device: Device) -> Run:
    """An update of AdamW on the device, or timed on its host."""
    import torch

    place = "cpu" if on_host else device.kind
    params = [torch.randn(numel, device=place, requires_grad=True) for _ in range(tensors)]
    for p in params:
        p.grad = torch.randn_like(p)
    chosen = {"for-loop": {"foreach": False}, "foreach": {"foreach": True},
              "fused": {"fused": True}}  # fmt: skip
    step: Run = torch.optim.AdamW(params, lr=1e-4, **chosen[impl]).step
    return seconds_of(step) if on_host else step


@FAMILIES.register("optimizer")
def optimizer_cases(device: Device, world: World) -> Iterable[Case]:
    """Both implementations on few large tensors and on many small ones."""
    for impl in IMPLS[device.kind]:
        for tensors, numel in UPDATES[device.kind]:
            n_bytes = 4 * ELEMENTS_MOVED[impl] * tensors * numel
            if 4 * UPDATE_TENSORS * tensors * numel <= UPDATE_FRAC * device.memory_bytes:
                yield Case(
                    "optimizer", "host", _columns(device, f"adamw-{impl}", n_bytes, tensors),
                    partial(adamw, impl, tensors, numel, False),
                    cold=True, seconds=0.3, how="queue",
                )  # fmt: skip


@FAMILIES.register("host-adam")
def host_adam_cases(device: Device, world: World) -> Iterable[Case]:
    """The fused update on the host of a GPU, as with an offloaded optimizer."""
    for numel in OFFLOADED if device.kind == "cuda" else ():
        n_bytes = 4 * ELEMENTS_MOVED["fused"] * numel
        yield Case("host-adam", "host", _columns(device, "host-adam", n_bytes),
                   partial(adamw, "fused", 1, numel, True),
                   seconds=0.5)  # fmt: skip


def _copy(way: str, memory: str, n_bytes: int, device: Device) -> Run:
    import torch

    pinned = memory == "pinned"
    host = torch.empty(n_bytes, dtype=torch.uint8, pin_memory=pinned)
    there = torch.empty(n_bytes, dtype=torch.uint8, device=device.kind)
    source, target = (host, there) if way == "h2d" else (there, host)
    return lambda: target.copy_(source, non_blocking=pinned)


@FAMILIES.register("transfer")
def transfer_cases(device: Device, world: World) -> Iterable[Case]:
    """Copies between host and GPU in both directions, with pinned and with pageable memory."""
    kinds = [(way, memory) for way in ("h2d", "d2h") for memory in ("pinned", "pageable")]
    for n_bytes in COPY_BYTES if device.kind == "cuda" else ():
        for way, memory in kinds:
            yield Case("transfer", "host", _columns(device, f"{way}-{memory}", n_bytes),
                       partial(_copy, way, memory, n_bytes))  # fmt: skip


def _drive(op: str, n_bytes: int, device: Device) -> Run:
    """Writing or reading a temporary file without the page cache."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the case)
    block = os.urandom(CHUNK_BYTES)

    def write() -> None:
        file.seek(0)
        for _ in range(n_bytes // CHUNK_BYTES):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())

    def read() -> None:
        file.seek(0)
        while file.read(CHUNK_BYTES):
            pass

    write()
    timed = seconds_of(write if op == "disk-write" else read)

    def run() -> float:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return float(timed())

    return run


@FAMILIES.register("disk")
def disk_cases(device: Device, world: World) -> Iterable[Case]:
    """Writing and reading at one size, with few calls because drives are slow."""
    n_bytes = FILE_BYTES[device.kind]
    for op in ("disk-write", "disk-read"):
        yield Case("disk", "host", _columns(device, op, n_bytes), partial(_drive, op, n_bytes),
                   calls=3)  # fmt: skip
