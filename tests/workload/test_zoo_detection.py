"""SSD300, Mask and Faster R-CNN and RetinaNet against published counts and torch."""

from __future__ import annotations

import pytest
import torch
from reference import measure
from reference.detection import SSD300, MaskRCNN, RetinaNet
from torch import nn
from torch.nn import functional as F

from simcore.workload.archs.detection import rcnn, retinanet, ssd300

#: Parameters of the frozen stem and first stage of a ResNet-50, which torchvision's counts hold.
_FROZEN = 222_400


def _trained(make) -> list[int]:  # type: ignore[no-untyped-def]
    with torch.device("meta"):
        model = make()
    return sorted(p.numel() for p in model.parameters() if p.requires_grad)


def test_ssd300_is_nvidias_22_895_million_and_40_3_gflop() -> None:
    workload = ssd300(name="x")
    assert workload.trainable_numel == 22_894_902
    assert measure.built_param_sizes(workload) == _trained(SSD300)
    x = torch.empty(1, 3, 300, 300, device="meta")
    assert workload.forward_flop == pytest.approx(
        measure.forward_flop(lambda: SSD300().eval(), x), rel=1e-9
    )


def test_ssd300_saved_storages() -> None:
    model, x = SSD300(), torch.randn(2, 3, 300, 300)
    labels = torch.zeros(2, 8732, dtype=torch.int64)

    def step() -> torch.Tensor:
        boxes, scores = model(x)
        return F.cross_entropy(scores, labels) + boxes.sum()

    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    statistics = sum(2 * 4 * n.num_features for n in norms)
    truth = measure.saved_bytes(model, step) - statistics
    assert 2 * measure.built_saved_bytes(ssd300(name="x")) == pytest.approx(truth, rel=0.02)


@pytest.mark.parametrize(
    ("masks", "published"), [(True, 44_401_393), (False, 41_755_286)], ids=["mask", "faster"]
)
def test_rcnn_has_torchvisions_parameters(masks: bool, published: int) -> None:
    workload = rcnn(name="x", classes=91, masks=masks)
    assert workload.trainable_numel + _FROZEN == published
    assert measure.built_param_sizes(workload) == _trained(lambda: MaskRCNN(91, masks))


def test_retinanet_has_torchvisions_parameters() -> None:
    workload = retinanet(name="x", classes=91)
    assert workload.trainable_numel + _FROZEN == 34_014_999
    assert measure.built_param_sizes(workload) == _trained(lambda: RetinaNet(91))


def test_rcnn_flop() -> None:
    h, w, regions, positives = 256, 320, 32, 8
    shapes = [(1, 3, h, w), (regions, 256, 7, 7), (positives, 256, 14, 14)]
    inputs = [torch.empty(s, device="meta") for s in shapes]
    truth = measure.forward_flop(lambda: MaskRCNN(81), *inputs)
    ours = rcnn(name="x", height=h, width=w, regions=regions, positives=positives)
    assert ours.forward_flop == pytest.approx(truth, rel=1e-9)


def test_retinanet_flop() -> None:
    x = torch.empty(1, 3, 256, 320, device="meta")
    truth = measure.forward_flop(lambda: RetinaNet(80), x)
    assert retinanet(name="x", height=256, width=320).forward_flop == pytest.approx(truth, rel=1e-9)


def test_rcnn_saved_storages() -> None:
    h, w, regions, positives = 256, 320, 16, 4
    model, x = MaskRCNN(81), torch.randn(1, 3, h, w)
    boxes, masks = torch.randn(regions, 256, 7, 7), torch.randn(positives, 256, 14, 14)

    def step() -> torch.Tensor:
        return torch.stack([y.sum() for y in model(x, boxes, masks)]).sum()

    truth = measure.saved_bytes(model, step)
    ours = rcnn(name="x", height=h, width=w, regions=regions, positives=positives)
    assert measure.built_saved_bytes(ours) == pytest.approx(truth, rel=0.02)


def test_retinanet_saved_storages() -> None:
    model, x = RetinaNet(80), torch.randn(1, 3, 128, 160)

    def step() -> torch.Tensor:
        return torch.stack([y.sum() for y in model(x)]).sum()

    truth = measure.saved_bytes(model, step)
    ours = retinanet(name="x", height=128, width=160)
    assert measure.built_saved_bytes(ours) == pytest.approx(truth, rel=0.02)


def test_constant_norms_leave_autocast_activations_in_fp32() -> None:
    body = next(b for b in rcnn(name="x").blocks if b.name == "layer2")
    assert body.saved.high > 0
    assert body.saved.low == 0


def test_autocast_keeps_fp32_activations_and_their_16_bit_copies() -> None:
    h, w, regions, positives = 256, 320, 16, 4
    model, x = MaskRCNN(81), torch.randn(1, 3, h, w)
    boxes = torch.randn(regions, 256, 7, 7, dtype=torch.bfloat16, requires_grad=True)
    masks = torch.randn(positives, 256, 14, 14, dtype=torch.bfloat16, requires_grad=True)

    def step() -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.stack([y.float().sum() for y in model(x, boxes, masks)]).sum()

    workload = rcnn(
        name="x", height=h, width=w, regions=regions, positives=positives, autocast=True
    )
    weights = 2 * workload.gemm_weights[1]  # autocast's copies of them are pinned too
    saved = workload.saved
    ours = 2 * saved.low + 4 * saved.high + saved.raw_bytes
    # weights of frozen layers and of those right behind them are not pinned
    assert ours == pytest.approx(measure.saved_bytes(model, step) - weights, rel=0.02)
