"""The four networks of the selftest, in no calibration: MLP, conv net, transformer and DiT."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

from simcore.calibrate.training import NETS, Net

PLACE: Final = "simcore.calibrate.selftest_nets"


class _Sizes:
    """The sizes of the networks; they differ from those of the calibration's networks."""

    MLP = (784, 1000, 1000, 500, 10)
    CONV = (32, 64, 128)
    GPT_HIDDEN, GPT_HEADS, GPT_LAYERS, GPT_VOCAB, GPT_SEQ = 256, 8, 3, 2000, 128
    DIT_HIDDEN, DIT_HEADS, DIT_LAYERS, DIT_LATENT, DIT_PATCH = 240, 6, 3, 16, 2


def _mlp() -> Any:
    from torch import nn

    class Mlp(nn.Module):  # type: ignore[misc]
        """A classifier of linear layers and ReLUs."""

        def __init__(self) -> None:
            super().__init__()
            sizes = _Sizes.MLP
            layers: list[Any] = []
            for i, (a, b) in enumerate(pairwise(sizes)):
                layers += [nn.Linear(a, b)] + ([nn.ReLU()] if i < len(sizes) - 2 else [])
            self.layers = nn.Sequential(*layers)

        def forward(self, x: Any, label: Any) -> Any:
            return nn.functional.cross_entropy(self.layers(x), label)

    return Mlp()


def _mlp_inputs(batch: int) -> tuple[Any, ...]:
    import torch

    return torch.randn(batch, _Sizes.MLP[0]), torch.randint(0, _Sizes.MLP[-1], (batch,))


def _conv() -> Any:
    from torch import nn

    class Block(nn.Module):  # type: ignore[misc]
        """A residual block: two convolutions and a shortcut (He et al. 2016)."""

        def __init__(self, cin: int, cout: int, stride: int) -> None:
            super().__init__()
            self.first = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
            self.norm1 = nn.BatchNorm2d(cout)
            self.second = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(cout)
            self.short = nn.Conv2d(cin, cout, 1, stride, bias=False) if cin != cout else None

        def forward(self, x: Any) -> Any:
            y = nn.functional.relu(self.norm1(self.first(x)))
            y = self.norm2(self.second(y))
            return nn.functional.relu(y + (self.short(x) if self.short is not None else x))

    class Conv(nn.Module):  # type: ignore[misc]
        """A small residual network for images of 32 x 32 pixels."""

        def __init__(self) -> None:
            super().__init__()
            a, b, c = _Sizes.CONV
            self.stem = nn.Sequential(nn.Conv2d(3, a, 3, 1, 1, bias=False), nn.BatchNorm2d(a),
                                      nn.ReLU())  # fmt: skip
            self.blocks = nn.Sequential(Block(a, a, 1), Block(a, b, 2), Block(b, c, 2))
            self.head = nn.Linear(c, 10)

        def forward(self, x: Any, label: Any) -> Any:
            y = self.blocks(self.stem(x)).mean((2, 3))
            return nn.functional.cross_entropy(self.head(y), label)

    return Conv()


def _conv_inputs(batch: int) -> tuple[Any, ...]:
    import torch

    return torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))


def _attend(nn: Any, qkv: Any, heads: int, causal: bool) -> Any:
    b, s, width = qkv.shape
    q, k, v = (
        t.reshape(b, s, heads, width // 3 // heads).transpose(1, 2) for t in qkv.chunk(3, -1)
    )
    y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return y.transpose(1, 2).reshape(b, s, width // 3)


def _transformer() -> Any:
    import torch
    from torch import nn

    h = _Sizes.GPT_HIDDEN

    class Layer(nn.Module):  # type: ignore[misc]
        """A pre-norm layer: causal attention and an MLP."""

        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(h), nn.LayerNorm(h)
            self.qkv, self.out = nn.Linear(h, 3 * h), nn.Linear(h, h)
            self.up, self.down = nn.Linear(h, 4 * h), nn.Linear(4 * h, h)

        def forward(self, x: Any) -> Any:
            x = x + self.out(_attend(nn, self.qkv(self.norm1(x)), _Sizes.GPT_HEADS, True))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    class Transformer(nn.Module):  # type: ignore[misc]
        """A language model."""

        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(_Sizes.GPT_VOCAB, h)
            self.places = nn.Parameter(torch.zeros(_Sizes.GPT_SEQ, h))
            self.layers = nn.Sequential(*(Layer() for _ in range(_Sizes.GPT_LAYERS)))
            self.norm = nn.LayerNorm(h)
            self.head = nn.Linear(h, _Sizes.GPT_VOCAB, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.layers(self.tokens(tokens) + self.places)
            scores = self.head(self.norm(x))
            return nn.functional.cross_entropy(scores.flatten(0, 1), tokens.flatten())

    return Transformer()


def _transformer_inputs(batch: int) -> tuple[Any, ...]:
    import torch

    return (torch.randint(0, _Sizes.GPT_VOCAB, (batch, _Sizes.GPT_SEQ)),)


def _dit() -> Any:
    import torch
    from torch import nn

    h, patch = _Sizes.DIT_HIDDEN, _Sizes.DIT_PATCH
    places = (_Sizes.DIT_LATENT // patch) ** 2

    class Layer(nn.Module):  # type: ignore[misc]
        """Attention and an MLP, shifted, scaled and gated by the condition (adaLN-Zero)."""

        def __init__(self) -> None:
            super().__init__()
            self.norm1 = nn.LayerNorm(h, elementwise_affine=False)
            self.norm2 = nn.LayerNorm(h, elementwise_affine=False)
            self.qkv, self.out = nn.Linear(h, 3 * h), nn.Linear(h, h)
            self.up, self.down = nn.Linear(h, 4 * h), nn.Linear(4 * h, h)
            self.modulation = nn.Linear(h, 6 * h)

        def forward(self, x: Any, c: Any) -> Any:
            m = self.modulation(nn.functional.silu(c)).unsqueeze(1)
            shift1, scale1, gate1, shift2, scale2, gate2 = m.chunk(6, -1)
            y = self.norm1(x) * (1 + scale1) + shift1
            x = x + gate1 * self.out(_attend(nn, self.qkv(y), _Sizes.DIT_HEADS, False))
            y = self.norm2(x) * (1 + scale2) + shift2
            return x + gate2 * self.down(nn.functional.gelu(self.up(y), approximate="tanh"))

    class Dit(nn.Module):  # type: ignore[misc]
        """A diffusion transformer on latents (Peebles & Xie 2023)."""

        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Linear(4 * patch * patch, h)
            self.places = nn.Parameter(torch.zeros(places, h))
            self.time = nn.Sequential(nn.Linear(256, h), nn.SiLU(), nn.Linear(h, h))
            self.layers = nn.ModuleList(Layer() for _ in range(_Sizes.DIT_LAYERS))
            self.norm = nn.LayerNorm(h)
            self.last = nn.Linear(h, 4 * patch * patch)

        def forward(self, latent: Any, time: Any, noise: Any) -> Any:
            b, n = latent.shape[0], _Sizes.DIT_LATENT // patch
            x = latent.view(b, 4, n, patch, n, patch).permute(0, 2, 4, 1, 3, 5)
            x = self.patch(x.reshape(b, n * n, 4 * patch * patch)) + self.places
            c = self.time(time)
            for layer in self.layers:
                x = layer(x, c)
            return nn.functional.mse_loss(self.last(self.norm(x)), noise)

    return Dit()


def _dit_inputs(batch: int) -> tuple[Any, ...]:
    import torch

    size, patch = _Sizes.DIT_LATENT, _Sizes.DIT_PATCH
    return (
        torch.randn(batch, 4, size, size),
        torch.randn(batch, 256),
        torch.randn(batch, (size // patch) ** 2, 4 * patch * patch),
    )


def _add(name: str, build: Any, inputs: Any, cpu: int, cuda: int) -> Net:
    net = Net(name, build, inputs, {"cpu": (cpu,), "cuda": (cuda,)}, PLACE)
    NETS.register(name)(net)
    return net


mlp = _add("mlp", _mlp, _mlp_inputs, 256, 16384).traced
conv = _add("conv", _conv, _conv_inputs, 16, 1000).traced
transformer = _add("transformer", _transformer, _transformer_inputs, 8, 256).traced
dit = _add("dit", _dit, _dit_inputs, 16, 512).traced
SELFTEST: Final = ("mlp", "conv", "transformer", "dit")
