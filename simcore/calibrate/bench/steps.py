"""Benchmarks of whole training steps of reference networks.

They show whether the ops add up, and effects that no single op shows. Two multipliers are fitted
to them. Each is also predicted by a fit without it: the remaining error is the one to expect of a
calibrated prediction for another network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from simcore.calibrate.bench.case import FAMILIES, Case, Columns, Device, Prepare, Run, World
from simcore.calibrate.training import NETS, Net, step_of

PLACE: Final = "simcore.calibrate.bench.steps"


def _net(name: str, batches: dict[str, tuple[int, ...]]) -> Callable[[Any], Any]:
    def add(parts: Callable[[], tuple[Callable[[], Any], Callable[[int], tuple[Any, ...]]]]) -> Any:
        build, inputs = parts()
        net = Net(name, build, inputs, batches, PLACE)
        NETS.register(name)(net)
        return net.traced

    return add


def _mean_square(torch: Any) -> Any:
    class MeanSquare(torch.nn.Module):  # type: ignore[misc]
        """A network whose loss is the mean of the squared output of ``body``."""

        def __init__(self, body: Any) -> None:
            super().__init__()
            self.body = body

        def forward(self, x: Any) -> Any:
            return self.body(x).square().mean()

    return MeanSquare


def _residual(torch: Any) -> Any:
    class Residual(torch.nn.Module):  # type: ignore[misc]
        """A residual block: x + inner(x)."""

        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return x + self.inner(x)

    return Residual


@_net("reference_dense", {"cpu": (160, 640), "cuda": (2048, 8192)})
def reference_dense() -> Any:
    """Residual blocks of layer norm, linear layer, GELU, linear layer."""

    def build() -> Any:
        import torch
        from torch import nn

        residual, mean_square = _residual(torch), _mean_square(torch)
        blocks = [
            residual(nn.Sequential(nn.LayerNorm(448), nn.Linear(448, 896), nn.GELU(),
                                   nn.Linear(896, 448)))
            for _ in range(4)
        ]  # fmt: skip
        return mean_square(nn.Sequential(*blocks))

    def inputs(batch: int) -> tuple[Any, ...]:
        import torch

        return (torch.randn(batch, 448),)

    return build, inputs


@_net("reference_conv", {"cpu": (8, 24), "cuda": (128, 512)})
def reference_conv() -> Any:
    """A plain stack of convolutions, batch norms and ReLUs."""

    def build() -> Any:
        import torch
        from torch import nn

        layers: list[Any] = []
        for cin, cout, stride in ((3, 24, 1), (24, 48, 2), (48, 48, 1), (48, 96, 2), (96, 96, 1)):
            layers += [nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout),
                       nn.ReLU()]  # fmt: skip
        return _mean_square(torch)(nn.Sequential(*layers))

    def inputs(batch: int) -> tuple[Any, ...]:
        import torch

        return (torch.randn(batch, 3, 40, 40),)

    return build, inputs


def _attention_net() -> Any:
    import torch
    from torch import nn

    class Attention(nn.Module):  # type: ignore[misc]
        """Layer norm, fused multi-head attention, output projection."""

        def __init__(self, hidden: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.norm = nn.LayerNorm(hidden)
            self.qkv = nn.Linear(hidden, 3 * hidden)
            self.out = nn.Linear(hidden, hidden)

        def forward(self, x: Any) -> Any:
            b, s, h = x.shape
            q, k, v = (
                t.view(b, s, self.heads, h // self.heads).transpose(1, 2)
                for t in self.qkv(self.norm(x)).chunk(3, -1)
            )
            y = nn.functional.scaled_dot_product_attention(q, k, v)
            return self.out(y.transpose(1, 2).reshape(b, s, h))

    class Reader(nn.Module):  # type: ignore[misc]
        """A language model: embedding, two attention blocks, logits, cross-entropy loss."""

        def __init__(self) -> None:
            super().__init__()
            residual = _residual(torch)
            self.table = nn.Embedding(1200, 192)
            mix = [
                residual(m)
                for _ in range(2)
                for m in (
                    Attention(192, 6),
                    nn.Sequential(nn.LayerNorm(192), nn.Linear(192, 576), nn.SiLU(),
                                  nn.Linear(576, 192)),
                )
            ]  # fmt: skip
            self.body = nn.Sequential(*mix)
            self.head = nn.Linear(192, 1200)

        def forward(self, tokens: Any) -> Any:
            scores = self.head(self.body(self.table(tokens)))
            return nn.functional.cross_entropy(scores.flatten(0, 1), tokens.flatten())

    return Reader()


@_net("reference_attention", {"cpu": (4, 12), "cuda": (64, 256)})
def reference_attention() -> Any:
    """A language model with embedding, attention, SiLU and logits."""

    def inputs(batch: int) -> tuple[Any, ...]:
        import torch

        return (torch.randint(0, 1200, (batch, 96)),)

    return _attention_net, inputs


REFERENCES: Final = ("reference_dense", "reference_conv", "reference_attention")


def _prepare(net: Net, batch: int, kind: str) -> Prepare:
    def prepare(device: Device) -> Run:
        return step_of(net, batch, kind, device.kind)

    return prepare


@FAMILIES.register("steps")
def cases(device: Device, world: World) -> Iterable[Case]:
    """Every reference network at both batch sizes, on one rank and with DDP on all ranks."""
    for name in REFERENCES:
        net = NETS[name]
        for batch in net.batches[device.kind]:
            columns: Columns = {"gpu": device.name, "net": name, "batch": batch}
            yield Case("steps", "steps", {**columns, "ranks": 1, "strategy": "single"},
                       _prepare(net, batch, "single"), seconds=1.2, first=True)  # fmt: skip
            if world.size > 1:
                yield Case("steps", "steps",
                           {**columns, "ranks": world.size, "strategy": "ddp"},
                           _prepare(net, batch, "ddp"), mode="lockstep", seconds=1.5)  # fmt: skip
