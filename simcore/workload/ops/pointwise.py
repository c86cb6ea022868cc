"""Elementwise maps, copies, dropout, pooling, reductions: bound by memory traffic."""

from __future__ import annotations

from typing import Any, Literal

from simcore.base.record import replace
from simcore.base.units import FP32_BYTES
from simcore.workload.graph import Block, Kernel, Op, OpRole
from simcore.workload.saved import NOTHING, Saved


def _traffic(elems: float, high: bool) -> dict[str, Any]:
    return {"high": elems} if high else {"low": elems}


def _saved(elems: float, high: bool) -> Saved:
    return Saved(high=elems) if high else Saved(low=elems)


def activation(
    name: str,
    elems: float,
    *,
    saves: Literal["input", "output", "none"] = "input",
    high: bool = False,
    launches: float = 1.0,
) -> Op:
    """A unary function over ``elems`` elements per sample (GELU saves its input, ReLU its output).

    ``saves="none"``: a neighbouring op already saves the storage that backward needs.
    """
    fwd = Kernel(kind="elementwise", launches=launches, **_traffic(2 * elems * launches, high))
    bwd = Kernel(kind="elementwise", launches=launches, **_traffic(3 * elems * launches, high))
    saved = NOTHING if saves == "none" else _saved(elems, high)
    return Op(name=name, fwd=(fwd,), bwd=(bwd,), saved=saved)


def binary(
    name: str,
    elems: float,
    *,
    broadcast: float = 0.0,
    saves: float = 0.0,
    grads: int = 1,
    high: bool = False,
) -> Op:
    """``a op b`` over ``elems`` elements; ``broadcast``: elements of ``b`` where it is smaller.

    ``saves`` counts elements that no other op saves for backward: 0 for a sum, one or both operands
    of a product. ``grads``: elementwise backward kernels; 0 for a sum, which passes its gradient
    on.
    """
    second = broadcast or elems
    indexed_elems = elems if broadcast else 0.0
    fwd = Kernel(kind="elementwise", indexed=indexed_elems, **_traffic(2 * elems + second, high))
    grad = Kernel(kind="elementwise", **_traffic(3 * elems, high))
    # The gradient of ``a`` reads ``b``; the gradient of ``b`` reads an ``a`` of full size.
    bwd = (replace(grad, indexed=indexed_elems), *[grad] * (grads - 1)) if grads else ()
    if broadcast and grads:
        bwd = (*bwd, Kernel(kind="reduction", **_traffic(elems + broadcast, high)))
    saved = _saved(saves, high) if saves else NOTHING
    # One of three elements moved is written.
    return Op(name=name, fwd=(fwd,), bwd=bwd, saved=saved, result=_saved(elems, high))


def residual(name: str, elems: float, *, fused: bool = False, narrowed: float = 0.0) -> Op:
    """The sum of a branch's result and a residual that autocast keeps in fp32; the sum is fp32.

    The operands have both widths. ``fused``: a compiler's kernel adds them, which loads vectors of
    either width. ``narrowed``: elements of the sum's gradient that are then cast to 16 bit for the
    branch.
    """
    fwd = Kernel(kind="elementwise", low=elems, high=2 * elems, mixed=elems * (not fused))
    back = Kernel(kind="elementwise", autocasts=narrowed, launches=0.0)
    return Op(name=name, fwd=(fwd,), bwd=(back,) if narrowed else (), result=Saved(high=elems))


def copy(
    name: str, elems: float, *, saves: float = 0.0, high: bool = False, as_it_lies: bool = False
) -> Op:
    """A rearrangement that moves data: forward and backward each read and write it once.

    ``as_it_lies``: the input is contiguous (a clone, parts that are joined), so that forward loads
    it in vectors.
    """
    kernel = Kernel(kind="copy", indexed=elems, **_traffic(2 * elems, high))
    fwd = replace(kernel, indexed=0.0) if as_it_lies else kernel
    return Op(name=name, fwd=(fwd,), bwd=(kernel,), saved=_saved(saves, high))


def compiled(block: Block) -> Block:
    """The block as a compiler that generates kernels for its shapes (XLA) runs it.

    No kernel looks up offsets and types per element, as ATen's precompiled ones do; casts are part
    of the kernels that use them.
    """

    def specialised(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
        return tuple(replace(k, indexed=0.0, mixed=0.0, autocasts=0.0) for k in kernels)

    return replace(
        block,
        ops=tuple(
            replace(op, fwd=specialised(op.fwd), bwd=specialised(op.bwd)) for op in block.ops
        ),
    )


def brought_to_fp32(name: str, elems: float) -> Op:
    """A cast of a 16-bit result to fp32 where autocast keeps fp32; its gradient is cast back."""
    cast = Kernel(kind="elementwise", autocasts=elems, launches=0.0)
    return Op(name=name, fwd=(cast,), bwd=(cast,))


def in_fp32(op: Op) -> Op:
    """The op with its 16-bit tensors in fp32 where autocast keeps fp32."""

    def wide(kernel: Kernel) -> Kernel:
        return replace(kernel, low=0.0, high=kernel.high + kernel.low)

    def raised(saved: Saved) -> Saved:
        return replace(saved, low=0.0, high=saved.high + saved.low)

    return replace(
        op, fwd=tuple(map(wide, op.fwd)), bwd=tuple(map(wide, op.bwd)), saved=raised(op.saved),
        result=raised(op.result),
    )  # fmt: skip


def dropout(name: str, elems: float, *, high: bool = False, wide: bool = False) -> Op:
    """Dropout with p > 0: saves a mask of one byte per element. ``wide``: fp32 in any precision."""
    fwd = Kernel(kind="elementwise", raw_bytes=elems, **_traffic(2 * elems, high))
    if wide:
        fwd = Kernel(kind="elementwise", raw_bytes=(1.0 + 2 * FP32_BYTES) * elems)
    return Op(name=name, fwd=(fwd,), bwd=(fwd,), saved=Saved(raw_bytes=elems))


def without_mask(op: Op, bits: float = 0.0) -> Op:
    """A dropout that is drawn once more in backward, or whose mask has ``bits`` bits in all."""
    spared_bytes = op.saved.raw_bytes - bits / 8
    kernels = tuple(replace(k, raw_bytes=k.raw_bytes - spared_bytes) for k in op.fwd)
    return replace(op, fwd=kernels, bwd=kernels, saved=Saved(raw_bytes=bits / 8))


def dropout_add(name: str, elems: float) -> Op:
    """Bias, dropout and residual sum in one kernel: reads two tensors, writes one and the mask.

    Backward passes the gradient on to the residual and masks it for the branch. Megatron-LM,
    fused_bias_dropout.
    """
    fwd = Kernel(kind="elementwise", raw_bytes=elems, low=elems, high=2 * elems)
    bwd = Kernel(kind="elementwise", raw_bytes=elems, low=2 * elems)
    return Op(name=name, fwd=(fwd,), bwd=(bwd,), saved=Saved(raw_bytes=elems))


#: Passes of ``max_pool_forward_nhwc`` over an output beside those over its window: the maximum and
#: its place are written, and reset for the next output (ATen, DilatedMaxPool2d.cu).
_WRITTEN = 2.0


def pool_elements(
    in_elems: float, out_elems: float, window_elems: float, *, channels_last: bool
) -> tuple[float, float]:
    """Cost of max pooling, forward and backward, in elements addressed one by one (``indexed``).

    ATen's ``DilatedMaxPool2d.cu`` has a thread per output in forward and a thread per input in
    backward, which searches the windows that contain the input. Because they divide whole numbers,
    they take some 250 operations per output and 215 per input; an element of a strided operand
    takes 51 (``hardware.estimates``). If channels are last, a thread divides once for many
    channels, and what is left are its passes: over the ``window_elems`` elements of a window in
    forward, over the windows of an input in backward. Windows of 3 x 3 at every other place take
    290 operations per output and 140 per input.
    """
    if not channels_last:
        return 5.0 * out_elems, 4.25 * in_elems
    windows = window_elems * out_elems  # of all inputs together
    return 5.75 * (windows + _WRITTEN * out_elems) / (9 + _WRITTEN), 2.75 * windows / (9 / 4)


def max_pool2d(
    name: str,
    in_elems: float,
    out_elems: float,
    window_elems: float,
    *,
    channels_last: bool = False,
    eager: bool = True,
) -> Op:
    """Max pooling, which saves an int64 per output. ``eager``: ATen's kernels compute it."""
    index_bytes = 8.0 * out_elems
    fwd = Kernel(kind="elementwise", low=in_elems + out_elems, raw_bytes=index_bytes)
    bwd = fwd
    if eager:
        fwd_elems, bwd_elems = pool_elements(
            in_elems, out_elems, window_elems, channels_last=channels_last
        )
        fwd, bwd = replace(fwd, indexed=fwd_elems), replace(bwd, indexed=bwd_elems)
    return Op(name=name, fwd=(fwd,), bwd=(bwd,), saved=Saved(raw_bytes=index_bytes))


def pool2d(name: str, in_elems: float, out_elems: float) -> Op:
    """Average pooling, which saves nothing; if another op needs the input, that op saves it."""
    kernel = Kernel(kind="elementwise", low=in_elems + out_elems)
    return Op(name=name, fwd=(kernel,), bwd=(kernel,))


def reduction(
    name: str, elems: float, *, out: float = 0.0, saves: float = 0.0, high: bool = True
) -> Op:
    """A sum or mean of ``elems`` elements per sample down to ``out`` elements."""
    fwd = Kernel(kind="reduction", **_traffic(elems + out, high))
    bwd = Kernel(kind="elementwise", indexed=elems, **_traffic(elems + out, high))  # broadcast
    return Op(name=name, fwd=(fwd,), bwd=(bwd,), saved=_saved(saves, high) if saves else NOTHING)


def scale(name: str, elems: float, *, high: bool = False) -> Op:
    """Multiplication by a constant: one read and one write each way; nothing is saved."""
    kernel = Kernel(kind="elementwise", **_traffic(2 * elems, high))
    return Op(name=name, fwd=(kernel,), bwd=(kernel,))


def grad_only(
    name: str,
    traffic: float,
    *,
    launches: float = 1.0,
    kind: Literal["elementwise", "copy", "reduction"] = "elementwise",
    high: bool = False,
    weight: float = 0.0,
    indexed: float = 0.0,
    role: OpRole = "",
) -> Op:
    """Kernels that only backward runs; all ``launches`` together move ``traffic`` elements."""
    kernel = Kernel(
        kind=kind, launches=launches, weight=weight, indexed=indexed, **_traffic(traffic, high)
    )
    return Op(name=name, fwd=(), bwd=(kernel,), role=role)


def accumulate(
    name: str, elems: float, *, times: float = 1.0, high: bool = False, casts: float = 0.0
) -> Op:
    """The sums in backward where forward forks: ``times`` additions of gradients of ``elems``.

    ``casts``: elements of these that autocast passes on to a branch in 16 bit.
    """
    op = grad_only(name, 3 * elems * times, launches=times, high=high)
    return replace(op, bwd=(replace(op.bwd[0], autocasts=casts),)) if casts else op


def keep(name: str, elems: float, *, high: bool = False) -> Op:
    """A storage of ``elems`` elements that lives until backward, for a reason not modelled here."""
    return Op(name=name, fwd=(), saved=_saved(elems, high))
