"""Object detectors on a ResNet: SSD300, RetinaNet, Faster and Mask R-CNN with a feature pyramid.

Dense parts are counted op by op. For region proposals the cost is the host's work between results
of the device that it waits for (``proposals.py``); the numbers of boxes and masks per image are
fixed. The stem and the first stage of the R-CNNs and RetinaNet are frozen. All their BatchNorms are
constants (scale and shift), as the reference implementations train them, or use running statistics
with trained scale and shift (``norms``).
"""

from __future__ import annotations

from dataclasses import replace

from simcore.base.units import FP32_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.layers import feature_maps
from simcore.workload.archs.parts import check_names
from simcore.workload.archs.proposals import (
    LOADER_BYTES_PER_PIXEL,
    MASK_TARGETS,
    MASKS,
    PROPOSALS,
    RETINANET,
    SELECTIONS,
    Selection,
    loaded,
)
from simcore.workload.archs.tape import Norms, T, Tape
from simcore.workload.graph import Kernel, Op, Workload
from simcore.workload.saved import Saved

#: Stages of the ResNet-50 of SSD, as in its record; the third keeps the second's stride.
_SSD_STAGES = [[64, 4 * 64, 1, 3], [128, 4 * 128, 2, 4], [256, 4 * 256, 1, 6]]
#: Channels after, channels between, stride and padding of SSD's five extra stages, and boxes per
#: point of its six maps (Liu et al. 2016 with a ResNet-50, as in MLPerf's single-stage detector).
_SSD_EXTRA = (
    (512, 256, 2, 1),
    (512, 256, 2, 1),
    (256, 128, 2, 1),
    (256, 128, 1, 0),
    (256, 128, 1, 0),
)
_SSD_BOXES = (4, 6, 6, 6, 4, 4)

#: How a detector's pre-trained BatchNorms may run.
NORMS = ("constant", "evaluated")
#: Tensors as large as all scores that the focal loss in plain operators saves in fp32
#: (torchvision's and fvcore's ``sigmoid_focal_loss``): scores, targets, 1 - targets, 1 - p_t, its
#: power, the cross entropy, the weight of classes, and the copy of the scores that are counted.
_FOCAL_KEEPS = 8


def _small(name: str, launches: float, elems: float = 0.0, *, bwd: float = 0.0) -> Op:
    """An op of many small kernels that together move ``elems`` elements."""
    fwd = Kernel(kind="elementwise", high=elems, launches=launches)
    back = (Kernel(kind="elementwise", high=elems, launches=bwd),) if bwd else ()
    return Op(name=name, fwd=(fwd,), bwd=back)


@ARCHS.register("ssd300")
def ssd300(
    *, name: str, sample_unit: str = "image", image: int = 300, classes: int = 81,
    layout: str = "nchw",
) -> Workload:  # fmt: skip
    """SSD on ResNet-50 up to its fourth stage, which keeps stride 8 (8,732 boxes at 300 pixels)."""
    tape = Tape(nchw=layout == "nchw")
    x = feature_maps(tape, "resnet", (image, image), depth=50, stages=_SSD_STAGES)["layer3"]
    maps = [x]
    for i, (cout, between, stride, pad) in enumerate(_SSD_EXTRA):
        x = tape.unit(f"extra{i}.1", x, between, 1)
        x = tape.unit(f"extra{i}.2", x, cout, 3, stride=stride, pad=pad)
        maps.append(x)
    tape.block("extra")
    boxes = 0.0
    for level, count in zip(maps, _SSD_BOXES, strict=True):
        tape.conv("location", level, 4 * count, 3, bias=True)
        tape.conv("confidence", level, classes * count, 3, bias=True)
        boxes += level.points * count
    cat = Kernel(kind="copy", low=2.0 * boxes * (classes + 4), launches=2.0)
    tape.op(Op(name="cat", fwd=(cat,), bwd=(cat,)))
    # Smooth L1 over all boxes, cross-entropy, and the two sorts of hard-negative mining.
    tape.op(ops.cross_entropy("confidence_loss", boxes, classes))
    tape.op(_small("box_loss", 12.0, 60.0 * boxes, bwd=8.0))
    tape.op(_small("hard_negatives", 12.0, 40.0 * boxes))
    tape.op(ops.loss_seed())
    tape.block("head")
    return tape.workload(name, sample_unit, input_bytes=FP32_BYTES * 3.0 * image**2 + 20 * boxes)


def _maps(tape: Tape, image: tuple[int, int], depth: int) -> list[T]:
    """Feature maps of the four stages of a ResNet whose stem and first stage are frozen."""
    found = feature_maps(tape, "resnet", image, depth=depth, frozen_stages=1)
    return [found[f"layer{stage}"] for stage in (1, 2, 3, 4)]


def _pyramid(tape: Tape, maps: list[T], width: int) -> list[T]:
    """Lateral 1x1 convolutions, nearest up-sampling, sums, 3x3 on each level (Lin et al. 2017)."""
    lateral = [tape.conv(f"lateral{i}", m, width, 1, bias=True) for i, m in enumerate(maps)]
    summed = [lateral[-1]]
    for finer in reversed(lateral[:-1]):
        up = tape.reshape(finer, finer.c, finer.grid)
        up.pinned, up.readers = False, 0
        grown = Kernel(kind="copy", low=finer.elems + summed[0].elems)
        tape.op(Op(name="upsample", fwd=(grown,), bwd=(grown,)))
        summed.insert(0, tape.add("topdown", finer, up))
    return [tape.conv(f"output{i}", m, width, 3, bias=True) for i, m in enumerate(summed)]


def _rpn(tape: Tape, levels: list[T], anchors: int, host: Selection) -> None:
    """Add the proposal network, its losses and the ranking of proposals."""
    total = 0.0
    for i, level in enumerate(levels):
        y = tape.conv("rpn.conv", level, level.c, 3, bias=True, shared=i > 0)
        y = tape.act("rpn", y, "relu")
        tape.conv("rpn.objectness", y, anchors, 1, bias=True, shared=i > 0)
        tape.conv("rpn.boxes", y, 4 * anchors, 1, bias=True, shared=i > 0)
        total += anchors * level.points
    tape.op(host.proposals.op("rpn.proposals", 0.0, 70.0 * total, bwd=40.0))


def _roi_align(tape: Tape, levels: list[T], regions: float, size: int) -> T:
    """Bilinear samples of ``regions`` boxes per sample (2 x 2 per bin, four neighbours each).

    Neighbouring bins share cache lines: a quarter of the sixteen reads reach memory. Backward
    clears the maps' gradients, then adds to them atomically. Both passes are fp32 under autocast
    too (torchvision's csrc/ops/autocast/roi_align_kernel.cpp), between casts of maps and regions.
    The result of each level is written to its place in a tensor of zeros. For each level, backward
    copies the gradient of all regions (torch, derivatives.yaml: index_put) to set that level's part
    to zero, and reads that level's part.
    """
    c = levels[0].c
    out = T(c, (size, size), share=regions)
    maps = sum(level.elems for level in levels)
    n, cast = float(len(levels)), maps + out.elems
    fwd = Kernel(kind="gather", high=5.0 * out.elems, launches=n, autocasts=cast)
    bwd = (
        Kernel(kind="elementwise", high=maps, launches=n),
        Kernel(kind="gather", high=9.0 * out.elems, launches=n, autocasts=cast),
    )
    tape.op(Op(name="roi_align", fwd=(fwd,), bwd=bwd, saved=Saved(raw_bytes=20.0 * regions)))
    put = Kernel(kind="copy", low=3.0 * out.elems, indexed=out.elems, launches=1.0 + n)
    back = (2.0 * n + 3.0) * out.elems
    taken = Kernel(kind="copy", low=back, indexed=2.0 * out.elems, launches=3.0 * n)
    tape.op(Op(name="roi_levels", fwd=(put,), bwd=(taken,)))
    return out


def _roi_stacked(tape: Tape, levels: list[T], regions: float, size: int) -> T:
    """The samples of ``_roi_align``, taken from one padded tensor of all levels.

    Each level is padded to the finest level's size. This follows the source of a TensorFlow 2
    program (ops/spatial_transform_ops.py; docs/families.md): levels are padded and stacked anew for
    each head, four points per bin are gathered, multiplied by the weights and averaged. Backward
    spreads the average, multiplies, adds the points into zeros (UnsortedSegmentSum), undoes the
    stack and the padding, and adds the result to the maps' other gradients.
    """
    c = levels[0].c
    out = T(c, (size, size), share=regions)
    finest, maps = levels[0].elems, sum(level.elems for level in levels)
    stack, points = len(levels) * finest, 4.0 * out.elems
    pads = maps - finest + stack - finest  # the finest level has no padding
    n = float(len(levels))

    def copied(elems: float, launches: float) -> Kernel:
        return Kernel(kind="copy", low=elems, indexed=elems / 2.0, launches=launches)

    weighted = Kernel(kind="elementwise", low=2.0 * points, indexed=points)
    pooled = Kernel(kind="elementwise", low=points + out.elems)
    fwd = (
        copied(pads, n - 1.0), copied(2.0 * stack, 1.0),
        Kernel(kind="gather", low=2.0 * points), weighted, pooled,
    )  # fmt: skip
    bwd = (
        pooled, weighted, Kernel(kind="elementwise", low=stack),
        Kernel(kind="gather", low=3.0 * points), copied(2.0 * stack, 1.0),
        copied(2.0 * (maps - finest), n - 1.0),
        Kernel(kind="elementwise", low=2.0 * maps, launches=n),
    )  # fmt: skip
    tape.op(Op(name="roi_stacked", fwd=fwd, bwd=bwd, saved=Saved(raw_bytes=20.0 * regions)))
    tape.op(_small("roi_levels", 30.0))
    return out


@ARCHS.register("rcnn")
def rcnn(
    *,
    name: str,
    sample_unit: str = "image",
    height: int = 800,
    width: int = 1216,
    classes: int = 81,
    masks: bool = True,
    regions: int = 512,
    positives: int = 64,
    layout: str = "nchw",
    autocast: bool = False,
    norms: Norms = "constant",
    depth: int = 50,
    stacked: bool = False,
    proposals: str = "all_levels",
    mask_targets: str = "device",
    loader_bytes_per_pixel: float = LOADER_BYTES_PER_PIXEL,
) -> Workload:
    """Faster R-CNN, or Mask R-CNN with ``masks``, on a ResNet of ``depth`` with a feature pyramid.

    ``regions`` boxes per sample pass the box head, ``positives`` of them the mask head (He et al.
    2017, with the 512 of Lin et al. 2017). Images are padded to ``height`` x ``width``.

    - ``autocast``: the constant norms give fp32 tensors, of which each convolution makes and saves
      a 16-bit copy.
    - ``stacked``: regions are cropped from one padded tensor of all levels, as in TensorFlow's
      programs.
    - ``proposals``: which boxes are suppressed together, and where; ``mask_targets``: where masks
      are drawn (``proposals.py`` has the names of both).
    - ``loader_bytes_per_pixel``: bytes per pixel of an image in pageable memory, for whose copy the
      host waits; 0: no such copy.
    """
    check_names(
        proposals=(proposals, PROPOSALS),
        mask_targets=(mask_targets, MASK_TARGETS),
        norms=(norms, NORMS),
    )
    host = SELECTIONS[proposals]
    tape = Tape(nchw=layout == "nchw", casts=autocast, norms=norms)
    if loader_bytes_per_pixel:
        copied = loaded(float(height * width), loader_bytes_per_pixel)
        tape.op(copied.op("input", 0.0, 0.0))
    levels = _pyramid(tape, _maps(tape, (height, width), depth), 256)
    coarse = tape.reshape(levels[-1], 256, tuple((g + 1) // 2 for g in levels[-1].grid))
    tape.op(ops.pool2d("p6", levels[-1].elems, coarse.elems))
    tape.block("fpn")
    _rpn(tape, [*levels, coarse], 3, host)
    tape.block("rpn")
    crop, cropped = (_roi_stacked, [*levels, coarse]) if stacked else (_roi_align, levels)
    y = crop(tape, cropped, regions, 7)
    tape.op(host.regions.op("box.levels", 0.0, 10.0 * regions))
    y = tape.reshape(y, 256 * 49, (1,))
    y = tape.linear("box.fc6", y, 4 * 256, act="relu")
    y = tape.linear("box.fc7", y, 4 * 256, act="relu")
    tape.linear("box.class", y, classes)
    tape.linear("box.boxes", y, 4 * classes)
    tape.op(ops.cross_entropy("box.loss", regions, classes))
    tape.op(host.boxes.op("box.sampling", 0.0, 100.0 * regions, bwd=20.0))
    tape.block("box")
    if masks:
        y = crop(tape, cropped, positives, 14)
        tape.op(host.regions.op("mask.levels", 0.0, 10.0 * positives))
        for i in range(4):
            y = tape.act("mask", tape.conv(f"mask.conv{i}", y, 256, 3, bias=True), "relu")
        y = tape.conv("mask.up", y, 256, 2, stride=2, transposed=True, bias=True)
        y = tape.conv("mask.logits", tape.act("mask", y, "relu"), classes, 1, bias=True)
        tape.op(MASKS[mask_targets].op("mask.loss", positives, 6.0 * y.elems / classes, bwd=6.0))
        tape.block("mask")
    tape.op(ops.loss_seed())
    tape.block("loss")
    made = tape.workload(name, sample_unit, input_bytes=FP32_BYTES * 3.0 * height * width)
    return made.replace(buffers_numel=tape.resident)


def _focal(scores: float, *, fused: bool) -> Op:
    """The focal loss: about ten elementwise passes over all scores each way, or one kernel."""
    if fused:
        one = Kernel(kind="elementwise", high=2.0 * scores)
        return Op(name="focal", fwd=(one,), bwd=(one,), saved=Saved(high=scores))
    plain = _small("focal", 10.0, 20.0 * scores, bwd=10.0)
    return replace(plain, saved=Saved(high=_FOCAL_KEEPS * scores))


@ARCHS.register("retinanet")
def retinanet(
    *, name: str, sample_unit: str = "image", height: int = 800, width: int = 1216,
    classes: int = 80, depth: int = 50, norms: Norms = "constant", fused_focal: bool = False,
) -> Workload:  # fmt: skip
    """RetinaNet on a ResNet of ``depth`` (Lin et al. 2017): levels 3 to 7, two heads of four 3x3.

    ``fused_focal``: the focal loss is one kernel each way, which saves the scores.
    """
    check_names(norms=(norms, NORMS))
    tape = Tape(norms=norms)
    levels = _pyramid(tape, _maps(tape, (height, width), depth)[1:], 256)
    p6 = tape.conv("p6", levels[-1], 256, 3, stride=2, bias=True)
    p7 = tape.conv("p7", p6, 256, 3, stride=2, bias=True)
    levels += [p6, p7]
    tape.block("fpn")
    total = 0.0
    for i, level in enumerate(levels):
        for head, out in (("class", 9 * classes), ("box", 36)):
            y = level
            for j in range(4):
                y = tape.conv(f"{head}.{j}", y, 256, 3, bias=True, shared=i > 0)
                y = tape.act(head, y, "relu")
            tape.conv(f"{head}.out", y, out, 3, bias=True, shared=i > 0)
        total += 9 * level.points
    tape.op(_focal(total * classes, fused=fused_focal))
    tape.op(RETINANET.op("matching", 0.0, 100.0 * total, bwd=20.0))
    tape.op(ops.loss_seed())
    tape.block("heads")
    made = tape.workload(name, sample_unit, input_bytes=FP32_BYTES * 3.0 * height * width)
    return made.replace(buffers_numel=tape.resident)
