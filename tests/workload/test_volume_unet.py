"""U-Nets of volumes against torch modules written out after their sources."""

from __future__ import annotations

import pytest
import torch
from reference import measure
from torch import Tensor, nn

from simcore.workload.archs.layers import LayerList
from simcore.workload.models import MODELS

build, vnet = LayerList("unet_volume"), LayerList("vnet")


class _Level(nn.Module):
    def __init__(self, dims: int, c: int, n: int, stride: int, inplace: bool) -> None:
        super().__init__()
        conv = nn.Conv3d if dims == 3 else nn.Conv2d
        norm = nn.InstanceNorm3d if dims == 3 else nn.InstanceNorm2d

        def act() -> nn.Module:
            return nn.LeakyReLU(0.01, inplace=True) if inplace else nn.ReLU()

        self.body = nn.Sequential(
            conv(c, n, 3, stride=stride, padding=1, bias=False), norm(n, affine=True), act(),
            conv(n, n, 3, padding=1, bias=False), norm(n, affine=True), act(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


class _UNet(nn.Module):
    """DynUNet without deep supervision, as NVIDIA's nn_unet.py asks for it."""

    def __init__(self, dims: int, widths: list[int], channels: int, classes: int,
                 inplace: bool = True) -> None:  # fmt: skip
        super().__init__()
        up = nn.ConvTranspose3d if dims == 3 else nn.ConvTranspose2d
        conv = nn.Conv3d if dims == 3 else nn.Conv2d
        pairs = list(zip([channels, *widths], widths, strict=False))
        self.down = nn.ModuleList(
            _Level(dims, a, b, 2 if i else 1, inplace) for i, (a, b) in enumerate(pairs)
        )
        back = list(zip(widths[::-1], widths[-2::-1], strict=False))
        self.up = nn.ModuleList(up(a, b, 2, stride=2) for a, b in back)
        self.out = nn.ModuleList(_Level(dims, 2 * b, b, 1, inplace) for _, b in back)
        self.head = conv(widths[0], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for level in self.down:
            x = level(x)
            skips.append(x)
        skips.pop()
        for up, out in zip(self.up, self.out, strict=True):
            x = out(torch.cat([up(x), skips.pop()], 1))
        return self.head(x)


class _Unit(nn.Module):
    def __init__(self, conv: nn.Module, n: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv, nn.BatchNorm3d(n), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


class _Sum(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*(_Unit(nn.Conv3d(n, n, 3, padding=1), n) for _ in range(3)))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + x


class _VNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = _Unit(nn.Conv3d(1, 16, 3, padding=1), 16)
        self.down = nn.ModuleList(
            nn.Sequential(_Unit(nn.Conv3d(c, 2 * c, 2, stride=2), 2 * c), _Sum(2 * c))
            for c in (16, 32, 64)
        )
        self.up = nn.ModuleList(
            _Unit(nn.ConvTranspose3d(a, b, 2, stride=2), b) for a, b in ((128, 64), (128, 32))
        )
        self.out = nn.ModuleList(_Sum(2 * c) for c in (64, 32))
        self.last = _Unit(nn.ConvTranspose3d(64, 16, 2, stride=2), 16)
        self.head = nn.Conv3d(16, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x) + x
        skips = [x]
        for level in self.down:
            x = level(x)
            skips.append(x)
        for i, (up, out) in enumerate(zip(self.up, self.out, strict=True)):
            x = out(torch.cat([up(x), skips[2 - i]], 1))
        return self.head(self.last(x))


_WIDE = [32, 64, 128, 256, 320, 320]


@pytest.mark.parametrize(
    ("name", "make", "shape"),
    [
        ("nnunet-3d", lambda: _UNet(3, _WIDE, 4, 4), (4, 128, 128, 128)),
        ("nnunet-2d", lambda: _UNet(2, [32, 64, 128, 256, 512, 512], 4, 4), (4, 192, 160)),
        ("unet3d-kits19", lambda: _UNet(3, _WIDE, 1, 3), (1, 128, 128, 128)),
        ("v-net", _VNet, (1, 32, 32, 32)),
    ],
)  # fmt: skip
def test_tensors_and_flop_are_those_of_torch(name: str, make, shape: tuple[int, ...]) -> None:  # type: ignore[no-untyped-def]
    ours = MODELS[name].build()
    assert measure.built_param_sizes(ours) == measure.param_sizes(make)
    truth = measure.forward_flop(make, torch.empty(1, *shape, device="meta"))
    assert ours.forward_flop == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize("act", ["leaky_relu", "relu"])
def test_storages_of_a_small_net(act: str) -> None:
    """A loss of the scores' size stands for Dice: both saved storages are taken off."""
    model = _UNet(2, [8, 16, 32], 2, 3, inplace=act == "leaky_relu")
    x = torch.randn(2, 2, 32, 32)
    truth = measure.saved_bytes(model, lambda: model(x).sum())
    ours = build(
        name="x", image="32x32", channels=2, classes=3, width=8, most=32, levels=3, act=act
    )
    loss = 4 * 3 * 3 * 32 * 32
    assert 2 * (measure.built_saved_bytes(ours) - loss) == pytest.approx(truth, rel=0.02)


def test_an_image_that_does_not_halve_is_refused() -> None:
    with pytest.raises(ValueError, match="does not halve 5 times"):
        build(name="x", image="100x128x128")
    with pytest.raises(ValueError, match="not of the form"):
        vnet(name="x", image="32")
    with pytest.raises(ValueError, match="does not halve 3 times"):
        vnet(name="x", image="36x36x36")
