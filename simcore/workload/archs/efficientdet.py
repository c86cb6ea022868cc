"""EfficientDet-D0 (Tan et al. 2020) in PyTorch, after R. Wightman's code.

It consists of EfficientNet-B0 without its head; a pyramid of levels 3 to 7 that runs in both
directions (``cells`` times) and fuses maps with learned non-negative weights; and two heads of
depthwise-separable layers, whose weights, but not norms, all levels share. Convolutions before a
norm have no bias, and pooling is padded evenly (effdet/model.py, config/model_config.py:
``efficientdet_d0``). The loader labels the anchors.
"""

from __future__ import annotations

from simcore.base.units import FP32_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.layers import feature_maps
from simcore.workload.archs.parts import check_names
from simcore.workload.archs.tape import T, Tape
from simcore.workload.graph import Kernel, Op, Workload
from simcore.workload.saved import Saved

#: Level above the finest, and inputs by number, of each node of a cell. Inputs 0 to 4 are the
#: levels that enter the cell, 5 and up are preceding nodes: first down to the finest level, then
#: up.
_NODES = (
    (3, (3, 4)), (2, (2, 5)), (1, (1, 6)), (0, (0, 7)),
    (1, (1, 7, 8)), (2, (2, 6, 9)), (3, (3, 5, 10)), (4, (4, 11)),
)  # fmt: skip
_ANCHORS = 9  # three scales times three shapes
_BOX = 4
_LABEL_BYTES = 8.0  # an int64 per anchor
#: Rows of classes are padded to whole loads of 16 bytes for the fused focal loss.
_PADDED_TO = 8
#: Kernels of the Huber loss per level (effdet/loss.py) and the tensors that they move, each way;
#: and the tensors that it saves.
_HUBER_FWD, _HUBER_BWD, _HUBER_KEPT = (13.0, 30.0), (12.0, 30.0), 5.0


def _weighted_sum(tape: Tape, parts: list[T]) -> T:
    """``sum(x_i * relu(w_i) / (sum(relu(w)) + eps))`` in eager operators.

    Each part is multiplied, divided, stacked along a last dimension, and summed over it, which
    autocast does in fp32. The product saves its part, the quotient its dividend. Backward goes
    through each operator, also for the scalars: ``-g * ((x / d) / d)`` and a sum for the quotient's
    divisor, ``g * x`` and a sum for the product.
    """
    k, e = float(len(parts)), parts[0].elems
    if tape.xla:
        return _compiled_sum(tape, parts)
    stack_16_bit = (
        2.0 + k
    ) * e  # autocast's 16-bit gradient of the stack, written out; a view in fp32
    fwd = (
        Kernel(kind="elementwise", launches=3.0),  # relu, sum and eps of the weights
        Kernel(kind="elementwise", low=4.0 * k * e, launches=2.0 * k),
        Kernel(kind="copy", low=2.0 * k * e),
        Kernel(kind="reduction", low=k * e, high=e),
    )
    bwd = (
        Kernel(kind="elementwise", low=-stack_16_bit, high=stack_16_bit, launches=0.0),
        Kernel(kind="elementwise", low=16.0 * k * e, launches=7.0 * k),
        Kernel(kind="reduction", low=2.0 * k * e, launches=2.0 * k),
        Kernel(kind="elementwise", launches=2.0 * k + 3.0),  # gradients of the weights put together
    )
    tape.param("fuse.edge_weights", len(parts))
    op = Op(name="fuse", fwd=fwd, bwd=bwd, saved=Saved(low=k * e))
    return tape.apply(op, T(parts[0].c, parts[0].grid, high=True), *parts, saves=parts)


def _compiled_sum(tape: Tape, parts: list[T]) -> T:
    """The same sum and the following activation in one kernel; backward computes the sum again.

    One kernel sums over the gradients of the weights, one writes those of the parts.
    """
    k, e = float(len(parts)), parts[0].elems
    fwd = Kernel(kind="elementwise", low=(k + 1.0) * e)
    bwd = (
        Kernel(kind="reduction", low=(k + 1.0) * e),
        Kernel(kind="elementwise", low=(2.0 * k + 1.0) * e),
    )
    tape.param("fuse.edge_weights", len(parts))
    op = Op(name="fuse", fwd=(fwd,), bwd=bwd)
    return tape.apply(op, T(parts[0].c, parts[0].grid), *parts, saves=parts)


def _separable(
    tape: Tape, name: str, x: T, cout: int, *, bias: bool = False, shared: bool = False
) -> T:
    y = tape.conv(f"{name}.depthwise", x, x.c, 3, groups=x.c, shared=shared)
    return tape.conv(f"{name}.pointwise", y, cout, 1, bias=bias, shared=shared)


def _resample(tape: Tape, x: T, channels: int, side: int) -> T:
    """``x`` brought to ``channels`` by 1x1 and norm, and to ``side`` by pooling or doubling."""
    if x.c != channels:
        x = tape.unit("resample", x, channels, 1, act="none")
    if x.grid[0] > side:
        return tape.max_pool("downsample", x, 3, 2, 1)
    return tape.upsample("upsample", x, 2) if x.grid[0] < side else x


def _cell(tape: Tape, levels: list[T], channels: int) -> list[T]:
    """The levels after one pass of the pyramid, down and up."""
    nodes, sides = list(levels), [level.grid[0] for level in levels]
    for level, inputs in _NODES:
        parts = [_resample(tape, nodes[i], channels, sides[level]) for i in inputs]
        x = tape.act("node", _weighted_sum(tape, parts), "silu")
        x = tape.narrow("node.cast", x) if x.high else x
        x = _separable(tape, "node", x, channels)
        nodes.append(tape.batch_norm("node", x))
    return nodes[-len(levels) :]


def _head(tape: Tape, name: str, levels: list[T], depth: int, out: int) -> list[T]:
    """``depth`` separable layers and the prediction for all levels, with the same weights."""
    predictions = []
    for i, level in enumerate(levels):
        x = level
        for j in range(depth):
            x = _separable(tape, f"{name}.{j}", x, x.c, shared=i > 0)
            x = tape.act(name, tape.batch_norm(f"{name}.{j}", x), "silu")
        predictions.append(_separable(tape, f"{name}.predict", x, out, bias=True, shared=i > 0))
    return predictions


def _losses(tape: Tape, scores: list[T], boxes: list[T]) -> None:
    """Add the losses of each level.

    The focal loss is one kernel, which also computes its gradient; the Huber loss is many kernels.
    """
    levels, elems = float(len(scores)), sum(x.elems for x in scores)
    if tape.xla:  # each loss is one sum over its inputs; backward reads these once more and writes
        kept = Saved(low=elems + sum(x.elems for x in boxes))
        fwd = Kernel(kind="reduction", low=kept.low, launches=2.0 * levels)
        bwd = Kernel(kind="elementwise", low=2.0 * kept.low, launches=2.0 * levels)
        tape.op(Op(name="losses", fwd=(fwd,), bwd=(bwd,), saved=kept))
        tape.op(ops.loss_seed())
        return
    turn = Kernel(kind="copy", low=2.0 * elems, launches=levels)  # to rows of one anchor's classes
    labels = _ANCHORS * sum(x.points for x in scores)
    loss = Kernel(
        kind="elementwise", low=2.0 * elems, raw_bytes=_LABEL_BYTES * labels, launches=2.0 * levels
    )
    scale = Kernel(kind="elementwise", low=2.0 * elems, launches=levels)
    tape.op(Op(name="focal", fwd=(turn, loss), bwd=(scale, turn), saved=Saved(low=elems)))
    errors = sum(x.elems for x in boxes)

    def huber(launches: float, moved: float) -> Kernel:
        return Kernel(kind="elementwise", high=moved * errors, launches=launches * levels)

    tape.op(
        Op(name="huber", fwd=(huber(*_HUBER_FWD),), bwd=(huber(*_HUBER_BWD),),
           saved=Saved(high=_HUBER_KEPT * errors))
    )  # fmt: skip
    tape.op(ops.loss_seed())


@ARCHS.register("efficientdet")
def efficientdet(
    *,
    name: str,
    sample_unit: str = "image",
    image: int = 512,
    classes: int = 90,
    channels: int = 64,
    cells: int = 3,
    depth: int = 3,
    padded_classes: bool = False,
    layout: str = "nchw",
    xla: bool = False,
    depthwise_kernels: str = "cudnn",
) -> Workload:
    """EfficientDet on EfficientNet-B0; the defaults are those of D0.

    ``cells`` of the pyramid with ``channels``; ``depth`` layers in each head. ``padded_classes``:
    scores are padded to a multiple of eight per box, as the fused focal loss requires. ``xla``: XLA
    compiles all, the losses too. ``depthwise_kernels``: as in the record of ``inverted_residual``.
    """
    if image % 128 or image <= 0:
        raise ValueError(f"image={image} must be a multiple of 128, the coarsest level's stride")
    check_names(
        layout=(layout, ("nhwc", "nchw")),
        depthwise_kernels=(depthwise_kernels, ("cudnn", "native")),
    )
    tape = Tape(nchw=layout == "nchw", xla=xla, native_depthwise=depthwise_kernels == "native")
    pixels = tape.input(3, (image, image))
    # The loader sends bytes, which are cast to fp32 and normalised by mean and deviation.
    scaled = Kernel(kind="elementwise", raw_bytes=(5.0 + 8.0 + 8.0) * pixels.elems, launches=3.0)
    tape.op(Op(name="normalise", fwd=(scaled,)))
    maps = feature_maps(tape, "inverted_residual", (image, image), stochastic_depth=True)
    levels = [maps[f"stage{stage}"] for stage in (3, 5, 7)]
    coarse = levels[-1].grid[0] // 2
    levels.append(_resample(tape, levels[-1], channels, coarse))
    levels.append(_resample(tape, levels[-1], channels, coarse // 2))
    for _ in range(cells):
        levels = _cell(tape, levels, channels)
        tape.block("cell")
    width = -(-classes // _PADDED_TO) * _PADDED_TO if padded_classes else classes
    scores = _head(tape, "class", levels, depth, _ANCHORS * width)
    tape.block("class")
    boxes = _head(tape, "box", levels, depth, _ANCHORS * _BOX)
    _losses(tape, scores, boxes)
    tape.block("box")
    anchors = _ANCHORS * sum(x.points for x in scores)
    sent = pixels.elems + anchors * (_LABEL_BYTES + _BOX * FP32_BYTES)
    return tape.workload(name, sample_unit, input_bytes=sent)
