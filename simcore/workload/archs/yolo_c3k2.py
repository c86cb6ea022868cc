"""YOLO11 (Jocher & Qiu 2024): one-stage detector of cross-stage blocks, a head of three levels.

As ultralytics builds it (cfg/models/11/yolo11.yaml; nn/modules: Conv, C3k2, C3k, SPPF, C2PSA,
Detect) and trains it (utils/loss.py, v8DetectionLoss; utils/tal.py, TaskAlignedAssigner).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from simcore.base.units import FP32_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.parts import check_names
from simcore.workload.archs.tape import T, Tape
from simcore.workload.graph import Kernel, Op, Workload
from simcore.workload.saved import Saved


class _Scale(NamedTuple):
    """Factors of repeats and channels, the most channels, and whether all blocks are nested."""

    depth: float
    width: float
    most: int
    nested: bool


_SCALES = {
    "n": _Scale(0.5, 0.25, 1024, False), "s": _Scale(0.5, 0.5, 1024, False),
    "m": _Scale(0.5, 1.0, 512, True), "l": _Scale(1.0, 1.0, 512, True),
    "x": _Scale(1.0, 1.5, 512, True),
}  # fmt: skip
_BINS = 16  # of the distribution of each side of a box
#: Kernels of the loss in one pass each way, counted in loss.py and tal.py: anchors, boxes of the
#: targets, decoding, metrics of all pairs of anchors and boxes, the ten best of each, targets, and
#: three losses. The host waits twice (nonzero).
_LOSS_LAUNCHES, _LOSS_BACK_LAUNCHES = 190.0, 90.0
#: Passes over a tensor of pairs of anchors and boxes (fp32), and over one of scores.
_PAIR_PASSES, _SCORE_PASSES = 40.0, 12.0


class _Net:
    def __init__(self, tape: Tape, scale: _Scale) -> None:
        self.tape, self.scale = tape, scale

    def channels(self, stated: int) -> int:
        """Channels at this scale, a multiple of 8."""
        return -(-int(min(stated, self.scale.most) * self.scale.width) // 8) * 8

    def conv(self, name: str, x: T, channels: int, kernel: int = 1, stride: int = 1, *,
             groups: int = 1, act: bool = True) -> T:  # fmt: skip
        """Convolution, norm and SiLU."""
        return self.tape.unit(
            name, x, channels, kernel, stride=stride, groups=groups, act="silu" if act else "none"
        )

    def bottleneck(self, name: str, x: T, inner: int) -> T:
        """Two 3x3 convolutions and the sum with their input."""
        y = self.conv(f"{name}.1", x, inner, 3)
        return self.tape.add(f"{name}.sum", x, self.conv(f"{name}.2", y, x.c, 3))

    def part(self, x: T, channels: int) -> T:
        """A view of some channels; backward joins the parts' gradients (``parts``)."""
        return T(channels, x.grid, x.pinned, 0, x.grad)

    def parts(self, name: str, x: T) -> None:
        self.tape.op(ops.grad_only(f"{name}.chunk", 2.0 * x.elems, kind="copy"))

    def nested(self, name: str, x: T) -> T:
        """C3k: two bottlenecks beside a convolution, joined."""
        half = x.c // 2
        a = self.conv(f"{name}.a", x, half)
        for i in range(2):
            a = self.bottleneck(f"{name}.{i}", a, half)
        joined = self.tape.concat(f"{name}.cat", [a, self.conv(f"{name}.b", x, half)])
        return self.conv(f"{name}.out", joined, x.c)

    def cross_stage(self, x: T, stated: int, *, nested: bool, share: float = 0.5) -> T:
        """C3k2: each inner block's result is kept and joined to the halves of a first product."""
        channels = self.channels(stated)
        inner = int(channels * share)
        both = self.conv("in", x, 2 * inner)
        self.parts("in", both)
        kept = [self.part(both, inner), self.part(both, inner)]
        for i in range(max(round(2 * self.scale.depth), 1)):
            is_nested = nested or self.scale.nested
            last = kept[-1]
            made = self.nested(f"c{i}", last) if is_nested else self.bottleneck(
                f"c{i}", last, inner // 2)  # fmt: skip
            kept.append(made)
        y = self.conv("out", self.tape.concat("cat", kept), channels)
        self.tape.block("c3k2")
        return y

    def pooled(self, x: T) -> T:
        """SPPF: three max poolings one after the other, all joined."""
        kept = [self.conv("in", x, x.c // 2)]
        for i in range(3):
            kept.append(self.tape.max_pool(f"pool{i}", kept[-1], 5, 1, 2))
        y = self.conv("out", self.tape.concat("cat", kept), x.c)
        self.tape.block("sppf")
        return y

    def attending(self, x: T) -> T:
        """C2PSA: half of the channels pass attention over all pixels and a feed-forward layer."""
        tape, inner = self.tape, x.c // 2
        both = self.conv("in", x, 2 * inner)
        self.parts("in", both)
        a, b = self.part(both, inner), self.part(both, inner)
        heads = max(inner // 64, 1)
        for i in range(max(round(2 * self.scale.depth), 1)):
            b = tape.add(f"attn{i}.sum", b, self._attention(f"attn{i}", b, heads))
            y = self.conv(f"ffn{i}.1", b, 2 * inner)
            b = tape.add(f"ffn{i}.sum", b, self.conv(f"ffn{i}.2", y, inner, act=False))
        y = self.conv("out", tape.concat("cat", [a, b]), x.c)
        tape.block("c2psa")
        return y

    def _attention(self, name: str, x: T, heads: int) -> T:
        """Attention with scores in memory; keys are half as wide as values."""
        tape, rows = self.tape, int(x.points)
        wide, narrow = x.c // heads, x.c // heads // 2
        qkv = self.conv(f"{name}.qkv", x, x.c + 2 * narrow * heads, act=False)
        self.parts(f"{name}.qkv", qkv)
        scores = float(heads) * rows * rows
        tape.op(ops.bmm(f"{name}.scores", heads, rows, rows, narrow))
        tape.op(ops.scale(f"{name}.scale", scores))
        tape.op(ops.softmax(f"{name}.softmax", scores, row=float(rows)))
        tape.op(ops.bmm(f"{name}.values", heads, wide, rows, rows))
        out, v = T(x.c, x.grid), T(x.c, x.grid)
        tape.op(ops.copy(f"{name}.v", v.elems))
        y = tape.add(
            f"{name}.with_pe", out, self.conv(f"{name}.pe", v, x.c, 3, groups=x.c, act=False)
        )
        return self.conv(f"{name}.proj", y, x.c, act=False)

    def head(self, levels: Sequence[T], classes: int) -> float:
        """Boxes and scores of each level; returns the number of anchors."""
        tape, first = self.tape, levels[0].c
        boxes = max(16, first // 4, 4 * _BINS)
        inner = max(first, min(classes, 100))
        for i, x in enumerate(levels):
            y = self.conv("box1", x, boxes, 3)
            y = self.conv("box2", y, boxes, 3)
            tape.conv("box3", y, 4 * _BINS, 1, bias=True)
            y = self.conv("class1.depthwise", x, x.c, 3, groups=x.c)
            y = self.conv("class1", y, inner)
            y = self.conv("class2.depthwise", y, inner, 3, groups=inner)
            y = self.conv("class2", y, inner)
            tape.conv("class3", y, classes, 1, bias=True)
            tape.op(ops.copy("join", x.points * (4 * _BINS + classes)))
            tape.block(f"detect{i}")
        return sum(x.points for x in levels)


def _loss(tape: Tape, anchors: float, classes: int, boxes: float) -> None:
    pairs, scores, sides = anchors * boxes, anchors * classes, anchors * 4 * _BINS
    moved = FP32_BYTES * (_PAIR_PASSES * pairs + _SCORE_PASSES * scores + 6.0 * sides)
    back = FP32_BYTES * (5.0 * scores + 8.0 * sides)
    fwd = Kernel(kind="elementwise", raw_bytes=moved, launches=_LOSS_LAUNCHES)
    bwd = Kernel(kind="elementwise", raw_bytes=back, launches=_LOSS_BACK_LAUNCHES)
    kept = Saved(raw_bytes=FP32_BYTES * (3.0 * scores + 2.0 * sides))
    tape.op(Op(name="loss", fwd=(fwd,), bwd=(bwd,), saved=kept))
    tape.op(ops.loss_seed())
    tape.block("loss")


@ARCHS.register("yolo_c3k2")
def build(
    *,
    name: str,
    sample_unit: str = "image",
    scale: str = "n",
    image: int = 640,
    classes: int = 80,
    boxes: int = 40,
    layout: str = "nchw",
) -> Workload:
    """YOLO11 of one of the scales n, s, m, l and x on square images.

    ``boxes``: boxes of the image with most of them in a batch, to which the assigner pads. Mosaic
    joins four images with 7.3 boxes each (COCO), about 40 in the fullest.
    """
    check_names(scale=(scale, tuple(_SCALES)))
    if image % 32:
        raise ValueError(f"image {image} is not a multiple of 32")
    tape = Tape(nchw=layout == "nchw")
    net = _Net(tape, _SCALES[scale])
    x = net.conv("conv0", tape.input(3, (image, image)), net.channels(64), 3, 2)
    x = net.conv("conv1", x, net.channels(128), 3, 2)
    tape.block("stem")
    x = net.cross_stage(x, 256, nested=False, share=0.25)
    x = net.conv("down3", x, net.channels(256), 3, 2)
    p3 = x = net.cross_stage(x, 512, nested=False, share=0.25)
    x = net.conv("down4", x, net.channels(512), 3, 2)
    p4 = x = net.cross_stage(x, 512, nested=True)
    x = net.conv("down5", x, net.channels(1024), 3, 2)
    x = net.pooled(net.cross_stage(x, 1024, nested=True))
    p5 = net.attending(x)
    up = tape.concat("cat4", [tape.upsample("up4", p5, 2), p4])
    n4 = net.cross_stage(up, 512, nested=False)
    up = tape.concat("cat3", [tape.upsample("up3", n4, 2), p3])
    out3 = net.cross_stage(up, 256, nested=False)
    down = net.conv("down3", out3, net.channels(256), 3, 2)
    out4 = net.cross_stage(tape.concat("join4", [down, n4]), 512, nested=False)
    down = net.conv("down4", out4, net.channels(512), 3, 2)
    out5 = net.cross_stage(tape.concat("join5", [down, p5]), 1024, nested=True)
    anchors = net.head((out3, out4, out5), classes)
    _loss(tape, anchors, classes, float(boxes))
    inputs = 1.0 * 3 * image * image + 24.0 * boxes  # pixels of one byte
    made = tape.workload(name, sample_unit, input_bytes=inputs)
    # The 16 constants of the bins are a parameter without gradient.
    return made.replace(buffers_numel=made.buffers_numel + _BINS)
