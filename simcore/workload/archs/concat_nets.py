"""Image classifiers that concatenate channels: DenseNet and Inception v3; cross-entropy loss.

``layout``: as in ``convnets``.
"""

from __future__ import annotations

from simcore.workload.archs import ARCHS
from simcore.workload.archs.convnets import check_layout, finish
from simcore.workload.archs.tape import T, Tape
from simcore.workload.graph import Workload

#: Layers of each dense block (Huang et al. 2017, table 1).
_DENSE = {
    121: (6, 12, 24, 16), 161: (6, 12, 36, 24), 169: (6, 12, 32, 32), 201: (6, 12, 48, 32),
}  # fmt: skip
#: Channels that the 1x1 convolution of a layer gives, as a multiple of the growth rate.
_BOTTLENECK = 4


def _normed(tape: Tape, name: str, x: T) -> T:
    return tape.act(name, tape.batch_norm(name, x), "relu")


@ARCHS.register("densenet")
def densenet(
    *, name: str, sample_unit: str = "image", depth: int = 121, image: int = 224,
    classes: int = 1000, layout: str = "nchw",
) -> Workload:  # fmt: skip
    """DenseNet-BC of ``depth`` 121, 161, 169 or 201 (Huang et al. 2017).

    Each layer concatenates the results of all layers before it, as in torchvision without its
    memory-efficient option.
    """
    if depth not in _DENSE:
        raise ValueError(f"depth {depth} is none of {', '.join(map(str, _DENSE))}")
    growth, stem = (48, 96) if depth == 161 else (32, 64)
    tape = Tape(nchw=check_layout(layout))
    x = tape.unit("stem", tape.input(3, (image, image)), stem, 7, stride=2)
    x = tape.max_pool("pool", x, 3, 2, 1)
    tape.block("stem")
    for stage, count in enumerate(_DENSE[depth], 1):
        parts = [x]
        for i in range(count):
            y = tape.concat("concat", parts)
            y = tape.conv("reduce", _normed(tape, "reduce", y), _BOTTLENECK * growth, 1)
            parts.append(tape.conv("grow", _normed(tape, "grow", y), growth, 3))
            tape.block(f"dense{stage}.{i + 1}")
        x = _normed(tape, "norm", tape.concat("concat", parts))
        if stage < len(_DENSE[depth]):
            x = tape.average_pool("pool", tape.conv("halve", x, x.c // 2, 1), 2, 2)
            tape.block(f"transition{stage}")
    return finish(tape, name, sample_unit, tape.mean("mean", x), image, classes)


#: A unit of a branch: channels, kernel size, stride, whether the input is padded.
_Unit = tuple[int, int | tuple[int, int], int, bool]


def _branch(tape: Tape, x: T, *units: _Unit) -> T:
    for i, (cout, kernel, stride, padded) in enumerate(units, 1):
        pad = None if padded else 0
        x = tape.unit(f"conv{i}", x, cout, kernel, stride=stride, pad=pad)
    return x


def _same(cout: int, *kernel: int) -> _Unit:
    return cout, kernel[0] if len(kernel) == 1 else (kernel[0], kernel[1]), 1, True


def _pooled(tape: Tape, x: T, cout: int) -> T:
    return _branch(tape, tape.average_pool("pool", x, 3, 1, 1), _same(cout, 1))


def _mixed_35(tape: Tape, x: T, pool: int) -> T:
    five = _branch(tape, x, _same(48, 1), _same(64, 5))
    double = _branch(tape, x, _same(64, 1), _same(96, 3), _same(96, 3))
    return tape.concat("concat", [_branch(tape, x, _same(64, 1)), five, double,
                                  _pooled(tape, x, pool)])  # fmt: skip


def _mixed_17(tape: Tape, x: T, c: int) -> T:
    seven = _branch(tape, x, _same(c, 1), _same(c, 1, 7), _same(192, 7, 1))
    double = _branch(
        tape, x, _same(c, 1), _same(c, 7, 1), _same(c, 1, 7), _same(c, 7, 1), _same(192, 1, 7)
    )
    return tape.concat("concat", [_branch(tape, x, _same(192, 1)), seven, double,
                                  _pooled(tape, x, 192)])  # fmt: skip


def _fork(tape: Tape, x: T) -> T:
    return tape.concat("fork", [_branch(tape, x, _same(384, 1, 3)),
                                _branch(tape, x, _same(384, 3, 1))])  # fmt: skip


def _mixed_8(tape: Tape, x: T) -> T:
    three = _fork(tape, _branch(tape, x, _same(384, 1)))
    double = _fork(tape, _branch(tape, x, _same(448, 1), _same(384, 3)))
    return tape.concat("concat", [_branch(tape, x, _same(320, 1)), three, double,
                                  _pooled(tape, x, 192)])  # fmt: skip


@ARCHS.register("inception_v3")
def inception_v3(
    *, name: str, sample_unit: str = "image", image: int = 299, classes: int = 1000,
    layout: str = "nchw",
) -> Workload:  # fmt: skip
    """Inception v3 (Szegedy et al. 2016) as in torchvision, without the auxiliary head."""
    tape = Tape(nchw=check_layout(layout))
    x = tape.input(3, (image, image))
    x = _branch(tape, x, (32, 3, 2, False), (32, 3, 1, False), _same(64, 3))
    x = _branch(tape, tape.max_pool("pool", x, 3, 2), _same(80, 1), (192, 3, 1, False))
    x = tape.max_pool("pool", x, 3, 2)
    tape.block("stem")
    for pool in (32, 64, 64):
        x = _mixed_35(tape, x, pool)
        tape.block("mixed35")
    three = _branch(tape, x, (384, 3, 2, False))
    double = _branch(tape, x, _same(64, 1), _same(96, 3), (96, 3, 2, False))
    x = tape.concat("concat", [three, double, tape.max_pool("pool", x, 3, 2)])
    tape.block("reduce17")
    for c in (128, 160, 160, 192):
        x = _mixed_17(tape, x, c)
        tape.block("mixed17")
    three = _branch(tape, x, _same(192, 1), (320, 3, 2, False))
    seven = _branch(tape, x, _same(192, 1), _same(192, 1, 7), _same(192, 7, 1), (192, 3, 2, False))
    x = tape.concat("concat", [three, seven, tape.max_pool("pool", x, 3, 2)])
    tape.block("reduce8")
    for _ in range(2):
        x = _mixed_8(tape, x)
        tape.block("mixed8")
    x = tape.dropout("dropout", tape.mean("mean", x))
    return finish(tape, name, sample_unit, x, image, classes)
