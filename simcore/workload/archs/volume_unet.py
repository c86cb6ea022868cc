"""U-Nets of medical images and volumes: nnU-Net (Isensee et al. 2021), 3D U-Net, and V-Net.

``unet_volume`` is the network of nnU-Net and of 3D U-Net (monai/networks/nets/dynunet.py;
DeepLearningExamples, PyTorch/Segmentation/nnUNet); ``vnet`` is V-Net as a TensorFlow program
builds it (DeepLearningExamples, TensorFlow/Segmentation/VNet).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from simcore.base.units import FP32_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.parts import check_names
from simcore.workload.archs.tape import T, Tape
from simcore.workload.graph import Affine, Kernel, Op, Workload
from simcore.workload.saved import Saved

#: Passes over the scores of all classes in Dice and cross-entropy: softmax, log-softmax, one-hot
#: labels, products and three sums; in backward the gradients of both (monai/losses/dice.py).
_LOSS_PASSES, _LOSS_BACK_PASSES = 14.0, 10.0
_LOSS_LAUNCHES, _LOSS_BACK_LAUNCHES = 24.0, 20.0


def _instance_norm(tape: Tape, name: str, x: T) -> T:
    """A BatchNorm over channels of single samples, whose scale and shift are repeated for each."""
    op = ops.batch_norm(f"{name}.norm", x.elems, x.c, save_input=False, channels_first=True)

    def of_samples(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
        return tuple(replace(k, blocks=Affine(0.0, k.blocks.fixed)) for k in kernels)

    repeated = Kernel(kind="copy", raw_bytes=2.0 * FP32_BYTES * x.c, launches=2.0)
    summed = Kernel(kind="reduction", raw_bytes=2.0 * FP32_BYTES * x.c, launches=2.0)
    op = replace(op, fwd=(repeated, *of_samples(op.fwd)), bwd=(*of_samples(op.bwd), summed))
    tape.weights(f"{name}.norm", x.c, x.c)
    return tape.apply(op, T(x.c, x.grid), x, saves=(x,))


def _loss(tape: Tape, scores: float) -> None:
    fwd = Kernel(kind="elementwise", high=_LOSS_PASSES * scores, launches=_LOSS_LAUNCHES)
    bwd = Kernel(kind="elementwise", high=_LOSS_BACK_PASSES * scores, launches=_LOSS_BACK_LAUNCHES)
    tape.op(Op(name="loss", fwd=(fwd,), bwd=(bwd,), saved=Saved(high=3.0 * scores)))
    tape.op(ops.loss_seed())
    tape.block("head")


def _sides(key: str, text: str) -> tuple[int, ...]:
    words = text.split("x")
    if not 1 < len(words) < 4 or not all(w.isdigit() and int(w) for w in words):
        raise ValueError(f"{key} {text!r} is not of the form 128x128x128 or 192x160")
    return tuple(map(int, words))


@ARCHS.register("unet_volume")
def build(
    *,
    name: str,
    sample_unit: str = "volume",
    image: str = "128x128x128",
    channels: int = 4,
    classes: int = 4,
    width: int = 32,
    most: int = 320,
    levels: int = 6,
    act: str = "leaky_relu",
    layout: str = "nchw",
) -> Workload:
    """A U-Net of two 3-wide convolutions, instance norms and activations a level.

    Each of ``levels`` halves the sides and doubles channels up to ``most``. ``act``: leaky_relu (in
    place) or relu (its result is a new tensor).
    """
    check_names(act=(act, ("leaky_relu", "relu")))
    grid = _sides("image", image)
    if any(side % 2 ** (levels - 1) for side in grid):
        raise ValueError(f"image {image} does not halve {levels - 1} times")
    tape = Tape(nchw=layout == "nchw")

    def conv(label: str, x: T, out: int, stride: int = 1) -> T:
        y = _instance_norm(tape, label, tape.conv(label, x, out, 3, stride=stride))
        return tape.act(label, y, "relu", inplace=act == "leaky_relu")

    widths = [min(width * 2**i, most) for i in range(levels)]
    x, skips = tape.input(channels, grid), []
    for i, w in enumerate(widths):
        x = conv("conv2", conv("conv1", x, w, 1 if i == 0 else 2), w)
        skips.append(x)
        tape.block(f"down{i}")
    for i in reversed(range(levels - 1)):
        up = tape.conv("up", x, widths[i], 2, stride=2, transposed=True, bias=True)
        joined = tape.concat("concat", [up, skips[i]])
        x = conv("conv2", conv("conv1", joined, widths[i]), widths[i])
        tape.block(f"up{i}")
    x = tape.conv("classes", x, classes, 1, bias=True)
    _loss(tape, x.elems)
    inputs = FP32_BYTES * (channels + 1) * prod(grid)
    return tape.workload(name, sample_unit, input_bytes=inputs)


@ARCHS.register("vnet")
def vnet(
    *,
    name: str,
    sample_unit: str = "volume",
    image: str = "32x32x32",
    channels: int = 1,
    classes: int = 3,
    width: int = 16,
    levels: int = 3,
    convolutions: int = 3,
    layout: str = "nhwc",
) -> Workload:
    """V-Net: blocks of 3-wide convolutions with a sum around each, BatchNorm and ReLU."""
    grid = _sides("image", image)
    if any(side % 2**levels for side in grid):
        raise ValueError(f"image {image} does not halve {levels} times")
    tape = Tape(nchw=layout == "nchw")

    def conv(
        label: str, x: T, out: int, kernel: int = 3, stride: int = 1, *, up: bool = False
    ) -> T:
        y = tape.conv(label, x, out, kernel, stride=stride, pad=None if kernel == 3 else 0,
                      transposed=up, bias=True)  # fmt: skip
        return tape.act(label, tape.batch_norm(label, y), "relu", inplace=False)

    def summed(x: T) -> T:
        y = x
        for i in range(convolutions):
            y = conv(f"conv{i}", y, x.c)
        return tape.add("sum", y, x)

    first = tape.input(channels, grid)
    x = tape.add("sum", conv("first", first, width), first)
    tape.block("first")
    skips = [x]
    for i in range(levels):
        x = summed(conv("down", x, 2 * x.c, 2, 2))
        skips.append(x)
        tape.block(f"down{i}")
    for i in reversed(range(1, levels)):
        up = conv("up", x, skips[i].c, 2, 2, up=True)
        x = summed(tape.concat("concat", [up, skips[i]]))
        tape.block(f"up{i}")
    x = conv("up", x, width, 2, 2, up=True)
    x = tape.conv("classes", x, classes, 3, bias=True)
    _loss(tape, x.elems)
    inputs = FP32_BYTES * (channels + classes) * prod(grid)
    return tape.workload(name, sample_unit, input_bytes=inputs)
