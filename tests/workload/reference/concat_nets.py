"""DenseNet (Huang et al. 2017) and Inception v3 (Szegedy et al. 2016), written from the papers."""

from __future__ import annotations

import torch
from reference.convnets import Drop
from torch import Tensor, nn
from torch.nn import functional as F


def _normed(c: int) -> list[nn.Module]:
    return [nn.BatchNorm2d(c), nn.ReLU(inplace=True)]


class DenseNet(nn.Module):
    def __init__(
        self, layers: tuple[int, ...], growth: int = 32, stem: int = 64, classes: int = 1000
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, stem, 7, 2, 3, bias=False), *_normed(stem), nn.MaxPool2d(3, 2, 1)
        )
        self.blocks, self.between, c = nn.ModuleList(), nn.ModuleList(), stem
        for stage, count in enumerate(layers):
            block = nn.ModuleList()
            for _ in range(count):
                block.append(nn.Sequential(
                    *_normed(c), nn.Conv2d(c, 4 * growth, 1, bias=False),
                    *_normed(4 * growth), nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False),
                ))  # fmt: skip
                c += growth
            after = _normed(c)
            if stage + 1 < len(layers):
                after += [nn.Conv2d(c, c // 2, 1, bias=False), nn.AvgPool2d(2, 2)]
            self.blocks.append(block)
            self.between.append(nn.Sequential(*after))
            c = c // 2 if stage + 1 < len(layers) else c
        self.fc = nn.Linear(c, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block, after in zip(self.blocks, self.between, strict=True):
            parts = [x]
            for layer in block:
                parts.append(layer(torch.cat(parts, 1)))
            x = after(torch.cat(parts, 1))
        return self.fc(x.mean((2, 3)))


def _unit(cin: int, cout: int, kernel: int | tuple[int, int], stride: int = 1, pad: bool = True):  # type: ignore[no-untyped-def]
    size = (kernel, kernel) if isinstance(kernel, int) else kernel
    padding = (size[0] // 2, size[1] // 2) if pad else 0
    return nn.Sequential(nn.Conv2d(cin, cout, size, stride, padding, bias=False), *_normed(cout))


class _Parallel(nn.Module):
    """Branches on one input, side by side in channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([b(x) for b in self.branches], 1)


def _pooled(cin: int, cout: int) -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), _unit(cin, cout, 1))


def _mixed35(cin: int, pool: int) -> nn.Module:
    return _Parallel(
        _unit(cin, 64, 1),
        nn.Sequential(_unit(cin, 48, 1), _unit(48, 64, 5)),
        nn.Sequential(_unit(cin, 64, 1), _unit(64, 96, 3), _unit(96, 96, 3)),
        _pooled(cin, pool),
    )


def _mixed17(c: int) -> nn.Module:
    return _Parallel(
        _unit(768, 192, 1),
        nn.Sequential(_unit(768, c, 1), _unit(c, c, (1, 7)), _unit(c, 192, (7, 1))),
        nn.Sequential(
            _unit(768, c, 1), _unit(c, c, (7, 1)), _unit(c, c, (1, 7)), _unit(c, c, (7, 1)),
            _unit(c, 192, (1, 7)),
        ),
        _pooled(768, 192),
    )  # fmt: skip


def _mixed8(cin: int) -> nn.Module:
    def fork(c: int) -> nn.Module:
        return _Parallel(_unit(c, 384, (1, 3)), _unit(c, 384, (3, 1)))

    return _Parallel(
        _unit(cin, 320, 1),
        nn.Sequential(_unit(cin, 384, 1), fork(384)),
        nn.Sequential(_unit(cin, 448, 1), _unit(448, 384, 3), fork(384)),
        _pooled(cin, 192),
    )


class InceptionV3(nn.Module):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _unit(3, 32, 3, 2, False), _unit(32, 32, 3, 1, False), _unit(32, 64, 3),
            nn.MaxPool2d(3, 2), _unit(64, 80, 1), _unit(80, 192, 3, 1, False), nn.MaxPool2d(3, 2),
            _mixed35(192, 32), _mixed35(256, 64), _mixed35(288, 64),
            _Parallel(
                _unit(288, 384, 3, 2, False),
                nn.Sequential(_unit(288, 64, 1), _unit(64, 96, 3), _unit(96, 96, 3, 2, False)),
                nn.MaxPool2d(3, 2),
            ),
            _mixed17(128), _mixed17(160), _mixed17(160), _mixed17(192),
            _Parallel(
                nn.Sequential(_unit(768, 192, 1), _unit(192, 320, 3, 2, False)),
                nn.Sequential(
                    _unit(768, 192, 1), _unit(192, 192, (1, 7)), _unit(192, 192, (7, 1)),
                    _unit(192, 192, 3, 2, False),
                ),
                nn.MaxPool2d(3, 2),
            ),
            _mixed8(1280), _mixed8(2048),
        )  # fmt: skip
        self.drop, self.fc = Drop(), nn.Linear(2048, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.drop(F.adaptive_avg_pool2d(self.body(x), 1).flatten(1)))
