"""Benchmarks of convolutions in PyTorch's default layout (NCHW), forward and backward."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from simcore.base.units import GIGA
from simcore.calibrate.bench.case import (
    FAMILIES,
    Case,
    Columns,
    Device,
    Prepare,
    Run,
    World,
    of_dtype,
    set_tf32,
    shapes,
)

#: (batch, channels in, out, kernel, height and width, stride): stems, 3x3, 1x1, stride 2.
SHAPES: Final = shapes(
    "8x3x48x3x48x1 8x3x64x7x64x2 8x24x24x3x40x1 8x48x48x3x28x1 "
    "8x48x96x3x28x2 8x96x96x3x20x1 8x96x192x1x20x1 8x160x160x3x12x1 "
    "8x192x384x3x14x2 4x256x256x3x10x1 4x256x512x1x14x2 16x64x64x1x24x1 "
    "32x3x64x7x224x2 32x64x64x3x56x1 32x256x128x1x56x1 32x256x256x3x14x1 "
    "64x512x512x3x7x1 "
)
#: Forward FLOP of the largest and of the smallest case, by kind of device.
LARGEST: Final = {"cpu": 1.5 * GIGA, "cuda": 1e3 * GIGA}
SMALLEST: Final = {"cpu": 0.0, "cuda": 2.0 * GIGA}


def flop_of(b: int, cin: int, cout: int, size: int, hw: int, stride: int) -> float:
    """Forward FLOP of a convolution with padding ``size // 2``; ``hw`` is height and width."""
    out = (hw + 2 * (size // 2) - size) // stride + 1
    return 2.0 * b * out * out * cout * cin * size * size


def _prepare(dtype: str, shape: tuple[int, ...], back: bool) -> Prepare:
    b, cin, cout, size, hw, stride = shape

    def prepare(device: Device) -> Run:
        import torch

        set_tf32(torch, dtype)
        made = {"dtype": of_dtype(torch, dtype), "device": device.kind}
        x = torch.randn(b, cin, hw, hw, **made).requires_grad_()
        w = torch.randn(cout, cin, size, size, **made).requires_grad_()
        conv = torch.nn.functional.conv2d

        def forward() -> None:
            conv(x, w, stride=stride, padding=size // 2)

        if not back:
            return forward
        y = conv(x, w, stride=stride, padding=size // 2)
        g = torch.randn_like(y)

        def backward() -> None:
            torch.autograd.grad(y, (x, w), g, retain_graph=True)

        return backward

    return prepare


@FAMILIES.register("conv")
def cases(device: Device, world: World) -> Iterable[Case]:
    """Every shape in range: the forward pass, and a backward pass with both gradients."""
    for dtype in device.dtypes:
        for shape in SHAPES:
            b, cin, cout, size, hw, stride = shape
            if not SMALLEST[device.kind] <= flop_of(*shape) <= LARGEST[device.kind]:
                continue
            for way in ("fwd", "bwd"):
                columns: Columns = {"gpu": device.name, "dtype": dtype, "batch": b, "cin": cin,
                           "cout": cout, "kernel_size": size, "in_hw": hw, "stride": stride,
                           "pad": size // 2, "pass": way}  # fmt: skip
                yield Case("conv", "conv", columns, _prepare(dtype, shape, way == "bwd"),
                           cold=True)  # fmt: skip
