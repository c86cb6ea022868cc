"""Benchmarks of messages between ranks, alone and beside compute, on the backend of training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from simcore.base.units import GIB, KIB, MIB
from simcore.calibrate.bench.case import FAMILIES, Case, Columns, Device, Run, World

#: Message sizes of all-reduce in bytes, by kind of device. A size is that of the whole vector (of
#: the output, for all-gather), as in the tables.
SIZES: Final = {
    "cpu": (4 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 12 * MIB, 32 * MIB),
    "cuda": (4 * KIB, 64 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB),
}
#: Message sizes of the other collectives in bytes.
OTHERS: Final = {
    "cpu": (64 * KIB, MIB, 12 * MIB), "cuda": (64 * KIB, 4 * MIB, 64 * MIB, 256 * MIB),
}  # fmt: skip
NAMES: Final = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "p2p")
#: (bytes of the message, number of products of [n, n] by [n, n], n) of overlapped work: both take
#: about equally long.
WORK: Final = {
    "cpu": ((4 * MIB, 2, 512), (12 * MIB, 5, 512)),
    "cuda": ((64 * MIB, 4, 4096), (256 * MIB, 8, 4096)),
}
#: The timed parts; "-beside" means that the other one runs at the same time.
PARTS: Final = ("compute", "comm", "compute-beside", "comm-beside")


def _collective(name: str, n_bytes: int, world: World, device: Device) -> Run:
    """A collective of an fp32 message. ``p2p`` sends from the first rank to the last."""
    import torch
    import torch.distributed as dist

    n, size = max(world.size, n_bytes // 4) // world.size * world.size, world.size
    whole = torch.ones(n, device=device.kind)
    part = torch.ones(n // size, device=device.kind)
    out = torch.empty_like(whole)

    def exchange() -> None:
        if world.rank == 0:
            dist.send(whole, dst=size - 1)
        elif world.rank == size - 1:
            dist.recv(whole, src=0)

    # torch 2.13 renames two of these functions.
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "reduce_scatter": lambda: scatter(part, whole),
        "all_gather": lambda: gather(whole, part),
        "all_to_all": lambda: dist.all_to_all_single(out, whole),
        "broadcast": lambda: dist.broadcast(whole, src=0),
        "p2p": exchange,
    }
    return calls[name]


@FAMILIES.register("collectives")
def collective_cases(device: Device, world: World) -> Iterable[Case]:
    """All-reduce at every size, the other collectives at fewer sizes; none for a single rank."""
    for name in NAMES if world.size > 1 else ():
        for n_bytes in (SIZES if name == "all_reduce" else OTHERS)[device.kind]:
            columns: Columns = {"gpu_type": device.name, "gpus": world.size, "nodes": 1,
                                "collective": name, "size_bytes": n_bytes}  # fmt: skip
            yield Case("collectives", "collectives", columns,
                       partial(_collective, name, n_bytes, world), mode="lockstep", seconds=0.2,
                       first=name == "all_reduce")  # fmt: skip


def _overlapped(part: str, n_bytes: int, products: int, n: int, device: Device) -> Run:
    """Products or an all-reduce, alone or timed while the other runs, as gradients in training."""
    import torch
    import torch.distributed as dist

    message = torch.ones(n_bytes // 4, device=device.kind)
    a = torch.randn(n, n, device=device.kind)

    def compute() -> None:
        for _ in range(products):
            a @ a

    def beside() -> float:
        if device.kind == "cuda":
            return _beside_on_gpu(torch, dist, message, compute, part)
        start = time.perf_counter()
        sent = dist.all_reduce(message, async_op=True)
        compute()
        computed_s = time.perf_counter() - start
        sent.wait()
        return computed_s if part == "compute-beside" else time.perf_counter() - start

    return {"compute": compute, "comm": lambda: dist.all_reduce(message)}.get(part, beside)


def _beside_on_gpu(
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


@FAMILIES.register("overlap")
def overlap_cases(device: Device, world: World) -> Iterable[Case]:
    """Every part at every amount of work, on all ranks; none for a single rank."""
    for n_bytes, products, n in WORK[device.kind] if world.size > 1 else ():
        for part in PARTS:
            columns: Columns = {"gpu": device.name, "op": f"overlap-{part}", "bytes": n_bytes,
                                "count": products}  # fmt: skip
            yield Case("overlap", "host", columns, partial(_overlapped, part, n_bytes, products, n),
                       mode="lockstep", seconds=0.4, first=True)  # fmt: skip
