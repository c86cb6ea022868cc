"""The MNIST example's net against a reference module."""

from __future__ import annotations

import pytest
import torch
from reference import measure
from reference.mnist import MnistNet
from torch.nn import functional as F

from simcore.workload.archs import ARCHS, load

load("mnist_cnn")
build = ARCHS["mnist_cnn"]


def test_parameters_match_the_module() -> None:
    workload = build(name="m")
    assert workload.trainable_numel == 1_199_882
    assert measure.built_param_sizes(workload) == measure.param_sizes(MnistNet)


def test_flop_match_the_counter() -> None:
    truth = measure.forward_flop(MnistNet, torch.empty(1, 1, 28, 28, device="meta"))
    assert build(name="m").forward_flop == pytest.approx(truth, rel=1e-9)


def test_saved_storages_and_launches_match_the_module() -> None:
    batch, model, workload = 4, MnistNet(), build(name="m")
    x, labels = torch.randn(batch, 1, 28, 28), torch.arange(batch)

    def step() -> torch.Tensor:
        return F.nll_loss(model(x), labels)

    truth = measure.saved_bytes(model, step)
    assert measure.built_saved_bytes(workload) * batch == pytest.approx(truth, rel=1e-3)
    forward, backward = measure.dispatched(model, step)
    assert measure.built_launches(workload) == (forward.total(), backward.total())
