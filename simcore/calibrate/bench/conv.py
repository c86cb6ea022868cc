"""Convolutions in PyTorch's default layout, forward and backward."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from simcore.base.units import GIGA
from simcore.calibrate.bench.case import FAMILIES, Case, Device, Run, World, of_dtype

#: (batch, channels in, out, kernel, height and width, stride): stems, 3x3, 1x1, stride 2.
SHAPES: Final = (
    (8, 3, 48, 3, 48, 1), (8, 3, 64, 7, 64, 2), (8, 24, 24, 3, 40, 1), (8, 48, 48, 3, 28, 1),
    (8, 48, 96, 3, 28, 2), (8, 96, 96, 3, 20, 1), (8, 96, 192, 1, 20, 1), (8, 160, 160, 3, 12, 1),
    (8, 192, 384, 3, 14, 2), (4, 256, 256, 3, 10, 1), (4, 256, 512, 1, 14, 2), (16, 64, 64, 1, 24, 1),
    (32, 3, 64, 7, 224, 2), (32, 64, 64, 3, 56, 1), (32, 256, 128, 1, 56, 1),
    (32, 256, 256, 3, 14, 1), (64, 512, 512, 3, 7, 1),
)  # fmt: skip
LARGEST: Final = {"cpu": 1.5 * GIGA, "cuda": 1e3 * GIGA}
SMALLEST: Final = {"cpu": 0.0, "cuda": 2.0 * GIGA}


def flop_of(b: int, cin: int, cout: int, size: int, hw: int, stride: int) -> float:
    """Forward FLOP with padding size // 2."""
    out = (hw + 2 * (size // 2) - size) // stride + 1
    return 2.0 * b * out * out * cout * cin * size * size


def _prepare(dtype: str, shape: tuple[int, ...], back: bool) -> object:
    b, cin, cout, size, hw, stride = shape

    def prepare(device: Device) -> Run:
        import torch

        torch.backends.cudnn.allow_tf32 = dtype == "tf32"
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
    """Forward, and both gradients together."""
    for dtype in device.dtypes:
        for shape in SHAPES:
            b, cin, cout, size, hw, stride = shape
            if not SMALLEST[device.kind] <= flop_of(*shape) <= LARGEST[device.kind]:
                continue
            for way in ("fwd", "bwd"):
                columns = {"gpu": device.name, "dtype": dtype, "batch": b, "cin": cin,
                           "cout": cout, "kernel_size": size, "in_hw": hw, "stride": stride,
                           "pad": size // 2, "pass": way}  # fmt: skip
                yield Case("conv", "conv", columns, _prepare(dtype, shape, way == "bwd"),  # type: ignore[arg-type]
                           cold=True)  # fmt: skip
