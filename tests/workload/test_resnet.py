"""ResNet against torchvision's published figures and a reference module."""

from __future__ import annotations

import pytest
import torch
from reference import measure
from reference.resnet import ResNet
from torch.nn import functional as F

from simcore.workload.archs import ARCHS, load

load("resnet")
build = ARCHS["resnet"]

_LAYERS = {
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True),
    152: ((3, 8, 36, 3), True),
}
#: torchvision's num_params and GFLOPS (multiply-adds, in 1e9) at 224 x 224
_PUBLISHED = {
    18: (11_689_512, 1.81),
    34: (21_797_672, 3.66),
    50: (25_557_032, 4.09),
    101: (44_549_160, 7.80),
    152: (60_192_808, 11.51),
}


@pytest.mark.parametrize("depth", _PUBLISHED)
def test_parameters_match_the_published_count_and_the_module(depth: int) -> None:
    workload = build(name="r", depth=depth)
    assert workload.trainable_numel == _PUBLISHED[depth][0]
    assert measure.built_param_sizes(workload) == measure.param_sizes(
        lambda: ResNet(*_LAYERS[depth])
    )


@pytest.mark.parametrize("depth", _PUBLISHED)
@pytest.mark.parametrize("image", [224, 32, 65])
def test_flop_match_the_counter(depth: int, image: int) -> None:
    x = torch.empty(1, 3, image, image, device="meta")
    truth = measure.forward_flop(lambda: ResNet(*_LAYERS[depth], 10).eval(), x)
    ours = build(name="r", depth=depth, image=image, classes=10).forward_flop
    assert ours == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize("depth", _PUBLISHED)
def test_flop_match_what_torchvision_publishes(depth: int) -> None:
    giga = 10.0**9
    assert build(name="r", depth=depth).forward_flop / giga == pytest.approx(
        2 * _PUBLISHED[depth][1], abs=0.011
    )


@pytest.mark.parametrize("depth", [18, 50])
def test_saved_storages_and_launches_match_the_module(depth: int) -> None:
    batch, image = 2, 64
    workload = build(name="r", depth=depth, image=image, classes=10)
    model = ResNet(*_LAYERS[depth], 10)
    x, labels = torch.randn(batch, 3, image, image), torch.tensor([1, 2])

    def step() -> torch.Tensor:
        return F.cross_entropy(model(x), labels)

    norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    statistics_bytes = sum(2 * 4 * n.num_features for n in norms)  # a batch, whatever its size
    truth = measure.saved_bytes(model, step) - statistics_bytes
    assert measure.built_saved_bytes(workload) * batch == pytest.approx(truth, rel=1e-3)
    forward, backward = measure.dispatched(model, step)
    assert measure.built_launches(workload) == (forward.total(), backward.total())
    assert workload.n_buffers == len(list(model.buffers()))
    assert workload.buffers_numel == sum(b.numel() for b in model.buffers())


def test_repeated_units_are_one_block() -> None:
    workload = build(name="r", depth=152)
    assert len(workload.blocks) == 2 + 2 * 4
    assert [workload.count(i) for i in range(len(workload.blocks))] == [
        1, 1, 2, 1, 7, 1, 35, 1, 2, 1,
    ]  # fmt: skip
    assert [b.recomputable for b in workload.blocks] == [False, *[True] * 8, False]
    # layer1.rest starts from 256 x 56 x 56
    assert workload.blocks[2].boundary.low == 256 * 56 * 56


def test_an_unknown_depth_is_refused() -> None:
    with pytest.raises(ValueError, match="depth 42"):
        build(name="r", depth=42)
