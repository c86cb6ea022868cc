"""U-Net and neural collaborative filtering against torch."""

from __future__ import annotations

import pytest
import torch
from reference import measure
from reference.small import NeuMF, UNet
from torch import Tensor
from torch.nn import functional as F

from simcore.workload.archs.layers import LayerList
from simcore.workload.models import MODELS

neumf = LayerList("neumf")


def test_unet_is_31_03_million_and_300_9_gflop() -> None:
    workload = LayerList("unet")(name="x")
    assert workload.trainable_numel == 31_030_658
    assert measure.built_param_sizes(workload) == measure.param_sizes(UNet)
    truth = measure.forward_flop(UNet, torch.empty(1, 1, 572, 572, device="meta"))
    assert workload.forward_flop == pytest.approx(truth, rel=1e-9)
    assert workload.forward_flop / 10**9 == pytest.approx(300.9, abs=0.05)


def test_unet_saved_storages() -> None:
    model, image = UNet(8, 2), 92
    x, labels = torch.randn(2, 1, image, image), torch.zeros(2, 52, 52, dtype=torch.int64)
    truth = measure.saved_bytes(model, lambda: F.cross_entropy(model(x), labels))
    ours = LayerList("unet")(name="x", image=image, width=8, depth=2)
    assert 2 * measure.built_saved_bytes(ours) == pytest.approx(truth, rel=0.02)


def test_unet_refuses_an_image_that_does_not_halve() -> None:
    with pytest.raises(ValueError, match="odd size 567"):
        LayerList("unet")(name="x", image=571)


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
