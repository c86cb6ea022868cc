"""Normalisations and softmax. Autocast runs them in fp32: outputs and statistics are ``high``."""

from __future__ import annotations

from typing import Final, NamedTuple

from simcore.base.record import replace
from simcore.base.units import FP32_BYTES
from simcore.workload.graph import NATIVE_NORM, Affine, Kernel, Op
from simcore.workload.saved import Saved

#: Fraction of a norm's bytes that it reads a second time: in forward its input, one of two tensors;
#: in backward input and gradient, two of three.
NORM_REREAD_FRAC = 1.0 / 2.0
NORM_BWD_REREAD_FRAC = 2.0 / 3.0


def layer_norm(
    name: str,
    rows: float,
    dim: int,
    *,
    affine: bool = True,
    save_input: bool = True,
    input_high: bool = True,
    rms: bool = False,
) -> Op:
    """LayerNorm or (``rms``) fused RMSNorm over ``dim``.

    In LayerNorm's kernels one thread block handles a row and reads its input twice, in backward the
    gradient too (ATen layer_norm_kernel.cu). RMSNorm has kernels of several libraries, some of
    which keep rows in registers and give short rows to a warp (Transformer Engine,
    normalization/rmsnorm); no measured table has them, so here they read once and rows cost
    nothing. A kernel of its own sums the gradients of weight and bias over all rows
    (``physics.kernel.column_sums_s``). Saves its input and, in fp32 per row, mean and reciprocal
    deviation (RMSNorm: only the latter).
    """
    elems = rows * dim
    blocks = 0.0 if rms else rows
    fwd = Kernel(kind="norm", high=2 * elems, rows=blocks, reread_frac=NORM_REREAD_FRAC * (not rms))
    bwd = [
        Kernel(
            kind="norm", high=3 * elems, rows=blocks, reread_frac=NORM_BWD_REREAD_FRAC * (not rms)
        )
    ]
    if affine:
        sums = Kernel(kind="reduction", high=2 * elems, weight=(1.0 if rms else 2.0) * dim)
        bwd.append(sums if rms else replace(sums, m=Affine(0, rows), n=Affine(dim)))
    x = elems * save_input
    saved = Saved(
        high=x * input_high, low=x * (not input_high), raw_bytes=(4.0 if rms else 8.0) * rows
    )
    return Op(name=name, fwd=(fwd,), bwd=tuple(bwd), saved=saved)


def group_norm(name: str, elems: float, groups: float, *, save_input: bool = True) -> Op:
    """GroupNorm over ``elems`` elements per sample in ``groups`` groups."""
    fwd = (Kernel(kind="norm", high=elems), Kernel(kind="elementwise", high=2 * elems))
    bwd = Kernel(kind="norm", high=4 * elems)
    saved = Saved(high=elems * save_input, raw_bytes=8.0 * groups)
    return Op(name=name, fwd=fwd, bwd=(bwd,), saved=saved)


class NormPass(NamedTuple):
    """A kernel of PyTorch's own batch norm: tensors that it moves, and what limits it besides.

    ``reads``: the first one of (input, gradient) or both; ``writes``: 1 where it writes a tensor.
    The others as in ``graph.Kernel``; ``launches`` includes those of small kernels beside it.
    """

    reads: int
    writes: int
    indexed: float = 0.0
    blocks: float = 0.0
    block_clocks: float = 0.0
    launches: int = 1


#: Clocks of a thread block of 512 threads per element, which each thread loads and adds singly.
#: Statistics, and sums of a backward of channels last: the kernels alone in fp32 on V100 and A100,
#: 234 shapes in each layout (xwang233/code-snippet, syncbn-channels-last, 5e2f17d and feabdaf).
#: Backward of channels first, sums and gradient in one kernel: calibration of an H200 in bf16,
#: 256 channels of 1024 x 16 x 16 in 0.607 ms at 1.98 GHz.
_STATISTICS_CLOCKS: Final = 1.9
_SUMS_CLOCKS: Final = 1.22
_BACKWARD_CLOCKS: Final = 4.6
#: Time per element in units of an indexed one, of kernels that load elements singly: 0.80 clocks
#: of an SM for statistics of channels last (V100 and A100, all shapes), the others where tensors
#: fit in the L2 of A100: 0.35 and 0.61 for result and gradient of channels last, 0.51 for the
#: result of channels first. There each channel of each image has a thread block, of which A100
#: starts one in 1.06 clocks (rows of [images, channels] of the same table: 114 clocks of an SM).
_STATISTICS_LAST: Final = 1.0
_RESULT_LAST: Final = 0.44
_GRADIENT_LAST: Final = 0.77
_RESULT_FIRST: Final = 0.64
_MAP_FIRST: Final = 143.0
#: Thread blocks for each 32 channels that are last: 128 (Normalization.cuh, MAX_H_BLOCK).
_BLOCKS_LAST: Final = 128.0 / 32.0


def native_norm(
    elems: float, channels: float, maps: float, *, channels_first: bool, backward: bool
) -> tuple[NormPass, ...]:
    """The kernels by which PyTorch computes a batch norm that it does not leave to cuDNN.

    ATen native/cuda/Normalization.cuh: ``batch_norm_collect_statistics``, ``.._transform_input``;
    ``batch_norm_backward``, or for channels last ``.._backward_reduce`` and ``.._backward_elemt``.
    ``maps``: channels of all images. Small kernels update the running statistics and, for channels
    last, clear counters.
    """
    if backward and channels_first:
        clocks = _BACKWARD_CLOCKS * elems
        return (NormPass(4, 1, blocks=channels, block_clocks=clocks),)
    if backward:
        blocks, clocks = _BLOCKS_LAST * channels, _SUMS_CLOCKS * elems
        sums = NormPass(2, 0, blocks=blocks, block_clocks=clocks, launches=2)
        return sums, NormPass(2, 1, indexed=_GRADIENT_LAST * elems)
    if channels_first:
        clocks = _STATISTICS_CLOCKS * elems
        statistics = NormPass(1, 0, blocks=channels, block_clocks=clocks, launches=2)
        return statistics, NormPass(1, 1, indexed=_RESULT_FIRST * elems + _MAP_FIRST * maps)
    statistics = NormPass(1, 0, indexed=_STATISTICS_LAST * elems, launches=3)
    return statistics, NormPass(1, 1, indexed=_RESULT_LAST * elems)


def batch_norm(
    name: str, elems: float, channels: int, *, save_input: bool = True, counter: bool = False,
    channels_first: bool = False,
) -> Op:  # fmt: skip
    """Training-mode BatchNorm: two passes forward, two backward; ``low``.

    It has cuDNN's kernels and PyTorch's own, of which the precision runs either. ``counter``: adds
    the launch by which nn.BatchNorm counts its batches (one int64, no work). ``channels_first``:
    for such tensors one thread block handles a channel (cuDNN's ``1C11`` kernels).
    """
    blocks = Affine(float(channels) * channels_first)

    def kernels(passes: float, *, backward: bool) -> list[Kernel]:
        native = native_norm(
            elems, channels, channels, channels_first=channels_first, backward=backward
        )
        own = [
            Kernel(
                kind=NATIVE_NORM, low=(k.reads + k.writes) * elems, indexed=k.indexed,
                blocks=Affine(k.blocks), block_clocks=k.block_clocks, launches=float(k.launches),
            )
            for k in native
        ]  # fmt: skip
        cudnn = Kernel(kind="batch_norm", low=passes * elems, weight=4.0 * channels, blocks=blocks)
        return [*own, cudnn]

    fwd = kernels(3.0, backward=False)
    if counter:
        fwd.append(Kernel(kind="elementwise"))
    bwd = kernels(5.0, backward=True)
    return Op(name=name, fwd=tuple(fwd), bwd=tuple(bwd), saved=Saved(low=elems * save_input))


def instance_norm(name: str, elems: float, channels: int) -> Op:
    """A BatchNorm over channels of single samples, whose scale and shift are repeated for each."""
    norm = batch_norm(name, elems, channels, save_input=False, channels_first=True)

    def of_samples(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
        return tuple(replace(k, blocks=Affine(0.0, k.blocks.fixed)) for k in kernels)

    repeated = Kernel(kind="copy", raw_bytes=2.0 * FP32_BYTES * channels, launches=2.0)
    summed = replace(repeated, kind="reduction")
    fwd, bwd = (repeated, *of_samples(norm.fwd)), (*of_samples(norm.bwd), summed)
    return replace(norm, fwd=fwd, bwd=bwd)


def softmax(name: str, elems: float, *, row: float = 1.0) -> Op:
    """Softmax over ``elems`` elements per sample in rows of ``row`` elements (1: length unknown).

    Saves its output.
    """
    fwd = Kernel(kind="softmax", high=2 * elems, n=Affine(row))
    bwd = Kernel(kind="softmax", high=3 * elems, n=Affine(row))
    return Op(name=name, fwd=(fwd,), bwd=(bwd,), saved=Saved(high=elems))


def cast(elems: float, *, narrow: bool = False) -> Kernel:
    """A cast between 16 bit and fp32 that exists only where all training is in 16 bit.

    It moves 6 bytes per element. A ``high`` element has 2 bytes there and 4 where it is fp32
    already, when no cast is needed: 12 - 3 · 2 = 6 bytes, 12 - 3 · 4 = none. It counts no launches,
    since fp32 training has none. ``narrow``: for a tensor that is 16 bit under autocast too, so
    that the cast exists there as well.
    """
    low, high = (-3 * elems, 0.0) if narrow else (0.0, -3 * elems)
    return Kernel(
        kind="elementwise", low=low, high=high, raw_bytes=12.0 * elems, launches=0.0, indexed=elems
    )


def widened(name: str, elems: float, *, narrow: bool = False) -> Op:
    """A 16-bit tensor cast to fp32 and by autocast back, as its gradient is (``cast``)."""
    both = (cast(elems, narrow=narrow),) * 2
    return Op(name=name, fwd=both, bwd=both)


def autocast_cast(elems: float) -> Kernel:
    """A cast between 16 bit and fp32, 6 bytes per element, that exists under autocast alone.

    There ``low`` elements have 2 bytes and ``high`` ones 4; in other precisions both are equally
    wide.
    """
    return Kernel(kind="elementwise", low=-3 * elems, high=3 * elems, launches=0.0, indexed=elems)


def rms_norm_again(name: str, rows: float, dim: int, *, trained: bool = True) -> Op:
    """Fused RMSNorm of an input cast to fp32, inside a checkpoint that contains nothing else.

    Forward casts and normalises, and backward does both a second time; the gradient is fp32 and is
    cast back. Saves the input before the cast (InternLM, modeling_internlm.py: norm(x.float()) in
    activation_checkpoint).
    """
    elems = rows * dim
    to_fp32 = Kernel(kind="elementwise", high=-3 * elems, raw_bytes=12.0 * elems)
    fwd = (to_fp32, Kernel(kind="norm", high=elems, raw_bytes=4.0 * elems))
    bwd = [*fwd, Kernel(kind="norm", high=elems, raw_bytes=8.0 * elems)]
    if trained:
        bwd.append(Kernel(kind="reduction", high=elems, raw_bytes=4.0 * elems, weight=float(dim)))
    return Op(name=name, fwd=fwd, bwd=(*bwd, to_fp32), saved=Saved(high=elems))


def rms_norm_eager(
    name: str, rows: float, dim: int, *, trained: bool = True, wide: bool = False,
    narrow: bool = False,
) -> Op:  # fmt: skip
    """RMSNorm in tensor operations, as in transformers: square, mean, rsqrt, two products.

    Everything between the casts of input and result is fp32; in 16-bit training the casts
    themselves cost too (``cast``). Operands broadcast over rows or columns are ``indexed``.
    Backward of the mean spreads a row's gradient (the division writes it out); backward of the
    square copies the input (its first power), scales and multiplies it; the two gradients of the
    input are summed.

    Saves its input in fp32, a reciprocal per row and, for the weight's gradient, the normalised
    tensor. ``wide``: the latter is fp32 too (Gemma multiplies before it casts back).
    ``trained=False``: the weight has no gradient. ``narrow``: the input is the result of a product,
    16 bit under autocast, and the normalised tensor is cast back to that.
    """
    elems = rows * dim
    cast_kernel = cast(elems, narrow=narrow)
    # The product with a weight that is fp32 under autocast is fp32 too.
    low, mixed = (elems, elems) if narrow else (0.0, 0.0)
    wide_bytes = 4.0 * elems  # tensors between the casts are fp32 in any precision
    fwd = (
        Kernel(kind="elementwise", raw_bytes=2 * wide_bytes),
        Kernel(kind="reduction", raw_bytes=wide_bytes + 4.0 * rows),
        Kernel(kind="elementwise", raw_bytes=8.0 * rows, launches=2.0),
        Kernel(kind="elementwise", raw_bytes=2 * wide_bytes + 4.0 * rows, indexed=elems),
        *(cast_kernel, cast_kernel),  # of the input and the normalised tensor
        Kernel(
            kind="elementwise", low=low, high=2 * elems - low, indexed=elems
        ),  # the product with the weight
    )
    bwd = [
        # casts of both gradients, then the gradients of each step:
        *(cast_kernel, cast_kernel),
        Kernel(kind="elementwise", high=2 * elems, indexed=elems),  # normalised tensor's
        Kernel(kind="elementwise", raw_bytes=3 * wide_bytes),  # the reciprocal's
        Kernel(kind="reduction", raw_bytes=wide_bytes + 4.0 * rows),
        Kernel(kind="elementwise", raw_bytes=2 * wide_bytes, indexed=elems),  # the input's
        Kernel(kind="elementwise", raw_bytes=24.0 * rows, launches=4.0),
        Kernel(kind="elementwise", raw_bytes=wide_bytes + 4.0 * rows, indexed=elems),  # the mean's
        Kernel(kind="copy", raw_bytes=2 * wide_bytes),  # the square's: copied,
        Kernel(kind="elementwise", raw_bytes=5 * wide_bytes, launches=2.0),  # doubled, multiplied
        Kernel(kind="elementwise", raw_bytes=3 * wide_bytes),  # and summed
    ]
    if trained:
        bwd.append(Kernel(kind="elementwise", low=low, high=3 * elems - low, mixed=mixed))
        bwd.append(Kernel(kind="reduction", high=elems, weight=float(dim)))
    normalised_elems, bytes_kept = elems * trained, 4.0 * (elems + rows)
    if wide:
        saved = Saved(raw_bytes=bytes_kept + 4.0 * normalised_elems)
    elif narrow:
        saved = Saved(low=normalised_elems, raw_bytes=bytes_kept)
    else:
        saved = Saved(high=normalised_elems, raw_bytes=bytes_kept)
    return Op(name=name, fwd=fwd, bwd=tuple(bwd), saved=saved)


def layer_norm_eager(
    name: str, rows: float, dim: int, *, trained: bool = True, narrow: bool = False
) -> Op:
    """LayerNorm without bias in tensor operations in fp32 (transformers, CohereLayerNorm).

    ``rms_norm_eager`` and the row's mean, which is subtracted once for the square and once for the
    result. Saves both differences and, for the weight's gradient, the normalised tensor, in fp32.
    """
    op = rms_norm_eager(name, rows, dim, trained=trained, wide=True, narrow=narrow)
    wide = 4.0 * rows * dim
    mean = Kernel(kind="reduction", raw_bytes=wide)
    apart = Kernel(kind="elementwise", raw_bytes=4 * wide, launches=2.0, indexed=2 * rows * dim)
    back = Kernel(kind="elementwise", raw_bytes=5 * wide, launches=2.0)
    more = (mean, mean, Kernel(kind="elementwise", raw_bytes=wide, indexed=rows * dim), back)
    saved = Saved(raw_bytes=wide * (2 + trained) + 4.0 * rows)
    return replace(op, fwd=(mean, apart, *op.fwd), bwd=(*op.bwd, *more), saved=saved)
