"""Image classifiers other than the plain ResNet, on RGB images with a cross-entropy loss.

ResNeXt and SE-ResNeXt, EfficientNet V1 and V2, MobileNet V2, VGG and AlexNet.

``layout="nchw"``, PyTorch's default: tensors are channels first, but matrix units want channels
last, so that cuDNN transposes input and output of each convolution. ``"nhwc"``: tensors are
channels last (``memory_format=torch.channels_last``). ``fused_norm``: BatchNorm, the residual sum
and ReLU are one kernel, as in NVIDIA's channels-last kernels. ``xla``: XLA compiles the network
(docs/families.md).
"""

from __future__ import annotations

import math

from simcore.base.units import FP32_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.checks import check_names
from simcore.workload.archs.tape import T, Tape
from simcore.workload.graph import Workload

_RESNETS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


def finish(tape: Tape, name: str, unit: str, x: T, image: int, classes: int) -> Workload:
    """The workload, with a linear head and the loss added."""
    x = tape.linear("fc", tape.reshape(x, x.c * math.prod(x.grid), (1,)), classes)
    tape.op(ops.cross_entropy("loss", 1, classes))
    tape.op(ops.loss_seed())
    tape.block("head")
    return tape.workload(name, unit, input_bytes=FP32_BYTES * 3.0 * image * image + 8)


def bottleneck(
    tape: Tape,
    name: str,
    x: T,
    width: int,
    cout: int,
    stride: int,
    *,
    groups: int = 1,
    se_width: int = 0,
) -> T:
    """Convolutions 1x1, 3x3 (with the stride), 1x1; squeeze-and-excitation; the residual sum."""
    y = tape.unit(f"{name}.1", x, width, 1)
    y = tape.unit(f"{name}.2", y, width, 3, stride=stride, groups=groups)
    y = tape.unit(f"{name}.3", y, cout, 1, act="none")
    if se_width:
        y = tape.squeeze_excite(f"{name}.se", y, se_width)
    if stride != 1 or x.c != cout:
        short = tape.unit(f"{name}.down", x, cout, 1, stride=stride, act="none")
    else:
        short = x
    return tape.add(f"{name}.residual", y, short, relu=True)


def check_layout(layout: str) -> bool:
    """Whether tensors are channels first."""
    if layout not in ("nhwc", "nchw"):
        raise ValueError(f"layout {layout!r} is neither 'nhwc' nor 'nchw'")
    return layout == "nchw"


def native_depthwise(kernels: str) -> bool:
    """Whether the framework's own kernels run depthwise convolutions. Raises ValueError."""
    check_names(depthwise_kernels=(kernels, ("cudnn", "native")))
    return kernels == "native"


@ARCHS.register("resnext")
def resnext(
    *,
    name: str,
    sample_unit: str = "image",
    depth: int,
    groups: int = 1,
    width_per_group: int = 64,
    se: bool = False,
    se_ratio: int = 16,
    se_width: int = 0,
    image: int = 224,
    classes: int = 1000,
    layout: str = "nchw",
    fused_norm: bool = False,
    xla: bool = False,
) -> Workload:
    """Bottleneck ResNet of ``depth`` 50, 101 or 152; the plain one has ``groups=1`` and width 64.

    Xie et al. 2017. ``se`` adds squeeze-and-excitation with ``channels / se_ratio`` channels, or
    ``se_width`` channels everywhere.
    """
    if depth not in _RESNETS:
        raise ValueError(f"depth {depth} is none of {', '.join(map(str, _RESNETS))}")
    tape = Tape(nchw=check_layout(layout) and not fused_norm, fused_norm=fused_norm, xla=xla)
    x = tape.unit("stem", tape.input(3, (image, image)), 64, 7, stride=2)
    x = tape.max_pool("pool", x, 3, 2, 1)
    tape.block("stem")
    for stage, count in enumerate(_RESNETS[depth]):
        width = (64 << stage) * width_per_group * groups // 64
        cout = 256 << stage
        for i in range(count):
            source = x
            x = bottleneck(
                tape, f"layer{stage + 1}", x, width, cout, 2 if stage and not i else 1,
                groups=groups, se_width=(se_width or cout // se_ratio) if se else 0,
            )  # fmt: skip
            tape.block(f"layer{stage + 1}", boundary=source)
    return finish(tape, name, sample_unit, tape.mean("mean", x), image, classes)


#: Expansion, kernel size, stride, channels, repeats (Tan & Le 2019, table 1).
EFFICIENT = (
    (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1),
)  # fmt: skip
#: The same for MobileNet V2 (Sandler et al. 2018, table 2).
_MOBILE_V2 = (
    (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 3, 2, 32, 3), (6, 3, 2, 64, 4),
    (6, 3, 1, 96, 3), (6, 3, 2, 160, 3), (6, 3, 1, 320, 1),
)  # fmt: skip
#: The same for EfficientNet V2 S (Tan & Le 2021, table 4); the first three stages fuse expansion
#: and depthwise convolution.
_EFFICIENT_V2 = (
    (1, 3, 1, 24, 2), (4, 3, 2, 48, 4), (4, 3, 2, 64, 4), (4, 3, 2, 128, 6),
    (6, 3, 1, 160, 9), (6, 3, 2, 256, 15),
)  # fmt: skip
#: Rows, channels of the stem and fused stages of each family.
_INVERTED = {
    "efficientnet": (EFFICIENT, 32, 0),
    "efficientnet_v2": (_EFFICIENT_V2, 24, 3),
    "mobilenet_v2": (_MOBILE_V2, 32, 0),
}


def round8(width: float) -> int:
    """``width`` rounded to a multiple of eight channels, but never below nine tenths of it."""
    out = max(8, int(width + 4) // 8 * 8)
    return out + 8 if out < 0.9 * width else out


def _fused(tape: Tape, x: T, expand: int, kernel: int, stride: int, cout: int) -> T:
    """A dense convolution in place of the expansion and the depthwise convolution."""
    inner = x.c * expand if expand != 1 else cout
    y = tape.unit("fused", x, inner, kernel, stride=stride, act="silu")
    y = tape.unit("project", y, cout, 1, act="none") if expand != 1 else y
    return tape.add("residual", y, x) if stride == 1 and x.c == cout else y


def inverted(
    tape: Tape, x: T, expand: int, kernel: int, stride: int, cout: int, act: str, se: str
) -> T:
    """Expansion, depthwise convolution, squeeze-and-excitation, projection and the residual sum."""
    kind = "silu" if act == "silu" else "relu"
    inner = x.c * expand
    y = tape.unit("expand", x, inner, 1, act=kind) if expand != 1 else x  # type: ignore[arg-type]
    y = tape.unit("depthwise", y, inner, kernel, stride=stride, groups=inner, act=kind)  # type: ignore[arg-type]
    if se != "none":
        squeezed = max(1, (inner if se == "wide" else x.c) // 4)
        y = tape.squeeze_excite("se", y, squeezed, act="silu")
    y = tape.unit("project", y, cout, 1, act="none")
    return tape.add("residual", y, x) if stride == 1 and x.c == cout else y


@ARCHS.register("inverted_residual")
def inverted_residual(
    *,
    name: str,
    sample_unit: str = "image",
    family: str = "efficientnet",
    width: float = 1.0,
    depth: float = 1.0,
    image: int = 224,
    classes: int = 1000,
    se: str = "narrow",
    dropout: bool = True,
    layout: str = "nchw",
    xla: bool = False,
    depthwise_kernels: str = "cudnn",
) -> Workload:
    """EfficientNet (SiLU, squeeze-and-excitation), EfficientNet V2 S, or MobileNet V2 (ReLU6).

    ``family``: "efficientnet", "efficientnet_v2", "mobilenet_v2".

    ``se``: "narrow" squeezes to a quarter of the block's input channels, "wide" to a quarter of its
    expanded channels, "none" leaves squeeze-and-excitation out. Stochastic depth does not reduce
    the work. ``depthwise_kernels``: cudnn, or native: the framework's own in either layout (PyTorch
    before 1.11).
    """
    if family not in _INVERTED:
        raise ValueError(f"family {family!r} is none of {', '.join(_INVERTED)}")
    rows, stem, n_fused = _INVERTED[family]
    if se not in ("narrow", "wide", "none"):
        raise ValueError(f"se {se!r} is none of narrow, wide, none")
    mobile = family == "mobilenet_v2"
    act = "relu" if mobile else "silu"
    tape = Tape(
        nchw=check_layout(layout), xla=xla, native_depthwise=native_depthwise(depthwise_kernels)
    )
    x = tape.input(3, (image, image))
    x = tape.unit("stem", x, round8(stem * width), 3, stride=2, act=act)  # type: ignore[arg-type]
    tape.block("stem")
    for stage, (expand, kernel, stride, channels, repeats) in enumerate(rows):
        for i in range(math.ceil(repeats * depth)):
            source = x
            step, cout = stride if not i else 1, round8(channels * width)
            if stage < n_fused:
                x = _fused(tape, x, expand, kernel, step, cout)
            else:
                x = inverted(tape, x, expand, kernel, step, cout, act, se)
            tape.block(f"stage{stage + 1}", boundary=source)
    x = tape.unit("top", x, round8(1280 * max(width, 1.0)), 1, act=act)  # type: ignore[arg-type]
    x = tape.mean("mean", x)
    x = tape.dropout("dropout", x) if dropout else x
    return finish(tape, name, sample_unit, x, image, classes)


_VGG = {
    11: ((64,), (128,), (256, 256), (512, 512), (512, 512)),
    16: ((64, 64), (128, 128), (256,) * 3, (512,) * 3, (512,) * 3),
    19: ((64, 64), (128, 128), (256,) * 4, (512,) * 4, (512,) * 4),
}


def _dense(tape: Tape, x: T, *, before: bool) -> T:
    """Two hidden layers of 4096 with dropout, before or after each."""
    x = tape.reshape(x, x.c * math.prod(x.grid), (1,))
    for i in (1, 2):
        x = tape.dropout(f"dropout{i}", x) if before else x
        x = tape.linear(f"dense{i}", x, 4096, act="relu")
        x = x if before else tape.dropout(f"dropout{i}", x)
    return x


@ARCHS.register("vgg")
def vgg(
    *, name: str, sample_unit: str = "image", depth: int = 16, image: int = 224,
    classes: int = 1000, layout: str = "nchw", batch_norm: bool = False,
) -> Workload:  # fmt: skip
    """VGG of ``depth`` 11, 16 or 19 (Simonyan & Zisserman 2015); ``batch_norm`` after each conv."""
    if depth not in _VGG:
        raise ValueError(f"depth {depth} is none of {', '.join(map(str, _VGG))}")
    tape = Tape(nchw=check_layout(layout))
    x = tape.input(3, (image, image))
    for stage, widths in enumerate(_VGG[depth]):
        for i, width in enumerate(widths):
            x = tape.conv(f"conv{stage}.{i}", x, width, 3, bias=True)
            x = tape.batch_norm(f"conv{stage}.{i}", x) if batch_norm else x
            x = tape.act("relu", x, "relu")
        x = tape.max_pool("pool", x, 2, 2)
        tape.block(f"stage{stage + 1}")
    return finish(tape, name, sample_unit, _dense(tape, x, before=False), image, classes)


@ARCHS.register("alexnet")
def alexnet(
    *, name: str, sample_unit: str = "image", image: int = 224, classes: int = 1000
) -> Workload:
    """AlexNet as in torchvision (Krizhevsky 2014, "One weird trick")."""
    tape = Tape()
    x = tape.input(3, (image, image))
    for i, (width, kernel, stride, pad, pooled) in enumerate(
        ((64, 11, 4, 2, True), (192, 5, 1, 2, True), (384, 3, 1, 1, False),
         (256, 3, 1, 1, False), (256, 3, 1, 1, True)), 1,
    ):  # fmt: skip
        x = tape.conv(f"conv{i}", x, width, kernel, stride=stride, pad=pad, bias=True)
        x = tape.act("relu", x, "relu")
        x = tape.max_pool(f"pool{i}", x, 3, 2) if pooled else x
    tape.block("features")
    return finish(tape, name, sample_unit, _dense(tape, x, before=True), image, classes)
