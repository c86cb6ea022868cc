"""Training scripts in small, as one rank of two or four runs them: real or dry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.checkpoint import checkpoint

WIDTH, VOCABULARY, LENGTH, BATCH = 64, 100, 16, 4


class Layer(nn.Module):
    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, layers: int = 3, recompute: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.recompute = recompute

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        return self.head(x)


class Residual(nn.Module):
    """A basic block of a ResNet, with a convolution in its shortcut."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, out, 3, stride=2, padding=1, bias=False)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.shortcut = nn.Conv2d(width, out, 1, stride=2, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(out) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.norms[1](self.conv2(F.relu(self.norms[0](self.conv1(x)))))
        return F.relu(inner + self.norms[2](self.shortcut(x)))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            Residual(16, 32), Residual(32, 64),
        )  # fmt: skip
        self.head = nn.Linear(64, VOCABULARY)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(images).mean((2, 3)))


def tokens() -> tuple[torch.Tensor, torch.Tensor]:
    return (torch.randint(0, VOCABULARY, (BATCH, LENGTH)),
            torch.randint(0, VOCABULARY, (BATCH, LENGTH)))  # fmt: skip


def images() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(BATCH, 3, 16, 16), torch.randint(0, VOCABULARY, (BATCH,))


def train(model: nn.Module, data: Callable[[], Any] = tokens, optimizer: Any = None,
          accumulate: int = 1, clip: bool = False) -> Callable[[], None]:  # fmt: skip
    """A function that runs one step."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters())

    def step() -> None:
        for _ in range(accumulate):
            x, y = data()
            logits = model(x)
            F.cross_entropy(logits.view(-1, VOCABULARY), y.view(-1)).backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    step.model, step.optimizer = model, optimizer  # type: ignore[attr-defined]
    return step


def single() -> Any:
    return train(Net(), clip=True)


def ddp() -> Any:
    return train(nn.parallel.DistributedDataParallel(ResNet()), images)


def accumulated() -> Any:
    return train(nn.parallel.DistributedDataParallel(Net(recompute=True)), accumulate=2)


def zero() -> Any:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(Net())
    return train(model, optimizer=ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW))


def fsdp1() -> Any:
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    policy = ModuleWrapPolicy({Layer})
    return train(
        FullyShardedDataParallel(Net(), auto_wrap_policy=policy, use_orig_params=True,
                                 device_id=torch.device("cpu"))
    )  # fmt: skip


def _sharded(**how: Any) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    model = Net()
    for layer in model.layers:
        fully_shard(layer, **how)
    fully_shard(model, **how)
    return model


def fsdp2() -> Any:
    return train(_sharded(mesh=init_device_mesh("cpu", (dist.get_world_size(),))), clip=True)


def hsdp() -> Any:
    shape = (2, dist.get_world_size() // 2)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
    return train(_sharded(mesh=mesh))


def llama() -> Any:
    from llama import Llama
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    how = {"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)}
    model = Llama(VOCABULARY, recompute=True)
    for layer in model.layers:
        fully_shard(layer, **how)
    return train(fully_shard(model, **how), clip=True)


def tensor(mesh: Any = None) -> Any:
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    model, mesh = Net(), mesh or init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return train(model)


def both() -> Any:
    """FSDP of what tensor ranks have divided."""
    from torch.distributed.fsdp import fully_shard

    shape = (dist.get_world_size() // 2, 2)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "tensor"))
    model = tensor(mesh["tensor"]).model
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["data"])
    return train(fully_shard(model, mesh=mesh["data"]))


def pipeline(ranks: int = 2, per_stage: int = 2) -> Any:
    """Stages of a pipeline, of which each rank beyond ``ranks`` has a copy."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    copies = dist.get_world_size() // ranks
    mesh = init_device_mesh("cpu", (ranks, copies), mesh_dim_names=("pipeline", "data"))
    rank = mesh.get_local_rank("pipeline")
    net = Net(layers=per_stage * ranks)
    layers = list(net.layers)[per_stage * rank : per_stage * (rank + 1)]
    first, last = rank == 0, rank == ranks - 1
    model = nn.Sequential(
        *([net.embedding] if first else []), *layers, *([net.head] if last else [])
    )
    parts = 4
    x = torch.zeros(BATCH // parts, LENGTH, dtype=torch.long)
    between = torch.zeros(BATCH // parts, LENGTH, WIDTH, requires_grad=True)
    out = torch.zeros(BATCH // parts, LENGTH, VOCABULARY) if last else between
    stage = PipelineStage(model, rank, ranks, torch.device("cpu"),
                          input_args=(x if first else between,), output_args=(out,),
                          group=mesh.get_group("pipeline"))  # fmt: skip
    schedule = Schedule1F1B(
        stage, parts, loss_fn=lambda o, y: F.cross_entropy(o.reshape(-1, VOCABULARY), y.reshape(-1))
    )
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        tokens_, labels = tokens()
        schedule.step(*((tokens_,) if first else ()), **({"target": labels} if last else {}))
        optimizer.step()
        optimizer.zero_grad()

    step.model, step.optimizer = model, optimizer  # type: ignore[attr-defined]
    return step


class Experts(nn.Module):
    """A mixture whose experts are on other ranks: tokens go there and come back."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group, self.ranks = group, group.size()
        self.router = nn.Linear(WIDTH, self.ranks, bias=False)
        self.experts = nn.ModuleList([Layer()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.distributed._functional_collectives import all_to_all_single_autograd

        tokens_ = x.flatten(0, 1)
        weight, order = self.router(tokens_).softmax(-1).max(-1)
        here = all_to_all_single_autograd(tokens_[order.argsort()], None, None, self.group)
        back = all_to_all_single_autograd(self.experts[0](here), None, None, self.group)
        return x + (back * weight[:, None]).view(x.shape)


def experts() -> Any:
    """Experts on groups of half of the ranks, with gradients averaged by hand."""
    shape = (2, dist.get_world_size() // 2)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "expert"))
    net = Net()
    net.layers = nn.ModuleList(Experts(mesh.get_group("expert")) for _ in range(3))
    optimizer = torch.optim.AdamW(net.parameters())

    def step() -> None:
        x, y = tokens()
        F.cross_entropy(net(x).view(-1, VOCABULARY), y.view(-1)).backward()
        for name, p in net.named_parameters():
            group = mesh.get_group("data") if "experts" in name else None
            dist.all_reduce(p.grad, group=group)
        optimizer.step()
        optimizer.zero_grad()

    step.model, step.optimizer = net, optimizer  # type: ignore[attr-defined]
    return step


SETUPS = {
    f.__name__: f
    for f in (single, ddp, accumulated, zero, fsdp1, fsdp2, llama, hsdp, tensor, both, experts,
              pipeline)
}  # fmt: skip
