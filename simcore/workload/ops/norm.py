"""Normalisations and softmax. Autocast runs them in fp32: statistics and outputs are high."""

from __future__ import annotations

from simcore.workload.graph import Affine, Kernel, Op
from simcore.workload.saved import Saved

#: Share of a norm's bytes that it reads again: its input of two tensors, the gradient too of three.
NORM_AGAIN = 1.0 / 2.0
NORM_BWD_AGAIN = 2.0 / 3.0


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

    LayerNorm's row is a block's, which reads its input twice, in backward the gradient too (ATen
    layer_norm_kernel.cu). Kernels of RMSNorm are several libraries', some of which keep rows in
    registers and give short ones a warp (Transformer Engine, normalization/rmsnorm): no table has
    them, they read once here and rows cost nothing. Saves its input and, in fp32 a row, mean and
    reciprocal deviation (RMSNorm: the latter only).
    """
    elems = rows * dim
    blocks = 0.0 if rms else rows
    fwd = Kernel(kind="norm", high=2 * elems, rows=blocks, again=NORM_AGAIN * (not rms))
    bwd = [Kernel(kind="norm", high=3 * elems, rows=blocks, again=NORM_BWD_AGAIN * (not rms))]
    if affine:
        bwd.append(Kernel(kind="reduction", high=2 * elems, weight=(1.0 if rms else 2.0) * dim))
    x = elems * save_input
    saved = Saved(
        high=x * input_high, low=x * (not input_high), raw_bytes=(4.0 if rms else 8.0) * rows
    )
    return Op(name=name, fwd=(fwd,), bwd=tuple(bwd), saved=saved)


def group_norm(name: str, elems: float, groups: float, *, save_input: bool = True) -> Op:
    """GroupNorm over ``elems`` elements a sample in ``groups`` groups."""
    fwd = (Kernel(kind="norm", high=elems), Kernel(kind="elementwise", high=2 * elems))
    bwd = Kernel(kind="norm", high=4 * elems)
    saved = Saved(high=elems * save_input, raw_bytes=8.0 * groups)
    return Op(name=name, fwd=fwd, bwd=(bwd,), saved=saved)


def batch_norm(
    name: str, elems: float, channels: int, *, save_input: bool = True, counter: bool = False,
    channels_first: bool = False,
) -> Op:  # fmt: skip
    """Training-mode BatchNorm: two passes forward, two backward; low, as cuDNN runs it.

    ``counter``: the launch by which nn.BatchNorm counts its batches (one int64, no work).
    ``channels_first``: of such tensors each channel is a block's (cuDNN's ``1C11`` kernels).
    """
    blocks = float(channels) * channels_first
    fwd = [Kernel(kind="batch_norm", low=3 * elems, weight=4.0 * channels, channels=blocks)]
    if counter:
        fwd.append(Kernel(kind="elementwise"))
    bwd = Kernel(kind="batch_norm", low=5 * elems, weight=4.0 * channels, channels=blocks)
    return Op(name=name, fwd=tuple(fwd), bwd=(bwd,), saved=Saved(low=elems * save_input))


def softmax(name: str, elems: float, *, row: float = 1.0, save_output: bool = True) -> Op:
    """Softmax over ``elems`` elements a sample, in rows of ``row`` (1: not known).

    Saves its output.
    """
    fwd = Kernel(kind="softmax", high=2 * elems, n=Affine(row))
    bwd = Kernel(kind="softmax", high=3 * elems, n=Affine(row))
    return Op(name=name, fwd=(fwd,), bwd=(bwd,), saved=Saved(high=elems * save_output))


def cast(elems: float, *, narrow: bool = False) -> Kernel:
    """A cast between 16 bits and fp32, 6 bytes an element, where all training is in 16 bits.

    ``high`` elements weigh 2 bytes there, and 4 where they are fp32 already, which a cast leaves as
    they are: 12 - 3 · 2 = 6 bytes, 12 - 3 · 4 = none. No launches: in fp32 there are none.
    ``narrow``: of what autocast has in 16 bit too, so that it is there under autocast as well.
    """
    low, high = (-3 * elems, 0.0) if narrow else (0.0, -3 * elems)
    return Kernel(
        kind="elementwise", low=low, high=high, raw_bytes=12.0 * elems, launches=0.0, indexed=elems
    )


def widened(name: str, elems: float, *, narrow: bool = False) -> Op:
    """What 16 bits hold, brought to fp32 and by autocast back, as their gradient is (``cast``)."""
    both = (cast(elems, narrow=narrow),) * 2
    return Op(name=name, fwd=both, bwd=both)


def autocast_cast(elems: float) -> Kernel:
    """A cast between 16 bits and fp32, 6 bytes an element, that autocast alone has.

    There ``low`` elements are 2 bytes and ``high`` ones 4; elsewhere both are as wide.
    """
    return Kernel(kind="elementwise", low=-3 * elems, high=3 * elems, launches=0.0, indexed=elems)


def rms_norm_again(name: str, rows: float, dim: int, *, trained: bool = True) -> Op:
    """Fused RMSNorm of an input cast to fp32, under a checkpoint that holds nothing else.

    Forward cast and norm, in backward both once more; the gradient is fp32 and cast back. Keeps
    the input as it was (InternLM, modeling_internlm.py: norm(x.float()) in activation_checkpoint).
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
    """RMSNorm in tensor operations, as transformers writes it: square, mean, rsqrt, two products.

    All between the casts of input and result is fp32; 16-bit training has the casts themselves
    too (``cast``). What is broadcast over rows or columns is ``indexed``. Backward of the mean
    spreads a row's gradient (written out by the division), of the square copies the input (its
    first power), scales and multiplies it; the input's two gradients are summed. Keeps its input
    in fp32, a reciprocal a row and, for the weight's gradient, what is normalised. ``wide``: that
    is fp32 too (Gemma multiplies before it casts back). ``trained=False``: the weight has no
    gradient. ``narrow``: its input is a product's result, 16 bit under autocast, and what is
    normalised is brought back to that.
    """
    elems = rows * dim
    brought = cast(elems, narrow=narrow)
    # times a weight that is fp32 under autocast, as the product is
    low, mixed = (elems, elems) if narrow else (0.0, 0.0)
    wide_bytes = 4.0 * elems  # between the casts all is fp32, whatever the precision
    fwd = (
        Kernel(kind="elementwise", raw_bytes=2 * wide_bytes),
        Kernel(kind="reduction", raw_bytes=wide_bytes + 4.0 * rows),
        Kernel(kind="elementwise", raw_bytes=8.0 * rows, launches=2.0),
        Kernel(kind="elementwise", raw_bytes=2 * wide_bytes + 4.0 * rows, indexed=elems),
        *(brought, brought),  # of the input, of what is normalised
        Kernel(kind="elementwise", low=low, high=2 * elems - low, indexed=elems),  # times weight
    )
    bwd = [
        *(brought, brought),  # of their gradients
        Kernel(kind="elementwise", high=2 * elems, indexed=elems),  # towards what is normalised
        Kernel(kind="elementwise", raw_bytes=3 * wide_bytes),  # towards the reciprocal
        Kernel(kind="reduction", raw_bytes=wide_bytes + 4.0 * rows),
        Kernel(kind="elementwise", raw_bytes=2 * wide_bytes, indexed=elems),  # towards the input
        Kernel(kind="elementwise", raw_bytes=24.0 * rows, launches=4.0),
        Kernel(kind="elementwise", raw_bytes=wide_bytes + 4.0 * rows, indexed=elems),  # the mean's
        Kernel(kind="copy", raw_bytes=2 * wide_bytes),  # the square's: a power of one,
        Kernel(kind="elementwise", raw_bytes=5 * wide_bytes, launches=2.0),  # twice it, times it
        Kernel(kind="elementwise", raw_bytes=3 * wide_bytes),  # and the sum
    ]
    if trained:
        bwd.append(Kernel(kind="elementwise", low=low, high=3 * elems - low, mixed=mixed))
        bwd.append(Kernel(kind="reduction", high=elems, weight=float(dim)))
    normed, bytes_kept = elems * trained, 4.0 * (elems + rows)
    if wide:
        saved = Saved(raw_bytes=bytes_kept + 4.0 * normed)
    elif narrow:
        saved = Saved(low=normed, raw_bytes=bytes_kept)
    else:
        saved = Saved(high=normed, raw_bytes=bytes_kept)
    return Op(name=name, fwd=fwd, bwd=tuple(bwd), saved=saved)
