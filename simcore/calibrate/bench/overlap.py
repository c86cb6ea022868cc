"""Benchmarks of overlapped compute and communication: how much slower each becomes.

Four calls of equal work: compute alone, an all-reduce alone, and each of the two timed while the
other runs. Training overlaps gradients with the backward pass, so the two are an all-reduce and
matrix products.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from simcore.base.units import MIB
from simcore.calibrate.bench.case import FAMILIES, Case, Columns, Device, Prepare, Run, World

#: (bytes of the message, number of products of [n, n] by [n, n], n): both take about equally long.
WORK: Final = {
    "cpu": ((4 * MIB, 2, 512), (12 * MIB, 5, 512)),
    "cuda": ((64 * MIB, 4, 4096), (256 * MIB, 8, 4096)),
}
#: The timed parts; "-beside" means that the other one runs at the same time.
PARTS: Final = ("compute", "comm", "compute-beside", "comm-beside")


def _prepare(part: str, n_bytes: int, products: int, n: int) -> Prepare:
    def prepare(device: Device) -> Run:
        import torch
        import torch.distributed as dist

        message = torch.ones(n_bytes // 4, device=device.kind)
        a = torch.randn(n, n, device=device.kind)

        def compute() -> None:
            for _ in range(products):
                a @ a

        def beside() -> float | None:
            if device.kind == "cuda":
                return _beside_cuda(torch, dist, message, compute, part)
            start = time.perf_counter()
            sent = dist.all_reduce(message, async_op=True)
            compute()
            computed = time.perf_counter() - start
            sent.wait()
            return computed if part == "compute-beside" else time.perf_counter() - start

        if part == "compute":
            return compute
        if part == "comm":
            return lambda: _none(dist.all_reduce(message))
        return beside

    return prepare


def _beside_cuda(
    torch: Any, dist: Any, message: Any, compute: Callable[[], None], part: str
) -> float:
    events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
    torch.cuda.synchronize()
    events[0].record()
    sent = dist.all_reduce(message, async_op=True)
    compute()
    events[1].record()
    sent.wait()
    events[2].record()
    torch.cuda.synchronize()
    return float(events[0].elapsed_time(events[1 if part == "compute-beside" else 2]) / 1e3)


def _none(_: object) -> None:
    return None


@FAMILIES.register("overlap")
def cases(device: Device, world: World) -> Iterable[Case]:
    """Every part at every amount of work, on all ranks; none for a single rank."""
    if world.size < 2:
        return
    for n_bytes, products, n in WORK[device.kind]:
        for part in PARTS:
            columns: Columns = {"gpu": device.name, "op": f"overlap-{part}", "bytes": n_bytes,
                       "count": products}  # fmt: skip
            yield Case("overlap", "host", columns, _prepare(part, n_bytes, products, n),
                       mode="lockstep", seconds=0.4, first=True)  # fmt: skip
