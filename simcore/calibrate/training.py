"""A real training step with torch: one process, DDP, ZeRO-1, FSDP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from simcore.base.registry import Registry
from simcore.calibrate.bench.case import set_tf32

Kind = Literal["single", "ddp", "zero1", "zero3"]
#: What simcore calls the strategy that each kind runs.
STRATEGY: Final[dict[str, str]] = {
    "single": "ddp", "ddp": "ddp", "zero1": "zero1", "zero3": "zero3",
}  # fmt: skip


@dataclass(frozen=True)
class Net:
    """A network to train. ``build`` gives a module whose output is its loss, ``inputs`` a batch.

    ``batches``: micro-batches that it is trained with, small first, by kind of device.
    """

    name: str
    build: Callable[[], Any]
    inputs: Callable[[int], tuple[Any, ...]]
    batches: dict[str, tuple[int, ...]]
    place: str

    @property
    def model(self) -> str:
        """What ``--model`` names it by."""
        return f"{self.place}:{self.name}"

    def traced(self) -> tuple[Any, tuple[Any, ...]]:
        """What a model callable returns: the module and a sample."""
        return self.build(), self.inputs(2)


NETS: Registry[Net] = Registry("network")


def step_of(net: Net, batch: int, kind: str, device: str) -> Callable[[], None]:
    """One optimizer step (AdamW as PyTorch has it by default) on ``device``, every rank the same.

    ddp, zero1 and zero3 need a process group.
    """
    import torch

    torch.manual_seed(0)
    set_tf32(torch, "fp32")
    module: Any = net.build().to(device)
    inputs = tuple(t.to(device) for t in net.inputs(batch))
    params = list(module.parameters())
    if kind == "zero3":
        from torch.distributed.fsdp import fully_shard

        for child in module.children():
            if sum(p.numel() for p in child.parameters()):
                fully_shard(child)
        fully_shard(module)
        params = list(module.parameters())
    elif kind != "single":
        module = torch.nn.parallel.DistributedDataParallel(module)
    if kind == "zero1":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        optimizer: Any = ZeroRedundancyOptimizer(params, torch.optim.AdamW, lr=1e-4)
    else:
        optimizer = torch.optim.AdamW(params, lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        module(*inputs).backward()
        optimizer.step()

    return step
