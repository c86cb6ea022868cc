"""EfficientDet-D0 after its paper and R. Wightman's code, level by level, with named nodes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .convnets import EFFICIENT, InvertedNet


def _norm(c: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(c)


class Separable(nn.Module):
    def __init__(self, cin: int, cout: int, bias: bool = False) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(cin, cin, 3, padding=1, groups=cin, bias=False)
        self.pointwise = nn.Conv2d(cin, cout, 1, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.pointwise(self.depthwise(x))


class Project(nn.Sequential):
    def __init__(self, cin: int) -> None:
        super().__init__(nn.Conv2d(cin, 64, 1, bias=False), _norm(64))


class Fuse(nn.Module):
    """Fast normalised fusion, then SiLU, a separable layer and its norm."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.ones(inputs))
        self.layer, self.norm = Separable(64, 64), _norm(64)

    def forward(self, *parts: Tensor) -> Tensor:
        w = F.relu(self.weights)
        total = torch.sum(w)
        scaled = [(p * w[i]) / (total + 1e-4) for i, p in enumerate(parts)]
        return self.norm(self.layer(F.silu(torch.sum(torch.stack(scaled, dim=-1), dim=-1))))


class Cell(nn.Module):
    """Figure 2 (d) of the paper; ``widths``: channels of P3, P4, P5 as they come in."""

    def __init__(self, widths: tuple[int, int, int] = (64, 64, 64)) -> None:
        super().__init__()
        first = widths[0] != 64
        p3, p4, p5 = widths
        self.down = nn.ModuleList(Fuse(2) for _ in range(4))  # P6, P5, P4, P3
        self.up = nn.ModuleList([Fuse(3), Fuse(3), Fuse(3), Fuse(2)])  # P4, P5, P6, P7
        self.into = nn.ModuleDict(
            {"d5": Project(p5), "d4": Project(p4), "d3": Project(p3),
             "u4": Project(p4), "u5": Project(p5)} if first else {}
        )  # fmt: skip

    def _in(self, key: str, x: Tensor) -> Tensor:
        return self.into[key](x) if key in self.into else x

    def forward(self, p3: Tensor, p4: Tensor, p5: Tensor, p6: Tensor, p7: Tensor) -> list[Tensor]:
        def grow(x: Tensor) -> Tensor:
            return F.interpolate(x, scale_factor=2, mode="nearest")

        def shrink(x: Tensor) -> Tensor:
            return F.max_pool2d(x, 3, 2, 1)

        d6 = self.down[0](p6, grow(p7))
        d5 = self.down[1](self._in("d5", p5), grow(d6))
        d4 = self.down[2](self._in("d4", p4), grow(d5))
        d3 = self.down[3](self._in("d3", p3), grow(d4))
        u4 = self.up[0](self._in("u4", p4), d4, shrink(d3))
        u5 = self.up[1](self._in("u5", p5), d5, shrink(u4))
        u6 = self.up[2](p6, d6, shrink(u5))
        return [d3, u4, u5, u6, self.up[3](p7, shrink(u6))]


class Head(nn.Module):
    def __init__(self, out: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Separable(64, 64) for _ in range(3))
        self.norms = nn.ModuleList(nn.ModuleList(_norm(64) for _ in range(5)) for _ in range(3))
        self.predict = Separable(64, out, bias=True)

    def forward(self, levels: list[Tensor]) -> list[Tensor]:
        out = []
        for i, x in enumerate(levels):
            for layer, norms in zip(self.layers, self.norms, strict=True):
                x = F.silu(norms[i](layer(x)))
            out.append(self.predict(x))
        return out


class EfficientDetD0(nn.Module):
    def __init__(self, classes: int = 90) -> None:
        super().__init__()
        net = InvertedNet(EFFICIENT, 1, 1, nn.SiLU, "narrow")
        self.backbone = net.body[:-1]  # without the layer before the classifier
        self.p6 = Project(320)
        self.cells = nn.ModuleList([Cell((40, 112, 320)), Cell(), Cell()])
        self.scores, self.boxes = Head(9 * classes), Head(36)

    def forward(self, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        maps = []
        for part in self.backbone:
            x = part(x)
            maps.append(x)
        by_width = {m.shape[1]: m for m in maps}
        p6 = F.max_pool2d(self.p6(x), 3, 2, 1)
        levels = [by_width[40], by_width[112], by_width[320], p6, F.max_pool2d(p6, 3, 2, 1)]
        for cell in self.cells:
            levels = cell(*levels)
        return self.scores(levels), self.boxes(levels)


class _LossWithGradient(torch.autograd.Function):
    """A loss whose forward makes and keeps its gradient, as large as the scores."""

    @staticmethod
    def forward(ctx, scores: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(torch.empty_like(scores))
        return scores.sum()

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        return ctx.saved_tensors[0] * grad


def _huber(boxes: Tensor, target: Tensor, delta: float = 0.1) -> Tensor:
    error = boxes - target
    size = error.abs()
    quadratic = torch.clamp(size, max=delta)
    loss = 0.5 * quadratic.pow(2) + delta * (size - quadratic)
    loss *= target != 0.0
    return loss.sum()


def loss(scores: list[Tensor], boxes: list[Tensor]) -> Tensor:
    """Focal and Huber loss of all levels."""
    parts = [_LossWithGradient.apply(s.permute(0, 2, 3, 1).contiguous()) for s in scores]
    last = [b.permute(0, 2, 3, 1) for b in boxes]
    return torch.stack(parts + [_huber(b, torch.ones_like(b)) for b in last]).sum()
