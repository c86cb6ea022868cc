"""ResNet after He et al. 2015, stride in the 3x3 of the bottleneck (the "v1.5" in common use)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def _conv(cin: int, cout: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(cin, cout, kernel, stride, kernel // 2, bias=False)


class Unit(nn.Module):
    def __init__(self, cin: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        out = width * (4 if bottleneck else 1)
        if bottleneck:
            shapes = [(cin, width, 1, 1), (width, width, 3, stride), (width, out, 1, 1)]
        else:
            shapes = [(cin, width, 3, stride), (width, width, 3, 1)]
        self.convs = nn.ModuleList(_conv(*s) for s in shapes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(s[1]) for s in shapes)
        self.relu = nn.ReLU(inplace=True)
        self.down = (
            nn.Sequential(_conv(cin, out, 1, stride), nn.BatchNorm2d(out))
            if stride != 1 or cin != out
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        y = x
        last = len(self.convs) - 1
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            y = norm(conv(y))
            if i < last:
                y = self.relu(y)
        y += x if self.down is None else self.down(x)
        return self.relu(y)


class ResNet(nn.Module):
    def __init__(self, layers: tuple[int, ...], bottleneck: bool, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )  # fmt: skip
        units, cin = [], 64
        for stage, count in enumerate(layers):
            for i in range(count):
                width = 64 << stage
                units.append(Unit(cin, width, 2 if stage and not i else 1, bottleneck))
                cin = width * (4 if bottleneck else 1)
        self.units = nn.Sequential(*units)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(cin, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.flatten(self.pool(self.units(self.stem(x))), 1))
