"""Networks to train: of calibration, selftest and ``validate.on_gpu``, which has larger ones.

Imports torch: import it only to build one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional


def attend(qkv: Any, heads: int, *, causal: bool) -> Any:
    """Fused attention [batch, sequence, hidden] of queries, keys and values in one tensor."""
    b, s, width = qkv.shape
    q, k, v = (
        t.reshape(b, s, heads, width // 3 // heads).transpose(1, 2) for t in qkv.chunk(3, -1)
    )
    y = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return y.transpose(1, 2).reshape(b, s, width // 3)


class MeanSquare(nn.Module):  # type: ignore[misc]
    """A network whose loss is the mean of the squared output of ``body``."""

    def __init__(self, body: Any) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Any) -> Any:
        """The loss."""
        return self.body(x).square().mean()


class Residual(nn.Module):  # type: ignore[misc]
    """A residual block: x + inner(x)."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        """The sum."""
        return x + self.inner(x)


def dense() -> Any:
    """Residual blocks of layer norm, linear layer, GELU, linear layer."""
    inner = (
        nn.Sequential(nn.LayerNorm(448), nn.Linear(448, 896), nn.GELU(), nn.Linear(896, 448))
        for _ in range(4)
    )
    return MeanSquare(nn.Sequential(*map(Residual, inner)))


def convolutions() -> Any:
    """A plain stack of convolutions, batch norms and ReLUs."""
    layers: list[Any] = []
    for cin, cout, stride in ((3, 24, 1), (24, 48, 2), (48, 48, 1), (48, 96, 2), (96, 96, 1)):
        convolution = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        layers += [convolution, nn.BatchNorm2d(cout), nn.ReLU()]
    return MeanSquare(nn.Sequential(*layers))


class Attention(nn.Module):  # type: ignore[misc]
    """Layer norm, fused multi-head attention, output projection."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x: Any) -> Any:
        """What attention adds to ``x``."""
        return self.out(attend(self.qkv(self.norm(x)), self.heads, causal=False))


class Reader(nn.Module):  # type: ignore[misc]
    """A language model: embedding, two attention blocks with SiLU, logits, cross-entropy loss."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(1200, 192)
        mix: list[Any] = []
        for _ in range(2):
            mix += [
                Attention(192, 6),
                nn.Sequential(
                    nn.LayerNorm(192), nn.Linear(192, 576), nn.SiLU(), nn.Linear(576, 192)
                ),
            ]
        self.body = nn.Sequential(*map(Residual, mix))
        self.head = nn.Linear(192, 1200)

    def forward(self, tokens: Any) -> Any:
        """The loss."""
        scores = self.head(self.body(self.table(tokens)))
        return functional.cross_entropy(scores.flatten(0, 1), tokens.flatten())


class Mlp(nn.Module):  # type: ignore[misc]
    """A classifier of linear layers and ReLUs, with ``norms`` of layer norms and GELUs."""

    def __init__(
        self, widths: Sequence[int] = (784, 1000, 1000, 500, 10), *, norms: bool = False
    ) -> None:
        super().__init__()
        layers: list[Any] = []
        for a, b in pairwise(widths):
            layers += [nn.Linear(a, b), *([nn.LayerNorm(b), nn.GELU()] if norms else [nn.ReLU()])]
        self.layers = nn.Sequential(*layers[: -2 if norms else -1])

    def forward(self, x: Any, label: Any) -> Any:
        """The loss."""
        return functional.cross_entropy(self.layers(x), label)


class ConvBlock(nn.Module):  # type: ignore[misc]
    """A residual block: two convolutions and a shortcut (He et al. 2016)."""

    def __init__(self, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(cout)
        self.second = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(cout)
        self.short = nn.Conv2d(cin, cout, 1, stride, bias=False) if cin != cout else None

    def forward(self, x: Any) -> Any:
        """The block's output."""
        y = functional.relu(self.norm1(self.first(x)))
        y = self.norm2(self.second(y))
        return functional.relu(y + (self.short(x) if self.short is not None else x))


class ConvNet(nn.Module):  # type: ignore[misc]
    """A small residual network for images of 32 x 32 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()
        )
        self.blocks = nn.Sequential(ConvBlock(32, 32, 1), ConvBlock(32, 64, 2),
                                    ConvBlock(64, 128, 2))  # fmt: skip
        self.head = nn.Linear(128, 10)

    def forward(self, x: Any, label: Any) -> Any:
        """The loss."""
        y = self.blocks(self.stem(x)).mean((2, 3))
        return functional.cross_entropy(self.head(y), label)


class GptLayer(nn.Module):  # type: ignore[misc]
    """A pre-norm layer: causal attention and an MLP."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Any) -> Any:
        """The layer's output."""
        x = x + self.out(attend(self.qkv(self.norm1(x)), self.heads, causal=True))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):  # type: ignore[misc]
    """A language model."""

    def __init__(
        self, hidden: int = 256, vocab: int = 2000, seq: int = 128, layers: int = 3, heads: int = 8
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.places = nn.Parameter(torch.zeros(seq, hidden))
        self.layers = nn.Sequential(*(GptLayer(hidden, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens: Any) -> Any:
        """The loss."""
        x = self.layers(self.tokens(tokens) + self.places)
        scores = self.head(self.norm(x))
        return functional.cross_entropy(scores.flatten(0, 1), tokens.flatten())


class DitLayer(nn.Module):  # type: ignore[misc]
    """Attention and an MLP, shifted, scaled and gated by the condition (adaLN-Zero)."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(hidden, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(hidden, elementwise_affine=False)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.modulation = nn.Linear(hidden, 6 * hidden)

    def forward(self, x: Any, c: Any) -> Any:
        """The layer's output."""
        m = self.modulation(functional.silu(c)).unsqueeze(1)
        shift1, scale1, gate1, shift2, scale2, gate2 = m.chunk(6, -1)
        y = self.norm1(x) * (1 + scale1) + shift1
        x = x + gate1 * self.out(attend(self.qkv(y), self.heads, causal=False))
        y = self.norm2(x) * (1 + scale2) + shift2
        return x + gate2 * self.down(functional.gelu(self.up(y), approximate="tanh"))


class Dit(nn.Module):  # type: ignore[misc]
    """A diffusion transformer on latents of 4 channels (Peebles & Xie 2023)."""

    def __init__(
        self, hidden: int = 240, latent: int = 16, patch: int = 2, layers: int = 3, heads: int = 6
    ) -> None:
        super().__init__()
        self.side, self.cut = latent // patch, patch
        self.patch = nn.Linear(4 * patch * patch, hidden)
        self.places = nn.Parameter(torch.zeros(self.side**2, hidden))
        self.time = nn.Sequential(nn.Linear(256, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.layers = nn.ModuleList(DitLayer(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.last = nn.Linear(hidden, 4 * patch * patch)

    def forward(self, latent: Any, time: Any, noise: Any) -> Any:
        """The loss."""
        b, n, patch = latent.shape[0], self.side, self.cut
        x = latent.view(b, 4, n, patch, n, patch).permute(0, 2, 4, 1, 3, 5)
        x = self.patch(x.reshape(b, n * n, 4 * patch * patch)) + self.places
        c = self.time(time)
        for layer in self.layers:
            x = layer(x, c)
        return functional.mse_loss(self.last(self.norm(x)), noise)


class Recurrent(nn.Module):  # type: ignore[misc]
    """A language model of LSTM layers."""

    def __init__(self, hidden: int = 1000, vocab: int = 10_000, layers: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.layers = nn.LSTM(hidden, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, vocab)

    def forward(self, tokens: Any) -> Any:
        """The loss."""
        scores = self.head(self.layers(self.tokens(tokens))[0])
        return functional.cross_entropy(scores.flatten(0, 1), tokens.flatten())


def _twice(cin: int, cout: int) -> Any:
    """Two convolutions, each with batch norm and ReLU."""
    layers: list[Any] = []
    for a in (cin, cout):
        layers += [nn.Conv2d(a, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):  # type: ignore[misc]
    """A U-shaped network that labels each pixel (Ronneberger et al. 2015)."""

    def __init__(self, width: int = 64, depth: int = 4, classes: int = 2) -> None:
        super().__init__()
        widths = [width * 2**i for i in range(depth + 1)]
        self.down = nn.ModuleList(_twice(a, b) for a, b in pairwise((3, *widths)))
        back = list(reversed(widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in pairwise(back))
        self.join = nn.ModuleList(_twice(a, b) for a, b in pairwise(back))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Any, labels: Any) -> Any:
        """The loss."""
        kept: list[Any] = []
        for i, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for up, join, beside in zip(self.up, self.join, reversed(kept[:-1]), strict=True):
            x = join(torch.cat([beside, up(x)], 1))
        return functional.cross_entropy(self.head(x), labels)


#: Name in ``training.NETS``, or of a job of ``validate.on_gpu`` -> what makes the network.
MAKERS: dict[str, Callable[..., Any]] = {
    "reference_dense": dense, "reference_conv": convolutions, "reference_attention": Reader,
    "mlp": Mlp, "conv": ConvNet, "transformer": Transformer, "dit": Dit,
    "recurrent": Recurrent, "unet": UNet,
}  # fmt: skip
