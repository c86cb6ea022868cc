"""Benchmarks of copies between host and GPU, with pinned and with pageable memory."""

from __future__ import annotations

from collections.abc import Iterable

from simcore.base.units import KIB, MIB
from simcore.calibrate.bench.case import FAMILIES, Case, Columns, Device, Prepare, Run, World


def _prepare(to_device: bool, pinned: bool, n_bytes: int) -> Prepare:
    def prepare(device: Device) -> Run:
        import torch

        host = torch.empty(n_bytes, dtype=torch.uint8, pin_memory=pinned)
        there = torch.empty(n_bytes, dtype=torch.uint8, device=device.kind)
        source, target = (host, there) if to_device else (there, host)

        def run() -> None:
            target.copy_(source, non_blocking=pinned)

        return run

    return prepare


@FAMILIES.register("transfer")
def cases(device: Device, world: World) -> Iterable[Case]:
    """Copies in both directions; none if the device is the host itself."""
    if device.kind != "cuda":
        return
    for n_bytes in (64 * KIB, MIB, 16 * MIB, 256 * MIB):
        for to_device, way in ((True, "h2d"), (False, "d2h")):
            for pinned, kind in ((True, "pinned"), (False, "pageable")):
                columns: Columns = {
                    "gpu": device.name,
                    "op": f"{way}-{kind}",
                    "bytes": n_bytes,
                    "count": 1,
                }
                yield Case("transfer", "host", columns, _prepare(to_device, pinned, n_bytes))
