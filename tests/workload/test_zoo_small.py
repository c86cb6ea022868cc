"""U-Net and neural collaborative filtering against torch."""

from __future__ import annotations

import pytest
import torch
from reference import measure
from torch import Tensor, nn
from torch.nn import functional as F

from simcore.workload.archs.ncf import build as neumf
from simcore.workload.archs.unet import build as unet
from simcore.workload.models import MODELS


class UNet(nn.Module):
    def __init__(self, width: int = 64, depth: int = 4, classes: int = 2) -> None:
        super().__init__()
        self.down, self.up, self.join, cin = nn.ModuleList(), nn.ModuleList(), nn.ModuleList(), 1

        def double(a: int, b: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(a, b, 3), nn.ReLU(True), nn.Conv2d(b, b, 3), nn.ReLU(True)
            )

        for level in range(depth + 1):
            self.down.append(double(cin, width << level))
            cin = width << level
        for level in reversed(range(depth)):
            self.up.append(nn.ConvTranspose2d(cin, width << level, 2, 2))
            self.join.append(double(cin, width << level))
            cin = width << level
        self.head = nn.Conv2d(cin, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for i, block in enumerate(self.down):
            x = block(x if not i else F.max_pool2d(x, 2, 2))
            skips.append(x)
        skips.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x, skip = up(x), skips.pop()
            at = (skip.shape[-1] - x.shape[-1]) // 2
            crop = skip[:, :, at : at + x.shape[-2], at : at + x.shape[-1]]
            x = join(torch.cat([crop, x], 1))
        return self.head(x)


def test_unet_is_31_03_million_and_300_9_gflop() -> None:
    workload = unet(name="x")
    assert workload.trainable_numel == 31_030_658
    assert measure.built_param_sizes(workload) == measure.param_sizes(UNet)
    truth = measure.forward_flop(UNet, torch.empty(1, 1, 572, 572, device="meta"))
    assert workload.forward_flop == pytest.approx(truth, rel=1e-9)
    assert workload.forward_flop / 10**9 == pytest.approx(300.9, abs=0.05)


def test_unet_saved_storages() -> None:
    model, image = UNet(8, 2), 92
    x, labels = torch.randn(2, 1, image, image), torch.zeros(2, 52, 52, dtype=torch.int64)
    truth = measure.saved_bytes(model, lambda: F.cross_entropy(model(x), labels))
    ours = unet(name="x", image=image, width=8, depth=2)
    assert 2 * measure.built_saved_bytes(ours) == pytest.approx(truth, rel=0.02)


def test_unet_refuses_an_image_that_does_not_halve() -> None:
    with pytest.raises(ValueError, match="image 571"):
        unet(name="x", image=571)


class NeuMF(nn.Module):
    def __init__(self, users: int, items: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(
            nn.Embedding(n, d) for n, d in ((users, 64), (items, 64), (users, 128), (items, 128))
        )
        pairs = ((256, 256), (256, 128), (128, 64))
        self.mlp = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)
        self.score = nn.Linear(128, 1)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        a, b, c, d = (t(i) for t, i in zip(self.tables, (user, item) * 2, strict=True))
        x = torch.cat([c, d], 1)
        for layer in self.mlp:
            x = torch.native_dropout(F.relu(layer(x)), 0.5, True)[0]
        return self.score(torch.cat([a * b, x], 1))


def test_neumf_parameters_and_flop() -> None:
    workload = MODELS["ncf"].build()
    assert measure.built_param_sizes(workload) == measure.param_sizes(lambda: NeuMF(138493, 26744))
    ids = torch.zeros(1, dtype=torch.int64, device="meta")
    truth = measure.forward_flop(lambda: NeuMF(138493, 26744), ids, ids)
    assert workload.forward_flop == pytest.approx(truth, rel=1e-9)


def test_neumf_saved_storages() -> None:
    batch, model = 64, NeuMF(50, 40)
    user, item = torch.zeros(batch, dtype=torch.int64), torch.ones(batch, dtype=torch.int64)

    def step() -> Tensor:
        target = torch.ones(batch, 1)
        return F.binary_cross_entropy_with_logits(model(user, item), target)

    # the four look-ups share two index tensors
    truth = measure.saved_bytes(model, step) + 2 * 8 * batch
    ours = neumf(name="x", users=50, items=40)
    assert batch * measure.built_saved_bytes(ours) == pytest.approx(truth, rel=0.02)


def test_neumf_refuses_an_odd_join() -> None:
    with pytest.raises(ValueError, match="even"):
        neumf(name="x", users=5, items=5, mlp="255,64")
