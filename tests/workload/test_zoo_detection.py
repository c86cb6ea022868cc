"""SSD300, Mask and Faster R-CNN, RetinaNet, EfficientDet against published counts and torch."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from reference import measure
from reference.detection import SSD300, Constant, Evaluated, MaskRCNN, Norm, RetinaNet
from reference.efficientdet import EfficientDetD0
from reference.efficientdet import loss as detection_loss
from torch import nn
from torch.nn import functional as F

from simcore.step.kernels import kernel_table
from simcore.strategy.precision import PRECISIONS
from simcore.workload.archs.layers import LayerList
from simcore.workload.archs.tape import Norms, Tape
from simcore.workload.graph import Block, Workload

rcnn, retinanet, ssd300, efficientdet = map(
    LayerList, ("rcnn", "retinanet", "ssd300", "efficientdet")
)

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


def test_regions_are_cropped_in_fp32_between_casts_under_autocast() -> None:
    """By hand, of maps of 200 x 256 pixels at a quarter and so on: bytes of a crop of 7 x 7."""
    h, w, regions = 256, 320, 16
    maps = sum(256 * (h // s) * (w // s) for s in (4, 8, 16, 32))
    boxed = regions * 7 * 7 * 256
    block = next(b for b in rcnn(name="x", height=h, width=w, regions=regions).blocks
                 if b.name == "box")  # fmt: skip
    crop = Block(name="crop", ops=(next(op for op in block.ops if op.name == "roi_align"),))
    alone = Workload(name="x", sample_unit="image", blocks=(crop,), order=(0,))
    moved = {
        name: (table := kernel_table(alone, PRECISIONS[name]))["n_bytes"][:, 1] @ table["count"]
        for name in ("fp32", "amp-fp16")
    }
    assert moved["fp32"] == pytest.approx(4 * (5 + 9) * boxed + 4 * maps)
    casts = 2 * (4 + 2) * (maps + boxed)  # each way
    assert moved["amp-fp16"] == pytest.approx(moved["fp32"] + casts)


def test_gradients_of_constant_norms_are_cast_down_by_a_kernel_of_their_own() -> None:
    """``grad * scale`` in fp32 reads and writes 8 bytes an element, its cast 6 more."""
    tape = Tape(casts=True, norms="constant")
    tape.batch_norm("n", tape.conv("c", tape.input(4, (8, 8)), 16, 1))
    tape.block("b")
    norm = Block(name="n", ops=tape.blocks[0].ops[-1:])
    alone = Workload(name="x", sample_unit="image", blocks=(norm,), order=(0,))
    elems = 16 * 8 * 8
    for name, width, kernels in (("fp32", 8, 1), ("amp-fp16", 14, 2)):
        table = kernel_table(alone, PRECISIONS[name])
        back = slice(int(table.phase_start[1]), None)
        assert table["n_bytes"][back, 1] @ table["count"][back] == width * elems
        assert table.launches_per_phase[1] == kernels


@pytest.mark.parametrize(
    ("apart", "n_bytes", "kernels"),
    # Product and sum of 16 bytes an element in fp32. Under autocast torch's product reads 2 and
    # writes 4 bytes; apex's has a cast of these 6 before it and then reads and writes 4.
    [
        (False, {"fp32": 8 + 8, "amp-fp16": 6 + 8}, 2),
        (True, {"fp32": 8 + 8, "amp-fp16": 6 + 8 + 8}, 3),
    ],
)
def test_who_casts_the_operand_of_a_constant_norm(
    apart: bool, n_bytes: dict[str, int], kernels: int
) -> None:
    tape = Tape(casts=True, operands_cast=apart, norms="constant")
    tape.batch_norm("n", tape.conv("c", tape.input(4, (8, 8)), 16, 1))
    tape.block("b")
    norm = Block(name="n", ops=tape.blocks[0].ops[-1:])
    alone = Workload(name="x", sample_unit="image", blocks=(norm,), order=(0,))
    for name, width in n_bytes.items():
        table = kernel_table(alone, PRECISIONS[name])
        forward = slice(0, int(table.phase_start[1]))
        assert table["n_bytes"][forward, 1] @ table["count"][forward] == width * 16 * 8 * 8
    assert table.launches_per_phase[0] == kernels


def test_a_pyramid_of_wide_sums_casts_what_they_read() -> None:
    """Three maps are read and written in fp32; their laterals and the coarsest map are cast."""
    h, w = 256, 320
    maps = [256 * (h // s) * (w // s) for s in (4, 8, 16, 32)]
    moved = sum(a + b for a, b in pairwise(maps))
    build = partial(rcnn, name="x", height=h, width=w, regions=16, positives=4, autocast=True)
    for wide, n_bytes in ((False, 2 * moved), (True, 4 * moved + (2 + 4) * sum(maps))):
        ops = [op for block in build(operands_cast=wide).instances()
               for op in block.ops if op.name == "upsample"]  # fmt: skip
        alone = Workload(name="x", sample_unit="image", blocks=(Block(name="u", ops=tuple(ops)),),
                         order=(0,))  # fmt: skip
        table = kernel_table(alone, PRECISIONS["amp-fp16"])
        for part in (slice(0, int(table.phase_start[1])), slice(int(table.phase_start[1]), None)):
            assert table["n_bytes"][part, 1] @ table["count"][part] == pytest.approx(n_bytes)


def test_rcnn_stacked_crop_is_tensorflows() -> None:
    """ops/spatial_transform_ops.py of NVIDIA's MaskRCNN in TensorFlow 2, node by node."""
    h, w, regions = 256, 320, 16
    build = partial(rcnn, name="x", height=h, width=w, regions=regions, positives=4)
    aligned, stacked = build(), build(stacked=True)
    assert stacked.trainable_numel == aligned.trainable_numel
    assert stacked.forward_flop == aligned.forward_flop
    ops = [op for block in stacked.blocks for op in block.ops if op.name == "roi_stacked"]
    assert len(ops) == 2  # the stack is made for each head
    maps = [256 * (h // s) * (w // s) for s in (4, 8, 16, 32, 64)]
    padded = 5 * maps[0]
    boxed = regions * 7 * 7 * 256
    forward = [
        sum(maps[1:]) + 4 * maps[0],  # tf.image.pad_to_bounding_box
        2 * padded,  # tf.stack
        2 * 4 * boxed,  # tf.gather
        2 * 4 * boxed,  # times the kernels
        4 * boxed + boxed,  # avg_pool
    ]
    backward = [
        4 * boxed + boxed,  # AvgPoolGrad
        2 * 4 * boxed,  # Mul
        padded,  # zeros
        3 * 4 * boxed,  # UnsortedSegmentSum: reads, and adds in place
        2 * padded,  # Unpack
        2 * sum(maps[1:]),  # Slice
        2 * sum(maps),  # AddN
    ]
    assert [kernel.low for kernel in ops[0].fwd] == forward
    assert [kernel.low for kernel in ops[0].bwd] == backward


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


@pytest.mark.parametrize(("norm", "norms"), [(Constant, "constant"), (Evaluated, "evaluated")])
def test_retinanet_saved_storages(norm: Norm, norms: Norms) -> None:
    model, x = RetinaNet(80, norm), torch.randn(1, 3, 128, 160)
    anchors = 9 * (16 * 20 + 8 * 10 + 4 * 5 + 2 * 3 + 1 * 2)
    targets = torch.zeros(anchors, 80)
    truth = measure.saved_bytes(model, lambda: model.losses(x, targets))
    statistics = sum(8 * m.num_features for m in model.modules() if isinstance(m, Evaluated))
    ours = retinanet(name="x", height=128, width=160, norms=norms)
    assert measure.built_saved_bytes(ours) == pytest.approx(truth - statistics, rel=0.02)
    fused = retinanet(name="x", height=128, width=160, norms=norms, fused_focal=True)
    assert (
        measure.built_saved_bytes(ours) - measure.built_saved_bytes(fused) == 7 * 4 * 80 * anchors
    )


def test_norms_that_are_evaluated_train_their_scales() -> None:
    with torch.device("meta"):
        model = RetinaNet(80, Evaluated)
    for p in (*model.pyramid.stem.parameters(), *model.pyramid.stages[0].parameters()):
        p.requires_grad_(False)
    ours = retinanet(name="x", norms="evaluated")
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    others = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    statistics = sum(2 * m.num_features for m in model.modules() if isinstance(m, Evaluated))
    assert ours.trainable_numel == trained
    assert ours.buffers_numel == others + statistics


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


def test_efficientdet_d0_has_the_published_parameters() -> None:
    """3.9 M in Tan et al. 2020, table 2; 3.88 M in R. Wightman's repository."""
    workload = efficientdet(name="x")
    assert workload.trainable_numel == 3_877_763
    assert measure.built_param_sizes(workload) == _trained(EfficientDetD0)
    # 96 classes a box for the fused loss: 9 * 6 more filters of 64 and a bias
    assert efficientdet(name="x", padded_classes=True).trainable_numel == 3_877_763 + 54 * 65


def test_efficientdet_d0_is_2_5_billion_multiply_adds() -> None:
    x = torch.empty(1, 3, 512, 512, device="meta")
    truth = measure.forward_flop(lambda: EfficientDetD0().eval(), x)
    workload = efficientdet(name="x")
    assert workload.forward_flop == pytest.approx(truth, rel=1e-9)
    assert workload.forward_flop / 2e9 == pytest.approx(2.5, rel=0.005)


def test_efficientdet_saved_storages() -> None:
    model, x = EfficientDetD0(), torch.randn(2, 3, 256, 256)
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(norms) == efficientdet(name="x").n_buffers // 3 == 108
    statistics = sum(2 * 4 * n.num_features for n in norms)
    truth = measure.saved_bytes(model, lambda: detection_loss(*model(x))) - statistics
    ours = measure.built_saved_bytes(efficientdet(name="x", image=256))
    assert 2 * ours == pytest.approx(truth, rel=0.01)


def test_efficientdet_launches() -> None:
    """As many kernels as torch dispatches, but stochastic depth and what comes before the net."""
    model, x = EfficientDetD0(), torch.randn(2, 3, 128, 128)
    forward, backward = measure.dispatched(model, lambda: detection_loss(*model(x)))
    ours = measure.built_launches(efficientdet(name="x", image=128))
    survive, normalise = 9 * 2, 3
    assert ours[0] - survive - normalise == pytest.approx(sum(forward.values()), rel=0.03)
    assert ours[1] - survive == pytest.approx(sum(backward.values()), rel=0.04)


def test_efficientdet_labels_49_104_anchors() -> None:
    """(64^2 + 32^2 + 16^2 + 8^2 + 4^2) * 9 anchors: a label of 8 bytes and a box of 16 each."""
    assert efficientdet(name="x").input_bytes == 3 * 512**2 + 49_104 * 24


def test_efficientdet_compiled_keeps_what_is_fused_alone() -> None:
    """By hand: each node of a cell leaves out the product of each part and the sum before SiLU."""
    plain, compiled = (efficientdet(name="x", xla=x) for x in (False, True))
    assert compiled.forward_flop == plain.forward_flop
    cells = [
        [b.saved.low + b.saved.high for b in w.instances() if b.name == "cell"]
        for w in (plain, compiled)
    ]
    nodes = [(2, 8), (2, 16), (2, 32), (2, 64), (3, 32), (3, 16), (3, 8), (2, 4)]
    less = sum((parts + 1) * 64 * side**2 for parts, side in nodes)
    assert [a - b for a, b in zip(*cells, strict=True)] == [less] * 3


@pytest.mark.parametrize("build", [rcnn, retinanet])
def test_deeper_backbones_have_more_blocks_in_their_third_stage(build: Any) -> None:
    """17 more of 1024 x 256, 3 x 3 x 256 x 256 and 256 x 1024 weights on a map of stride 16."""
    shallow, deep = (build(name="x", height=320, width=320, depth=d) for d in (50, 101))
    weights = 2 * 1024 * 256 + 9 * 256 * 256
    assert deep.trainable_numel - shallow.trainable_numel == 17 * weights
    assert deep.forward_flop - shallow.forward_flop == 17 * 2 * weights * 20 * 20
    with pytest.raises(ValueError, match="depth 42 is none of 18, 34, 50, 101, 152"):
        build(name="x", depth=42)


@pytest.mark.parametrize("build", [rcnn, retinanet])
def test_norms_of_no_known_kind_are_refused(build: Any) -> None:
    with pytest.raises(ValueError, match="norms 'trained' is none of constant, evaluated"):
        build(name="x", norms="trained")
