"""Small nets of many kinds, each with its inputs: what tracing is held against on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from reference.bert import Bert
from reference.diffusion import DiT
from reference.mnist import MnistNet
from reference.resnet import ResNet
from reference.transformer import Gpt2, Llama
from reference.vit import ViT
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class UNet(nn.Module):
    """Two levels down and up with skip connections; group norms, a strided transposed conv."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList(self.stage(width * n, 2 * width * n) for n in (1, 2))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * width * n, width * n, 2, 2) for n in (2, 1))
        self.merge = nn.ModuleList(self.stage(2 * width * n, width * n) for n in (2, 1))
        self.last = nn.Conv2d(width, 3, 1)

    @staticmethod
    def stage(cin: int, cout: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(cin, cout, 3, padding=1), nn.GroupNorm(4, cout), nn.SiLU(),
            nn.Conv2d(cout, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        x, skips = self.first(x), []
        for stage in self.down:
            skips.append(x)
            x = F.max_pool2d(stage(x), 2)
        for up, merge in zip(self.up, self.merge, strict=True):
            x = F.interpolate(x, scale_factor=2.0)
            x = F.avg_pool2d(up(x), 2)
            x = merge(torch.cat([x, skips.pop()], dim=1))
        return self.last(x)


class DenseMixture(nn.Module):
    """Every expert sees every token, weighted by the router: shapes do not depend on data."""

    def __init__(self, width: int = 32, experts: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_MixtureLayer(width, experts) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


class _MixtureLayer(nn.Module):
    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.norm, self.router = nn.LayerNorm(width), nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(experts)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        shares = F.softmax(self.router(y), dim=-1)
        return sum(e(y) * shares[..., i : i + 1] for i, e in enumerate(self.experts))  # type: ignore[return-value]


class Lstm(nn.Module):
    def __init__(self, width: int = 32, vocab: int = 50) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.out = nn.Linear(width, vocab)

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.lstm(self.embed(ids))[0])


class TiedAutoencoder(nn.Module):
    """One matrix used both ways, one frozen layer, one that is never used."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width // 2, width))
        self.frozen = nn.Linear(width, width)
        self.unused = nn.Linear(7, 3)
        self.frozen.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(torch.tanh(F.linear(self.frozen(x), self.weight)), self.weight.t())


class _Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Stack(nn.Module):
    """Residual layers, recomputed in backward or not."""

    def __init__(self, layers: int = 3, width: int = 32, recompute: str = "") -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.layers = nn.ModuleList(_Mlp(width) for _ in range(layers))
        self.recompute = recompute

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.layers:
            if self.recompute:
                x = checkpoint(layer, x, use_reentrant=self.recompute == "reentrant")
            else:
                x = layer(x)
        return x


class Autocast(nn.Module):
    """A model that sets its own widths."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Stack(2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return self.body(x)


def llama() -> nn.Module:
    """Llama with torch's own RMSNorm, which has a gradient."""
    model = Llama(2, 32, 4, 2, 80, 60)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child).__name__ == "RmsNorm":
                setattr(module, name, nn.RMSNorm(32, eps=1e-6))
    return model


class ProjectedSum(nn.Module):
    """A tensor that is a plain attribute, and an in-place activation."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.ones(24)
        self.layers = nn.Sequential(nn.Linear(24, 24), nn.ReLU(inplace=True), nn.Linear(24, 24))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x * self.scale)


@dataclass(frozen=True)
class Net:
    """How to build a net and its inputs at a batch."""

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Tensor, ...]]
    options: dict[str, Any] = field(default_factory=dict)


def _image(size: int) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda b: (torch.randn(b, 3, size, size),)


def _ids(length: int, vocab: int) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda b: (torch.randint(0, vocab, (b, length)),)


def _rows(width: int) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda b: (torch.randn(b, 6, width),)


def _bert_inputs(b: int) -> tuple[Tensor, ...]:
    ids = torch.randint(0, 60, (b, 16))
    return ids, torch.zeros_like(ids), torch.ones_like(ids)


NETS = (
    Net("resnet-50", lambda: ResNet((3, 4, 6, 3), True, 10), _image(32)),
    Net("resnet-18", lambda: ResNet((2, 2, 2, 2), False, 10), _image(32)),
    Net("mnist", MnistNet, lambda b: (torch.randn(b, 1, 28, 28),)),
    Net("unet", UNet, _image(16)),
    Net("vit", lambda: ViT(2, 32, 4, 64, image=32, patch=8, classes=10), _image(32)),
    Net("bert", lambda: Bert(2, 32, 4, 64, vocab=60, positions=32), _bert_inputs),
    Net("gpt2", lambda: Gpt2(2, 32, 4, 60, 32), _ids(16, 60)),
    Net("gpt2-math", lambda: Gpt2(2, 32, 4, 60, 32, flash=False), _ids(16, 60)),
    Net("llama-gqa", llama, _ids(16, 60)),
    Net(
        "dit", lambda: DiT(2, 32, 4, latent=8, classes=5),
        lambda b: (torch.randn(b, 4, 8, 8), torch.zeros(b), torch.zeros(b, dtype=torch.long)),
    ),
    Net("mixture", DenseMixture, _rows(32)),
    Net("lstm", Lstm, _ids(6, 50)),
    Net("tied", TiedAutoencoder, _rows(48)),
    Net("stack", Stack, _rows(32)),
    Net("checkpoint", lambda: Stack(recompute="plain"), _rows(32)),
    Net("checkpoint-reentrant", lambda: Stack(recompute="reentrant"), _rows(32)),
    Net("autocast", lambda: Stack(2), _rows(32), {"autocast": "bf16"}),
    Net("own-autocast", Autocast, _rows(32)),
    Net("attribute", ProjectedSum, lambda b: (torch.randn(b, 24),)),
)  # fmt: skip
BY_NAME = {n.name: n for n in NETS}
