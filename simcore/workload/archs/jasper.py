"""Jasper (Li et al. 2019) and QuartzNet (Kriman et al. 2020): 1-d convolutions of speech, CTC loss.

A sample is one recording as a spectrogram. Before each convolution frames beyond a recording's own
length are set to zero, as in NVIDIA's DeepLearningExamples (PyTorch/SpeechRecognition, model.py,
MaskedConv1d), which these modules follow.
"""

from __future__ import annotations

from simcore.base.units import FP32_BYTES, INT64_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.parts import check_names
from simcore.workload.archs.tape import T, Tape
from simcore.workload.graph import Kernel, Op, Workload
from simcore.workload.saved import Saved

#: Channels, kernel size and dropout of each block, and how many such blocks follow one another
#: (configs/jasper10x5dr_*.yaml, quartznet15x5_*.yaml).
_JASPER = ((256, 11, 0.2, 2), (384, 13, 0.2, 2), (512, 17, 0.2, 2), (640, 21, 0.3, 2),
           (768, 25, 0.3, 2))  # fmt: skip
_QUARTZ = ((256, 33, 0.0, 3), (256, 39, 0.0, 3), (512, 51, 0.0, 3), (512, 63, 0.0, 3),
           (512, 75, 0.0, 3))  # fmt: skip
#: First convolution, then the two after the blocks: channels, kernel size, dilation, dropout.
_ENDS = {
    "jasper": ((256, 11, 1, 0.2), (896, 29, 2, 0.4), (1024, 1, 1, 0.4)),
    "quartznet": ((256, 33, 1, 0.0), (512, 87, 2, 0.0), (1024, 1, 1, 0.0)),
}


class _Net:
    """Convolutions of one of both networks on a tape."""

    def __init__(self, tape: Tape, separable: bool) -> None:
        self.tape, self.separable = tape, separable

    def masked(self, name: str, x: T) -> T:
        """Frames beyond the recording set to zero: positions, comparison, and a masked copy."""
        mask, out = float(x.grid[0]), T(x.c, x.grid)
        small = Kernel(kind="elementwise", raw_bytes=17.0 * mask, launches=3.0)
        fill = Kernel(kind="elementwise", low=2.0 * x.elems, indexed=x.elems)
        op = Op(name=name, fwd=(small, fill), bwd=(fill,), saved=Saved(raw_bytes=mask))
        return self.tape.apply(op, out, x)

    def conv(self, name: str, x: T, channels: int, kernel: int, stride: int = 1,
             dilation: int = 1, *, whole: bool = False) -> T:  # fmt: skip
        """A masked convolution, in two parts if separable and not ``whole``, and a norm."""
        tape = self.tape
        if self.separable and not whole:
            x = tape.conv(f"{name}.depthwise", self.masked(f"{name}.mask", x), x.c, kernel,
                          stride=stride, dilation=dilation, groups=x.c)  # fmt: skip
            stride, dilation, kernel = 1, 1, 1
        y = tape.conv(name, self.masked(f"{name}.mask2", x), channels, kernel, stride=stride,
                      dilation=dilation)  # fmt: skip
        return tape.batch_norm(name, y)

    def activated(self, name: str, x: T, dropout: float) -> T:
        """ReLU, which saves its result, and dropout."""
        x = self.tape.act(name, x, "relu", inplace=False)
        return self.tape.dropout(f"{name}.dropout", x) if dropout else x

    def block(self, panes: list[T], channels: int, kernel: int, dropout: float, repeat: int) -> T:
        """``repeat`` convolutions of the last of ``panes``, and the sum with a 1x1 one of each.

        ``panes``: results of earlier blocks that the residual adds.
        """
        x = panes[-1]
        for i in range(repeat):
            x = self.conv(f"conv{i}", x, channels, kernel)
            if i < repeat - 1:
                x = self.activated(f"act{i}", x, dropout)
        for i, pane in enumerate(panes):
            x = self.tape.add(
                f"sum{i}", x, self.conv(f"residual{i}", pane, channels, 1, whole=True)
            )
        return self.activated("act", x, dropout)


@ARCHS.register("jasper")
def build(
    *,
    name: str,
    sample_unit: str = "recording",
    family: str = "jasper",
    frames: int = 1680,
    mels: int = 64,
    repeat: int = 5,
    classes: int = 29,
    letters: int = 200,
    layout: str = "nchw",
) -> Workload:
    """Jasper 10x5 or QuartzNet 15x5 with CTC over ``classes`` symbols.

    ``frames``: of the spectrogram, 100 a second, padded to a multiple of 16. ``repeat``:
    convolutions in a block. ``letters``: of the transcript. Jasper's blocks add all earlier blocks'
    inputs (dense residual); QuartzNet's are separable and add their own.
    """
    check_names(family=(family, tuple(_ENDS)))
    jasper = family == "jasper"
    first, *last = _ENDS[family]
    tape = Tape(nchw=layout == "nchw")
    net = _Net(tape, separable=not jasper)
    channels, kernel, _, dropout = first
    x = net.conv("first", tape.input(mels, (frames,)), channels, kernel, stride=2)
    panes = [net.activated("first", x, dropout)]
    tape.block("first")
    for channels, kernel, dropout, times in _JASPER if jasper else _QUARTZ:
        for _ in range(times):
            x = net.block(panes, channels, kernel, dropout, repeat)
            panes = [*panes, x] if jasper else [x]
            tape.block(f"block {channels} x {kernel}")
    for i, (channels, kernel, dilation, dropout) in enumerate(last):
        x = net.conv(f"last{i}", x, channels, kernel, dilation=dilation, whole=kernel == 1)
        x = net.activated(f"last{i}", x, dropout)
    x = tape.conv("decoder", x, classes, 1, bias=True)
    # log-softmax over symbols, copied to time first, and CTC over 2 letters + 1 states
    scores, states = x.elems, x.points * (2.0 * letters + 1.0)
    soft = Kernel(kind="softmax", high=2.0 * scores)
    paths = Kernel(kind="reduction", raw_bytes=FP32_BYTES * 3.0 * states, launches=2.0)
    copied = Kernel(kind="copy", high=2.0 * scores)
    back = Kernel(kind="softmax", high=3.0 * scores)
    kept = Saved(high=2.0 * scores, raw_bytes=FP32_BYTES * states)
    tape.op(Op(name="ctc", fwd=(soft, copied, paths), bwd=(paths, copied, back), saved=kept))
    tape.op(ops.loss_seed())
    tape.block("head")
    inputs = FP32_BYTES * mels * frames + INT64_BYTES * letters
    return tape.workload(name, sample_unit, input_bytes=inputs)
