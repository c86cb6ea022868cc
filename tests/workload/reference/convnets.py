"""Compact image classifiers after their papers: ResNeXt, SE, EfficientNet, VGG, AlexNet."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def unit(cin: int, cout: int, kernel: int, stride: int, groups: int, act: nn.Module | None):  # type: ignore[no-untyped-def]
    layers = [
        nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(cout),
    ]
    return nn.Sequential(*layers, *([act] if act else []))


class SqueezeExcite(nn.Module):
    def __init__(self, c: int, width: int, act: nn.Module) -> None:
        super().__init__()
        self.reduce, self.act, self.expand = nn.Conv2d(c, width, 1), act, nn.Conv2d(width, c, 1)

    def forward(self, x: Tensor) -> Tensor:
        s = self.act(self.reduce(x.mean((2, 3), keepdim=True)))
        return x * torch.sigmoid(self.expand(s))


class Bottleneck(nn.Module):
    def __init__(self, cin: int, width: int, cout: int, stride: int, groups: int, se: int) -> None:
        super().__init__()
        relu = nn.ReLU(inplace=True)
        self.body = nn.Sequential(
            unit(cin, width, 1, 1, 1, relu),
            unit(width, width, 3, stride, groups, relu),
            unit(width, cout, 1, 1, 1, None),
            *([SqueezeExcite(cout, se, relu)] if se else []),
        )
        self.down = unit(cin, cout, 1, stride, 1, None) if stride != 1 or cin != cout else None
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        return self.relu(y + (x if self.down is None else self.down(x)))


class ResNeXt(nn.Module):
    def __init__(
        self, layers: tuple[int, ...], groups: int, per_group: int, se: bool = False,
        se_width: int = 0, classes: int = 1000,
    ) -> None:  # fmt: skip
        super().__init__()
        parts: list[nn.Module] = [unit(3, 64, 7, 2, 1, nn.ReLU(True)), nn.MaxPool2d(3, 2, 1)]
        cin = 64
        for stage, count in enumerate(layers):
            width, cout = (64 << stage) * groups * per_group // 64, 256 << stage
            squeezed = (se_width or cout // 16) if se else 0
            for i in range(count):
                stride = 2 if stage and not i else 1
                parts.append(Bottleneck(cin, width, cout, stride, groups, squeezed))
                cin = cout
        self.body, self.fc = nn.Sequential(*parts), nn.Linear(cin, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.body(x).mean((2, 3)))


EFFICIENT = (
    (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1),
)  # fmt: skip
MOBILE = (
    (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 3, 2, 32, 3), (6, 3, 2, 64, 4),
    (6, 3, 1, 96, 3), (6, 3, 2, 160, 3), (6, 3, 1, 320, 1),
)  # fmt: skip

EFFICIENT_V2 = (
    (1, 3, 1, 24, 2), (4, 3, 2, 48, 4), (4, 3, 2, 64, 4), (4, 3, 2, 128, 6),
    (6, 3, 1, 160, 9), (6, 3, 2, 256, 15),
)  # fmt: skip


def round8(width: float) -> int:
    out = max(8, int(width + 4) // 8 * 8)
    return out + 8 if out < 0.9 * width else out


class Inverted(nn.Module):
    def __init__(
        self, cin: int, expand: int, kernel: int, stride: int, cout: int, act: type[nn.Module],
        se: str,
    ) -> None:  # fmt: skip
        super().__init__()
        inner = cin * expand
        parts = [unit(cin, inner, 1, 1, 1, act())] if expand != 1 else []
        parts.append(unit(inner, inner, kernel, stride, inner, act()))
        if se != "none":
            parts.append(SqueezeExcite(inner, (inner if se == "wide" else cin) // 4, nn.SiLU()))
        parts.append(unit(inner, cout, 1, 1, 1, None))
        self.body, self.short = nn.Sequential(*parts), stride == 1 and cin == cout

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + x if self.short else self.body(x)


class Fused(nn.Module):
    def __init__(self, cin: int, expand: int, kernel: int, stride: int, cout: int) -> None:
        super().__init__()
        if expand == 1:
            self.body = unit(cin, cout, kernel, stride, 1, nn.SiLU())
        else:
            inner = cin * expand
            self.body = nn.Sequential(
                unit(cin, inner, kernel, stride, 1, nn.SiLU()), unit(inner, cout, 1, 1, 1, None)
            )
        self.short = stride == 1 and cin == cout

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + x if self.short else self.body(x)


class InplaceReLU(nn.ReLU):
    def __init__(self) -> None:
        super().__init__(inplace=True)


class InvertedNet(nn.Module):
    def __init__(
        self, rows: tuple[tuple[int, ...], ...], width: float, depth: float, act: type[nn.Module],
        se: str, classes: int = 1000, stem: int = 32, fused: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        cin = round8(stem * width)
        parts: list[nn.Module] = [unit(3, cin, 3, 2, 1, act())]
        for stage, (expand, kernel, stride, channels, repeats) in enumerate(rows):
            for i in range(math.ceil(repeats * depth)):
                cout, step = round8(channels * width), 1 if i else stride
                if stage < fused:
                    parts.append(Fused(cin, expand, kernel, step, cout))
                else:
                    parts.append(Inverted(cin, expand, kernel, step, cout, act, se))
                cin = cout
        top = round8(1280 * max(1.0, width))
        parts.append(unit(cin, top, 1, 1, 1, act()))
        self.body, self.fc = nn.Sequential(*parts), nn.Linear(top, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.native_dropout(self.body(x).mean((2, 3)), 0.2, True)[0])


class Drop(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.native_dropout(x, 0.5, True)[0]


class VGG(nn.Module):
    def __init__(
        self, widths: tuple[tuple[int, ...], ...], image: int, classes: int = 1000,
        batch_norm: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        parts: list[nn.Module] = []
        cin = 3
        for stage in widths:
            for width in stage:
                norm = [nn.BatchNorm2d(width)] if batch_norm else []
                parts += [nn.Conv2d(cin, width, 3, 1, 1), *norm, nn.ReLU(True)]
                cin = width
            parts.append(nn.MaxPool2d(2, 2))
        flat = cin * (image >> len(widths)) ** 2
        self.body = nn.Sequential(*parts)
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(flat, 4096), nn.ReLU(True), Drop(),
            nn.Linear(4096, 4096), nn.ReLU(True), Drop(), nn.Linear(4096, classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class AlexNet(nn.Module):
    def __init__(self, image: int = 224, classes: int = 1000) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(True), nn.MaxPool2d(3, 2),
            nn.Conv2d(64, 192, 5, 1, 2), nn.ReLU(True), nn.MaxPool2d(3, 2),
            nn.Conv2d(192, 384, 3, 1, 1), nn.ReLU(True), nn.Conv2d(384, 256, 3, 1, 1),
            nn.ReLU(True), nn.Conv2d(256, 256, 3, 1, 1), nn.ReLU(True), nn.MaxPool2d(3, 2),
        )  # fmt: skip
        side = (image + 4 - 11) // 4 + 1
        for _ in range(3):
            side = (side - 3) // 2 + 1
        flat = 256 * side**2
        self.head = nn.Sequential(
            nn.Flatten(), Drop(), nn.Linear(flat, 4096), nn.ReLU(True), Drop(),
            nn.Linear(4096, 4096), nn.ReLU(True), nn.Linear(4096, classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))
