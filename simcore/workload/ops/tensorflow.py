"""Operators as a TensorFlow graph runs them that XLA does not compile: a kernel for each node.

Counted from TensorFlow's Python, which 1.15 and 2.4 agree in: what a function of ``tf.nn`` is made
of, and what its gradient is made of (``python/ops/*_grad.py``). An element is read or written once
a node; what is broadcast, turned or cast is ``indexed``.

Widths are those of the rewrite for mixed precision (``grappler/optimizers/auto_mixed_precision.cc``
and its lists): products are 16 bit, and what lies between two products if no sum, mean or power
comes before it; all behind one of these is fp32 until the next product. So ``high`` is the rule
here and ``low`` the exception. A cast is a node for each tensor that crosses (``crossed``).
"""

from __future__ import annotations

from dataclasses import replace

from simcore.base.units import FP32_BYTES
from simcore.workload.graph import Kernel, Op
from simcore.workload.ops.norm import autocast_cast
from simcore.workload.saved import Saved


def node(elems: float, *, each: float = 0.0, low: bool = False, launches: float = 1.0) -> Kernel:
    """A node that moves ``elems`` elements in all, ``each`` of them one by one."""
    narrow = elems * low
    return Kernel(
        kind="elementwise", low=narrow, high=elems - narrow, indexed=each, launches=launches
    )


def summed(elems: float, *, low: bool = False) -> Kernel:
    """A sum, mean or maximum over ``elems`` elements; what it writes is small."""
    narrow = elems * low
    return Kernel(kind="reduction", low=narrow, high=elems - narrow)


def crossed(name: str, elems: float, *, forward: bool = True, backward: bool = True) -> Op:
    """A tensor that goes from fp32 to 16 bit or back under mixed precision, and its gradient."""
    cast = (autocast_cast(elems),)
    return Op(name=name, fwd=cast * forward, bwd=cast * backward)


def bias(name: str, elems: float, width: float, *, low: bool = False, low_grad: bool = False) -> Op:
    """``BiasAdd`` and its gradient, a sum over the rows.

    ``low``: it lies between two products; ``low_grad``: so does the gradient that comes to it, of
    which the sum is a leaf, fp32 after a cast.
    """
    added = Kernel(
        kind="elementwise", indexed=elems, weight=width,
        low=2 * elems * low, high=2 * elems * (not low),
    )  # fmt: skip
    total = Kernel(kind="reduction", high=elems, weight=width)
    return Op(name=name, fwd=(added,), bwd=(*(autocast_cast(elems),) * low_grad, total))


def layer_norm(name: str, rows: float, dim: int) -> Op:
    """``tf.nn.moments`` and ``tf.nn.batch_normalization`` over rows of ``dim``, in fp32.

    So are contrib.layers.layer_norm (TensorFlow 1) and Keras' LayerNormalization with an epsilon
    below 1.001e-5, which a fused batch norm cannot have (``_fused_can_be_used``). Elements: mean 1,
    squared difference 2, its mean 1, rsqrt times gamma 1 (a number a row to one an element), times
    x 3, mean times that 2, beta less that 2, their sum 3.

    Backward: of the two products 3 + 3, beta's sum 1, negated 2, towards the mean 3 + 1, towards
    rsqrt times gamma 2 and with the other 3, towards rsqrt 2 + 1 and gamma 2 + 1; a mean's gradient
    is tiled and divided, 1 + 2, twice; of the squared difference twice the gradient 2, the
    difference once more 2, their product 3; three gradients of x are summed, 4.
    """
    e = rows * dim
    by_row = Kernel(kind="elementwise", raw_bytes=2 * FP32_BYTES * rows, launches=2.0)
    spread = (node(e, each=e), node(2 * e))
    fwd = (
        summed(e), node(2 * e, each=e), summed(e), by_row,
        node(e, each=e), node(3 * e), node(2 * e, each=e), node(2 * e, each=e), node(3 * e),
    )  # fmt: skip
    bwd = (
        node(3 * e), node(3 * e), summed(e), node(2 * e),
        node(3 * e), summed(e), node(2 * e, each=e), node(3 * e),
        node(2 * e, each=e), summed(e), node(2 * e, each=e), summed(e),
        by_row, by_row, *spread, node(2 * e), node(2 * e, each=e), node(3 * e), *spread,
        node(4 * e),
    )  # fmt: skip
    # its input, rsqrt times gamma, and a mean and a variance a row
    saved = Saved(high=2 * e, raw_bytes=2 * FP32_BYTES * rows)
    return Op(name=name, fwd=fwd, bwd=bwd, saved=saved)


def dropout(name: str, elems: float, *, low: bool = False) -> Op:
    """``tf.nn.dropout``: random numbers, compared, cast to the activation's type, two products.

    Numbers are fp32 (no list has them); backward multiplies by the mask, which it keeps as wide as
    the activation, and by the scale (``nn_ops.py``, dropout_v2). ``low``: forward lies between two
    products; backward has the softmax's sum behind it and is fp32, for which the mask is cast.
    """
    fwd = (
        Kernel(kind="elementwise", raw_bytes=FP32_BYTES * elems),
        Kernel(kind="elementwise", raw_bytes=(FP32_BYTES + 1.0) * elems),
        replace(node(elems, each=elems, low=low), raw_bytes=elems),
        node(2 * elems, low=low),
        node(3 * elems, low=low),
    )
    bwd = (*(autocast_cast(elems),) * low, node(3 * elems), node(2 * elems))
    return Op(name=name, fwd=fwd, bwd=bwd, saved=_kept(elems, low))


def gelu(name: str, elems: float, *, tanh: bool = True) -> Op:
    """GELU written out, ``x * 0.5 (1 + f)``.

    ``tanh``: f of ``x + 0.044715 x^3`` (BERT's modeling.py), nodes of 2 elements each but sums and
    products of two tensors, 18; all in fp32, since a power is on the list of what must be. Else f
    is erf of ``x / sqrt 2`` (transformers' TFBert), 11, which lies between two products. Backward
    goes through them all: of the product 3 + 3, the half 2, tanh 3 and its scale 2, the factor 2,
    the power 2 + 2 + 3, the sum of three 4. Erf's has the square, its negation, exponential and
    scale, 2 each, and a product of 3, then the quotient 2, and sums two, 3: fp32 for the
    exponential, for which the gradient, the input, erf's input and the half's product are cast.
    """
    e, low = elems, not tanh
    two, three = node(2 * e, low=low), node(3 * e, low=low)
    to, of = node(2 * e), node(3 * e)
    fwd: tuple[Kernel, ...]
    bwd: tuple[Kernel, ...]
    if tanh:
        fwd = (two, two, three, two, two, two, two, three)
        bwd = (of, of, to, of, to, to, to, to, of, node(4 * e))
    else:
        fwd = (two, two, two, two, three)
        bwd = (*(autocast_cast(e),) * 4, of, of, to, to, to, to, to, of, to, of)
    # its input, the half's product, and tanh's result or erf's input
    return Op(name=name, fwd=fwd, bwd=bwd, saved=_kept(3 * e, low))


def softmax(name: str, elems: float, *, forward_low: bool = True) -> Op:
    """Softmax of scores: reads for the maximum, the sum and the result (``softmax_op_gpu.cu.cc``).

    Backward is a product, its sum, a difference and a product (``nn_grad.py``), fp32 for the sum
    in it, for which the result is cast. ``forward_low``: it lies between two products.
    """
    low = forward_low
    read = summed(elems, low=low)
    fwd = (read, read, node(2 * elems, each=elems, low=low))
    bwd = (
        *(autocast_cast(elems),) * low,
        node(3 * elems), summed(elems), node(2 * elems, each=elems), node(3 * elems),
    )  # fmt: skip
    return Op(name=name, fwd=fwd, bwd=bwd, saved=_kept(elems, low))


def log_softmax(name: str, elems: float) -> Op:
    """``LogSoftmax`` in fp32, as softmax; backward exp 2, the gradient's sum 1, times 2, less 3."""
    fwd = (summed(elems), summed(elems), node(2 * elems, each=elems))
    bwd = (node(2 * elems), summed(elems), node(2 * elems, each=elems), node(3 * elems))
    return Op(name=name, fwd=fwd, bwd=bwd, saved=Saved(high=elems))


def _kept(elems: float, low: bool) -> Saved:
    return Saved(low=elems) if low else Saved(high=elems)
