"""WaveGlow (Prenger et al. 2019): flows of an invertible 1x1 convolution and a WaveNet.

A sample is one segment of ``segment`` audio samples with its mel frames; the weights of the
WaveNets are normalised in every forward.
"""

from __future__ import annotations

from simcore.base.units import FP32_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.parts import SCRIPTED, UNITS, check_names
from simcore.workload.archs.tape import T, Tape
from simcore.workload.graph import Kernel, Op, Workload
from simcore.workload.saved import Saved

_HOP = 256
_WINDOW = 4 * _HOP


def _gated(tape: Tape, a: T, b: T, channels: int, *, held: bool) -> T:
    """``tanh(first half of a + b) * sigmoid(second half)``, scripted.

    TorchScript differentiates tanh, sigmoid and their product, which are one kernel each way. It
    has no derivative of a slice, so that the sum before them is a separate kernel and the gradients
    of slices go through autograd. There ``x[:, :n, :]`` is one slice per dimension, and both halves
    share the first: five gradients, each written into zeros. Both halves' results are saved, for
    the product and for their own derivatives.
    """
    out = T(channels, a.grid)
    half, kept = out.elems, 2.0 * out.elems
    tape.op(ops.binary("gate.sum", a.elems, grads=0))
    fused = Kernel(kind="elementwise", low=a.elems + kept + half)
    back = (
        Kernel(kind="elementwise", low=half + kept + a.elems),
        *_laid_into_zeros(half, half, 2),  # the time dimension, of both halves
        *_laid_into_zeros(half, a.elems, 2),  # the channels
        Kernel(kind="elementwise", low=3 * a.elems),  # the halves' sum
        *_laid_into_zeros(a.elems, a.elems, 1),  # samples
    )
    tape.op(Op(name="gate", fwd=(fused,), bwd=back, saved=ops.script_kept(kept, held=held)))
    return out


def _laid_into_zeros(part: float, whole: float, times: int) -> tuple[Kernel, ...]:
    """Gradients of slices (ATen ``slice_backward``): zeros of the whole, and a copy of the part."""
    zeros = Kernel(kind="elementwise", low=whole * times, launches=float(times))
    strided = part * times * (part < whole)
    copied = Kernel(
        kind="copy", low=2 * part * times, launches=float(times), indexed=strided
    )  # fmt: skip
    return zeros, copied


def _contiguous(tape: Tape, x: T, kept: bool) -> T:
    """The contiguous copy of a permuted input that a convolution reads.

    ``kept``: the copy is saved for backward; otherwise backward makes it again.
    """
    copy = Kernel(kind="copy", low=2.0 * x.elems)
    tape.op(Op(name="contiguous", fwd=(copy,), bwd=() if kept else (copy,)))
    return T(x.c, x.grid) if kept else x


def _wavenet(
    tape: Tape, half: T, mel: T, channels: int, layers: int, *, copies: bool, held: bool
) -> T:
    x = tape.conv("start", half, channels, 1, bias=True, weight_norm=True)
    skip: T | None = None
    for i in range(layers):
        last = i == layers - 1
        a = tape.conv(f"in{i}", x, 2 * channels, 3, dilation=2**i, bias=True, weight_norm=True)
        given = _contiguous(tape, mel, copies)
        b = tape.conv(f"cond{i}", given, 2 * channels, 1, bias=True, weight_norm=True)
        y = _gated(tape, a, b, channels, held=held)
        width = channels if last else 2 * channels
        y = tape.conv(f"skip{i}", y, width, 1, bias=True, weight_norm=True)
        part = T(channels, y.grid)
        if not last:
            x = tape.add(f"residual{i}", x, T(channels, y.grid))
            # The gradients of the two slices are added into one tensor.
            met = Kernel(kind="elementwise", low=3 * y.elems)
            back = (*_laid_into_zeros(y.elems / 2, y.elems, 2), met)
            tape.op(Op(name="slices", fwd=(), bwd=back))
        skip = part if skip is None else tape.add(f"skip_sum{i}", skip, part)
    assert skip is not None
    return tape.conv("end", skip, 2 * half.c, 1, bias=True)


@ARCHS.register("waveglow")
def build(
    *,
    name: str,
    sample_unit: str = "audio segment",
    segment: int = 8000,
    mels: int = 80,
    flows: int = 12,
    group: int = 8,
    early_every: int = 4,
    early_size: int = 2,
    layers: int = 8,
    channels: int = 512,
    layout: str = "nchw",
    conditioning_copies: bool = False,
    scripted_activations: str = "released",
    dilated_convolutions: str = "matrix_units",
) -> Workload:
    """WaveGlow with ``channels`` in each of ``layers`` layers of ``flows`` WaveNets.

    - ``layout="nchw"``: one-dimensional convolutions are channels first, but 16-bit matrix units
      want channels last, so that cuDNN transposes. Use it for mixed precision.
    - ``conditioning_copies``: every layer saves its own copy of the permuted spectrogram, since
      PyTorch before 1.11 made the input of a one-dimensional convolution contiguous above autograd
      (ATen ``Convolution.cpp``).
    - ``scripted_activations``: tensors that the scripted gates save are ``released`` by backward or
      ``held`` until the next loss (PyTorch before 1.7).
    - ``dilated_convolutions``: in 16 bit on ``matrix_units`` or ``vector_units`` (cuDNN 7, none of
      whose algorithms has dilation and matrix units at once: A. Naruse of NVIDIA in chainer pull
      request 4064).
    """
    check_names(
        scripted_activations=(scripted_activations, SCRIPTED),
        dilated_convolutions=(dilated_convolutions, UNITS),
    )
    if segment % group or group % 2:
        raise ValueError(f"segment {segment} must be a multiple of an even group, not {group}")
    steps, frames = segment // group, segment // _HOP + 1
    tape = Tape(
        nchw=layout == "nchw", dilated_on_vector_units=dilated_convolutions == "vector_units"
    )
    up = tape.conv(
        "upsample", tape.input(mels, (frames,)), mels, (_WINDOW,), stride=_HOP, transposed=True,
        bias=True,
    )  # fmt: skip
    mel = T(mels * group, (steps,))
    unfold = Kernel(kind="copy", low=2.0 * mel.elems + up.elems)
    tape.op(Op(name="unfold", fwd=(unfold,), bwd=(unfold,)))
    tape.block("upsample")
    left, held = group, scripted_activations == "held"
    for k in range(flows):
        left -= early_size if k and k % early_every == 0 else 0
        half = T(left // 2, (steps,))
        whole = tape.conv("invertible", T(left, (steps,), grad=k > 0), left, 1)
        # Log-determinant of a small matrix: an LU factorisation of a few launches.
        tape.op(Op(name="logdet", fwd=(Kernel(kind="elementwise", launches=8.0),),
                   bwd=(Kernel(kind="elementwise", launches=6.0),)))  # fmt: skip
        out = _wavenet(tape, half, mel, channels, layers, copies=conditioning_copies, held=held)
        # exp(log_s) * x + b, then the halves are joined again
        couple = Kernel(kind="elementwise", low=6.0 * out.elems, launches=6.0)
        tape.op(Op(name="couple", fwd=(couple,), bwd=(couple,),
                   saved=Saved(low=out.elems / 2 + half.elems)))  # fmt: skip
        assert whole.c == left
        tape.block(f"flow{k}" if k == 0 else f"flow.{left}")
    loss = Kernel(kind="reduction", high=2.0 * segment, launches=24.0)
    tape.op(Op(name="loss", fwd=(loss,), bwd=(loss,), saved=Saved(low=float(segment))))
    tape.block("loss")
    return tape.workload(name, sample_unit, input_bytes=FP32_BYTES * (segment + mels * frames))
