"""Networks to train, and real training steps with torch: alone, with DDP, ZeRO-1 or FSDP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from simcore.base.record import dataclass
from simcore.calibrate.bench.case import set_tf32

Kind = Literal["single", "ddp", "zero1", "zero3"]
#: Kind of step -> the name of its strategy in simcore.
STRATEGY: Final[dict[str, str]] = {
    "single": "ddp", "ddp": "ddp", "zero1": "zero1", "zero3": "zero3",
}  # fmt: skip


@dataclass(frozen=True)
class Input:
    """An argument: random normal numbers [batch, *shape], or whole numbers below ``classes``."""

    shape: tuple[int, ...]
    classes: int = 0

    def make(self, batch: int) -> Any:
        """The tensor."""
        import torch

        shape = (batch, *self.shape)
        return torch.randint(0, self.classes, shape) if self.classes else torch.randn(shape)


@dataclass(frozen=True)
class Net:
    """A network to train; ``nets.MAKERS`` makes its module, which returns its loss.

    ``batches``: kind of device -> sizes of micro-batches to train with, the smallest first.
    """

    name: str
    arguments: tuple[Input, ...]
    batches: Mapping[str, tuple[int, ...]]

    @property
    def model(self) -> str:
        """The name of the network for ``--model``."""
        return f"{__name__}:{self.name}"

    def build(self) -> Any:
        """A module that returns its loss."""
        from simcore.calibrate.nets import MAKERS

        return MAKERS[self.name]()

    def inputs(self, batch: int) -> tuple[Any, ...]:
        """The module's arguments."""
        return tuple(a.make(batch) for a in self.arguments)

    def traced(self) -> tuple[Any, tuple[Any, ...]]:
        """The module and its arguments for a small batch, as a model callable returns them."""
        return self.build(), self.inputs(2)


#: Networks of the calibration, then those of the selftest, which no calibration has seen.
REFERENCES: Final = ("reference_dense", "reference_conv", "reference_attention")
SELFTEST: Final = ("mlp", "conv", "transformer", "dit")
NETS: Final[Mapping[str, Net]] = {net.name: net for net in (
    Net("reference_dense", (Input((448,)),), {"cpu": (160, 640), "cuda": (2048, 8192)}),
    Net("reference_conv", (Input((3, 40, 40)),),
        {"cpu": (8, 24), "cuda": (128, 512)}),
    Net("reference_attention", (Input((96,), 1200),),
        {"cpu": (4, 12), "cuda": (64, 256)}),
    Net("mlp", (Input((784,)), Input((), 10)), {"cpu": (256,), "cuda": (16384,)}),
    Net("conv", (Input((3, 32, 32)), Input((), 10)), {"cpu": (16,), "cuda": (1000,)}),
    Net("transformer", (Input((128,), 2000),), {"cpu": (8,), "cuda": (256,)}),
    Net("dit", (Input((4, 16, 16)), Input((256,)), Input((64, 16))),
        {"cpu": (16,), "cuda": (512,)}),
)}  # fmt: skip


def __getattr__(name: str) -> Callable[[], tuple[Any, tuple[Any, ...]]]:
    """A network by name, as a function that returns it with its arguments (``Net.model``)."""
    if name not in NETS:
        raise AttributeError(name)
    return NETS[name].traced


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
