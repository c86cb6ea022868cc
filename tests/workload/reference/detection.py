"""The dense parts of detectors: SSD300, and ResNet-50 with a feature pyramid under two heads."""

from __future__ import annotations

from collections.abc import Callable

import torch
from reference.convnets import Bottleneck, unit
from torch import Tensor, nn
from torch.nn import functional as F

_EXTRA = ((512, 256, 2, 1), (512, 256, 2, 1), (256, 128, 2, 1), (256, 128, 1, 0), (256, 128, 1, 0))
_BOXES = (4, 6, 6, 6, 4, 4)


def _valid(cin: int, cout: int, stride: int, pad: int) -> nn.Sequential:
    conv = nn.Conv2d(cin, cout, 3, stride, pad, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(cout), nn.ReLU(True))


class SSD300(nn.Module):
    def __init__(self, classes: int = 81) -> None:
        super().__init__()
        parts: list[nn.Module] = [unit(3, 64, 7, 2, 1, nn.ReLU(True)), nn.MaxPool2d(3, 2, 1)]
        cin = 64
        for stage, count in enumerate((3, 4, 6)):
            for i in range(count):
                stride = 2 if stage == 1 and not i else 1
                parts.append(Bottleneck(cin, 64 << stage, 256 << stage, stride, 1, 0))
                cin = 256 << stage
        self.body, self.extra, maps = nn.Sequential(*parts), nn.ModuleList(), [cin]
        for cout, between, stride, pad in _EXTRA:
            first = unit(cin, between, 1, 1, 1, nn.ReLU(True))
            self.extra.append(nn.Sequential(first, _valid(between, cout, stride, pad)))
            cin = cout
            maps.append(cin)
        pairs = list(zip(maps, _BOXES, strict=True))
        self.location = nn.ModuleList(nn.Conv2d(c, 4 * n, 3, 1, 1) for c, n in pairs)
        self.confidence = nn.ModuleList(nn.Conv2d(c, classes * n, 3, 1, 1) for c, n in pairs)
        self.classes = classes

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        maps = [self.body(x)]
        for extra in self.extra:
            maps.append(extra(maps[-1]))
        n = x.shape[0]
        boxes = [f(m).reshape(n, 4, -1) for f, m in zip(self.location, maps, strict=True)]
        scores = [
            f(m).reshape(n, self.classes, -1) for f, m in zip(self.confidence, maps, strict=True)
        ]
        return torch.cat(boxes, 2), torch.cat(scores, 2)


def focal_loss(scores: Tensor, targets: Tensor) -> Tensor:
    """Lin et al. 2017 of plain operators, gamma 2 and alpha 0.25, of the scores that count."""
    scores = scores[torch.ones(scores.shape[0], dtype=torch.bool)]
    p = torch.sigmoid(scores)
    cross = F.binary_cross_entropy_with_logits(scores, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    alpha = 0.25 * targets + 0.75 * (1 - targets)
    return (alpha * (cross * (1 - p_t) ** 2)).sum()


class Evaluated(nn.BatchNorm2d):
    """BatchNorm that stays with its statistics, whatever its module's mode."""

    def train(self, mode: bool = True) -> Evaluated:
        return super().train(False)


class Constant(nn.Module):
    """BatchNorm with fixed statistics: scale and shift."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(1, c, 1, 1))
        self.register_buffer("shift", torch.zeros(1, c, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.shift


Norm = Callable[[int], nn.Module]


def _layer(
    cin: int, cout: int, kernel: int, stride: int, relu: bool, norm: Norm = Constant
) -> nn.Sequential:
    conv = nn.Conv2d(cin, cout, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, norm(cout), *([nn.ReLU(True)] if relu else []))


class Unit(nn.Module):
    def __init__(self, cin: int, width: int, stride: int, norm: Norm = Constant) -> None:
        super().__init__()
        cout = 4 * width
        self.body = nn.Sequential(
            _layer(cin, width, 1, 1, True, norm), _layer(width, width, 3, stride, True, norm),
            _layer(width, cout, 1, 1, False, norm),
        )  # fmt: skip
        cut = stride != 1 or cin != cout
        self.down = _layer(cin, cout, 1, stride, False, norm) if cut else None

    def forward(self, x: Tensor) -> Tensor:
        return F.relu_(self.body(x) + (x if self.down is None else self.down(x)))


class Pyramid(nn.Module):
    """ResNet-50 of fixed statistics, stem and first stage frozen; levels from ``first`` on."""

    def __init__(self, first: int, norm: Norm = Constant) -> None:
        super().__init__()
        self.stem = nn.Sequential(_layer(3, 64, 7, 2, True, norm), nn.MaxPool2d(3, 2, 1))
        self.stages, cin = nn.ModuleList(), 64
        for stage, count in enumerate((3, 4, 6, 3)):
            units = []
            for i in range(count):
                units.append(Unit(cin, 64 << stage, 2 if stage and not i else 1, norm))
                cin = 256 << stage
            self.stages.append(nn.Sequential(*units))
        for p in (*self.stem.parameters(), *self.stages[0].parameters()):
            p.requires_grad_(False)
        widths = (256, 512, 1024, 2048)[first:]
        self.first = first
        self.lateral = nn.ModuleList(nn.Conv2d(c, 256, 1) for c in widths)
        self.output = nn.ModuleList(nn.Conv2d(256, 256, 3, 1, 1) for _ in widths)

    def forward(self, x: Tensor) -> list[Tensor]:
        x, maps = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        lateral = [f(m) for f, m in zip(self.lateral, maps[self.first :], strict=True)]
        summed = [lateral[-1]]
        for finer in reversed(lateral[:-1]):
            up = F.interpolate(summed[0], size=finer.shape[-2:], mode="nearest")
            summed.insert(0, finer + up)
        return [f(m) for f, m in zip(self.output, summed, strict=True)]


class MaskRCNN(nn.Module):
    """Everything but the choice of regions, which come as random tensors of the right shape."""

    def __init__(self, classes: int, masks: bool = True) -> None:
        super().__init__()
        self.pyramid = Pyramid(0)
        self.rpn, self.scores, self.boxes = (
            nn.Conv2d(256, 256, 3, 1, 1), nn.Conv2d(256, 3, 1), nn.Conv2d(256, 12, 1),
        )  # fmt: skip
        self.fc6, self.fc7 = nn.Linear(256 * 49, 1024), nn.Linear(1024, 1024)
        self.which, self.where = nn.Linear(1024, classes), nn.Linear(1024, 4 * classes)
        self.mask = None
        if masks:
            convs = [m for _ in range(4) for m in (nn.Conv2d(256, 256, 3, 1, 1), nn.ReLU(True))]
            self.mask = nn.Sequential(
                *convs,
                nn.ConvTranspose2d(256, 256, 2, 2),
                nn.ReLU(True),
                nn.Conv2d(256, classes, 1),
            )

    def forward(self, x: Tensor, regions: Tensor, positives: Tensor) -> list[Tensor]:
        levels = self.pyramid(x)
        levels.append(F.max_pool2d(levels[-1].detach(), 1, 2))
        out = []
        for level in levels:
            y = F.relu_(self.rpn(level))
            out += [self.scores(y), self.boxes(y)]
        y = F.relu_(self.fc7(F.relu_(self.fc6(regions.flatten(1)))))
        out += [self.which(y), self.where(y)]
        if self.mask is not None:
            out.append(self.mask(positives))
        return out


class RetinaNet(nn.Module):
    def __init__(self, classes: int, norm: Norm = Constant) -> None:
        super().__init__()
        self.classes = classes
        self.pyramid = Pyramid(1, norm)
        self.p6, self.p7 = nn.Conv2d(256, 256, 3, 2, 1), nn.Conv2d(256, 256, 3, 2, 1)

        def head(out: int) -> nn.Sequential:
            convs = [m for _ in range(4) for m in (nn.Conv2d(256, 256, 3, 1, 1), nn.ReLU(True))]
            return nn.Sequential(*convs, nn.Conv2d(256, out, 3, 1, 1))

        self.heads = nn.ModuleList([head(9 * classes), head(36)])

    def forward(self, x: Tensor) -> list[Tensor]:
        levels = self.pyramid(x)
        levels.append(self.p6(levels[-1]))
        levels.append(self.p7(levels[-1]))
        return [head(level) for level in levels for head in self.heads]

    def losses(self, x: Tensor, targets: Tensor) -> Tensor:
        """Of one image with as many objects a class and anchor as ``targets`` says."""
        made = self(x)
        scores = [y.view(9, self.classes, -1).permute(2, 0, 1).flatten(0, 1) for y in made[::2]]
        return (
            focal_loss(torch.cat(scores), targets)
            + torch.stack([y.sum() for y in made[1::2]]).sum()
        )
