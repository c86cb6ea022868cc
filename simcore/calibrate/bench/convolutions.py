"""Benchmarks of convolutions: forward, data gradient and weight gradient, in both layouts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final, NamedTuple

from simcore.base.units import GIGA
from simcore.calibrate.bench.case import (
    BRIEF_S,
    FAMILIES,
    Case,
    Columns,
    Device,
    Run,
    World,
    one_pass,
    shapes,
    tensor_options,
)


class Conv(NamedTuple):
    """A convolution of square images with padding ``size // 2``; ``hw`` is height and width."""

    batch: int
    cin: int
    cout: int
    size: int
    hw: int
    stride: int
    groups: int = 1

    @property
    def flop(self) -> float:
        """FLOP of the forward pass."""
        depth = self.cin // self.groups * self.size**2
        return 2.0 * self.batch * self.out**2 * self.cout * depth

    @property
    def out(self) -> int:
        """Height and width of the output."""
        return (self.hw + 2 * (self.size // 2) - self.size) // self.stride + 1


#: Stems, 3x3, 1x1, stride 2, in sizes that a host does in reasonable time.
ON_HOST: Final = shapes(
    "8x3x48x3x48x1 8x3x64x7x64x2 8x24x24x3x40x1 8x48x48x3x28x1 "
    "8x48x96x3x28x2 8x96x96x3x20x1 8x96x192x1x20x1 8x160x160x3x12x1 "
    "8x192x384x3x14x2 4x256x256x3x10x1 4x256x512x1x14x2 16x64x64x1x24x1 "
)
#: Those of residual and U-shaped nets as a GPU trains them.
ON_GPU: Final = shapes(
    "64x3x64x7x224x2 64x64x64x3x56x1 64x64x256x1x56x1 64x256x64x1x56x1 64x128x128x3x56x2 "
    "64x256x512x1x56x2 64x128x128x3x28x1 64x512x128x1x28x1 64x256x256x3x14x1 64x1024x256x1x14x1 "
    "64x512x512x3x7x1 64x2048x512x1x7x1 8x64x64x3x256x1 16x320x320x3x32x1 "
)
#: Depthwise ones: (batch, channels, kernel, height and width, stride).
DEPTHWISE: Final = shapes("64x96x3x112x2 64x144x3x56x1 64x240x5x28x1 64x672x5x14x1 ")
#: Most FLOP of a forward pass on a host.
MOST_ON_HOST: Final = 1.5 * GIGA
#: Passes on a host, and on a GPU, which runs the two gradients as kernels of their own.
PASSES: Final = {"cpu": ("fwd", "bwd"), "cuda": ("fwd", "dgrad", "wgrad")}
LAYOUTS: Final = {"cpu": ("nchw",), "cuda": ("nchw", "channels_last")}
#: Seconds for a case with warm caches on a host.
WARM_S: Final = 0.05
#: Pass -> which gradients ``convolution_backward`` returns: of the input, weight and bias.
_GRADIENTS: Final = {"dgrad": (True, False, False), "wgrad": (False, True, False)}


def convolution(dtype: str, shape: Conv, way: str, layout: str, device: Device) -> Run:
    """One pass of a convolution; ``bwd`` has both gradients."""
    import torch

    made = tensor_options(torch, dtype, device)
    kept: Any = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    x = torch.randn(shape.batch, shape.cin, shape.hw, shape.hw, **made)
    w = torch.randn(shape.cout, shape.cin // shape.groups, shape.size, shape.size, **made)
    x, w = (t.contiguous(memory_format=kept).requires_grad_() for t in (x, w))
    stride, pad = shape.stride, shape.size // 2
    forward = partial(
        torch.nn.functional.conv2d, x, w, stride=stride, padding=pad, groups=shape.groups
    )
    if way not in _GRADIENTS:
        return one_pass(torch, forward, (x, w), way)
    g = torch.randn_like(forward())  # of the layout that forward gives
    x, w = x.detach(), w.detach()
    return lambda: torch.ops.aten.convolution_backward(
        g, x, w, None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], shape.groups,
        _GRADIENTS[way],
    )  # fmt: skip


def _shapes_of(device: Device) -> list[Conv]:
    if device.kind == "cpu":
        return [s for s in (Conv(*s) for s in ON_HOST) if s.flop <= MOST_ON_HOST]
    depthwise = [Conv(b, c, c, size, hw, stride, c) for b, c, size, hw, stride in DEPTHWISE]
    return [*(Conv(*s) for s in ON_GPU), *depthwise]


@FAMILIES.register("conv")
def conv_cases(device: Device, world: World) -> Iterable[Case]:
    """Every shape by dtype, layout and pass; on a host also with warm caches.

    A step meets both states there: the operands of a convolution may just have been written.
    """
    kinds = [
        (dtype, layout, way) for dtype in device.dtypes for layout in LAYOUTS[device.kind]
        for way in PASSES[device.kind]
    ]  # fmt: skip
    for shape in _shapes_of(device):
        for dtype, layout, way in kinds:
            columns: Columns = {
                "gpu": device.name, "dtype": dtype, "batch": shape.batch, "cin": shape.cin,
                "cout": shape.cout, "kernel_size": shape.size, "in_hw": shape.hw,
                "stride": shape.stride, "pad": shape.size // 2, "pass": way,
            }  # fmt: skip
            if device.kind != "cpu":
                columns |= {"groups": shape.groups, "layout": layout}
            prepare = partial(convolution, dtype, shape, way, layout)
            yield Case("conv", "conv", columns, prepare, cold=True, seconds=BRIEF_S[device.kind],
                       how="queue")  # fmt: skip
            if device.kind == "cpu":
                yield Case("conv", "conv", columns, prepare, seconds=WARM_S)
