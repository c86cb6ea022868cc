"""Real training steps with torch: in one process, with DDP, ZeRO-1 or FSDP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from simcore.base.registry import Registry
from simcore.calibrate.bench.case import set_tf32

Kind = Literal["single", "ddp", "zero1", "zero3"]
#: Kind of step -> the name of its strategy in simcore.
STRATEGY: Final[dict[str, str]] = {
    "single": "ddp", "ddp": "ddp", "zero1": "zero1", "zero3": "zero3",
}  # fmt: skip


@dataclass(frozen=True)
class Net:
    """A network to train.

    ``build()`` makes a module that returns its loss, ``inputs(batch)`` the module's arguments.
    ``batches``: kind of device -> sizes of micro-batches to train with, the smallest first.
    ``place``: the Python module that defines it.
    """

    name: str
    build: Callable[[], Any]
    inputs: Callable[[int], tuple[Any, ...]]
    batches: dict[str, tuple[int, ...]]
    place: str

    @property
    def model(self) -> str:
        """The name of the network for ``--model``."""
        return f"{self.place}:{self.name}"

    def traced(self) -> tuple[Any, tuple[Any, ...]]:
        """The module and its arguments for a small batch, as a model callable returns them."""
        return self.build(), self.inputs(2)


NETS: Registry[Net] = Registry("network")


def step_of(net: Net, batch: int, kind: str, device: str) -> Callable[[], None]:
    """A function that runs one training step with PyTorch's default AdamW on ``device``.

    ``kind`` is a :data:`Kind`. All ranks get the same network and batch; ddp, zero1 and zero3 need
    a process group.
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
