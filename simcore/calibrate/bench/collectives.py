"""Benchmarks of collectives and point-to-point messages, on the backend that training uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from simcore.base.units import GIB, KIB, MIB
from simcore.calibrate.bench.case import FAMILIES, Case, Columns, Device, Prepare, Run, World

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


def call_of(name: str, n_bytes: int, device: Device, world: World) -> Callable[[], Any]:
    """A call that runs the collective ``name`` on an fp32 message of ``n_bytes`` bytes.

    ``p2p`` sends from the first rank to the last.
    """
    import torch
    import torch.distributed as dist

    n, size = max(world.size, n_bytes // 4) // world.size * world.size, world.size
    whole = torch.ones(n, device=device.kind)
    part = torch.ones(n // size, device=device.kind)
    if name == "all_reduce":
        return lambda: dist.all_reduce(whole)
    if name == "reduce_scatter":
        # torch 2.13 renames this function.
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        return lambda: scatter(part, whole)
    if name == "all_gather":
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        return lambda: gather(whole, part)
    if name == "all_to_all":
        out = torch.empty_like(whole)
        return lambda: dist.all_to_all_single(out, whole)
    if name == "broadcast":
        return lambda: dist.broadcast(whole, src=0)

    def exchange() -> None:
        if world.rank == 0:
            dist.send(whole, dst=size - 1)
        elif world.rank == size - 1:
            dist.recv(whole, src=0)

    return exchange


def _prepare(name: str, n_bytes: int, world: World) -> Prepare:
    def prepare(device: Device) -> Run:
        call = call_of(name, n_bytes, device, world)

        def run() -> None:
            call()

        return run

    return prepare


@FAMILIES.register("collectives")
def cases(device: Device, world: World) -> Iterable[Case]:
    """All-reduce at every size, the other collectives at fewer sizes; none for a single rank."""
    if world.size < 2:
        return
    for name in NAMES:
        sizes = SIZES if name == "all_reduce" else OTHERS
        for n_bytes in sizes[device.kind]:
            columns: Columns = {"gpu_type": device.name, "gpus": world.size, "nodes": 1,
                       "collective": name, "size_bytes": n_bytes}  # fmt: skip
            yield Case("collectives", "collectives", columns, _prepare(name, n_bytes, world),
                       mode="lockstep", seconds=0.2,
                       first=name == "all_reduce")  # fmt: skip
