"""Operators of a TensorFlow graph that XLA does not compile: each node is a kernel.

They are counted from TensorFlow's Python code, on which 1.15 and 2.4 agree: the nodes of a function
of ``tf.nn``, and the nodes of its gradient (``python/ops/*_grad.py``). Each node reads or writes an
element once; elements that are broadcast, transposed or cast are ``indexed``.

Widths are those of the rewrite for mixed precision (``grappler/optimizers/auto_mixed_precision.cc``
and its lists). Products are 16 bit, and so are the nodes between two products up to the first sum,
mean or power; that node and the nodes after it are fp32 until the next product. So most elements
are ``high`` here and few are ``low``. Each tensor that crosses from one width to the other has a
cast node (``crossed``).
"""

from __future__ import annotations

from dataclasses import replace

from simcore.base.units import FP32_BYTES
from simcore.workload.graph import Kernel, Op
from simcore.workload.ops.norm import autocast_cast
from simcore.workload.saved import Saved

__all__ = ["bias", "crossed", "dropout", "gelu", "layer_norm", "log_softmax", "softmax"]


def node(elems: float, *, each: float = 0.0, low: bool = False, launches: float = 1.0) -> Kernel:
    """A node that moves ``elems`` elements in all, ``each`` of which are addressed one by one."""
    narrow = elems * low
    return Kernel(
        kind="elementwise", low=narrow, high=elems - narrow, indexed=each, launches=launches
    )


def summed(elems: float, *, low: bool = False) -> Kernel:
    """A sum, mean or maximum over ``elems`` elements; its result is small."""
    narrow = elems * low
    return Kernel(kind="reduction", low=narrow, high=elems - narrow)


def crossed(name: str, elems: float, *, forward: bool = True, backward: bool = True) -> Op:
    """The cast of a tensor between fp32 and 16 bit under mixed precision, and its gradient's."""
    cast = (autocast_cast(elems),)
    return Op(name=name, fwd=cast * forward, bwd=cast * backward)


def bias(name: str, elems: float, width: float, *, low: bool = False, low_grad: bool = False) -> Op:
    """``BiasAdd`` and its gradient, a sum over the rows.

    ``low``: the node is between two products. ``low_grad``: so is the gradient that reaches it; the
    sum over that gradient is a leaf and is fp32 after a cast.
    """
    added = Kernel(
        kind="elementwise", indexed=elems, weight=width,
        low=2 * elems * low, high=2 * elems * (not low),
    )  # fmt: skip
    total = Kernel(kind="reduction", high=elems, weight=width)
    return Op(name=name, fwd=(added,), bwd=(*(autocast_cast(elems),) * low_grad, total))


def layer_norm(name: str, rows: float, dim: int) -> Op:
    """``tf.nn.moments`` and ``tf.nn.batch_normalization`` over rows of ``dim``, in fp32.

    The same nodes make up contrib.layers.layer_norm (TensorFlow 1) and Keras' LayerNormalization
    with an epsilon below 1.001e-5, which a fused batch norm cannot have (``_fused_can_be_used``).

    Tensors of ``rows * dim`` elements moved in forward: mean 1, squared difference 2, its mean 1,
    rsqrt times gamma 1 (from a number per row to one per element), times x 3, mean times that 2,
    beta minus that 2, their sum 3.

    Backward: the two products 3 + 3, beta's sum 1, its negation 2, the gradient of the mean 3 + 1,
    of rsqrt times gamma 2 and the product with the other factor 3, of rsqrt 2 + 1 and of gamma 2 +
    1; a mean's gradient is tiled and divided, 1 + 2, twice; of the squared difference twice the
    gradient 2, the difference once more 2, their product 3; three gradients of x are summed, 4.
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
    # Its input, rsqrt times gamma, and a mean and a variance per row.
    saved = Saved(high=2 * e, raw_bytes=2 * FP32_BYTES * rows)
    return Op(name=name, fwd=fwd, bwd=bwd, saved=saved)


def dropout(name: str, elems: float, *, low: bool = False, low_grad: bool = False) -> Op:
    """``tf.nn.dropout``: random numbers, comparison, cast to the activation's type, two products.

    The random numbers are fp32, since neither list contains them. Backward multiplies by the mask,
    which is saved with the width of the activation, and by the scale (``nn_ops.py``, dropout_v2).
    ``low``: in forward the node is between two products; in backward it comes after the softmax's
    sum and is fp32, for which the mask is cast, unless ``low_grad``: no sum is between two products
    there either.
    """
    fwd = (
        Kernel(kind="elementwise", raw_bytes=FP32_BYTES * elems),
        Kernel(kind="elementwise", raw_bytes=(FP32_BYTES + 1.0) * elems),
        replace(node(elems, each=elems, low=low), raw_bytes=elems),
        node(2 * elems, low=low),
        node(3 * elems, low=low),
    )
    back = (node(3 * elems, low=low_grad), node(2 * elems, low=low_grad))
    bwd = (*(autocast_cast(elems),) * (low and not low_grad), *back)
    return Op(name=name, fwd=fwd, bwd=bwd, saved=_kept(elems, low))


def gelu(name: str, elems: float, *, tanh: bool = True) -> Op:
    """GELU as separate nodes, ``x * 0.5 (1 + f)``.

    ``tanh``: f is tanh of ``x + 0.044715 x^3`` with a scale (BERT's modeling.py). Nodes move 2
    tensors each, sums and products of two tensors 3; 18 in all. Everything is fp32, since a power
    must be. Otherwise f is erf of ``x / sqrt 2`` (transformers' TFBert), 11 tensors, between two
    products.

    Backward goes through all nodes. With tanh: the product 3 + 3, the half 2, tanh 3 and its scale
    2, the factor 2, the power 2 + 2 + 3, the sum of three 4. With erf: the square, its negation,
    exponential and scale, 2 each, and a product of 3, then the quotient 2, and the sum of two 3;
    these are fp32 because of the exponential, for which the gradient, the input, erf's input and
    the half's product are cast.
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
    # Its input, the half's product, and tanh's result or erf's input.
    return Op(name=name, fwd=fwd, bwd=bwd, saved=_kept(3 * e, low))


def softmax(name: str, elems: float, *, forward_low: bool = True) -> Op:
    """Softmax of scores: reads for the maximum, the sum and the result (``softmax_op_gpu.cu.cc``).

    Backward is a product, its sum, a difference and a product (``nn_grad.py``). The sum makes them
    fp32, for which the result is cast. ``forward_low``: in forward the node is between two
    products.
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
    """``LogSoftmax`` in fp32: forward as softmax.

    Tensors moved in backward: exp 2, the gradient's sum 1, their product 2, the difference 3.
    """
    fwd = (summed(elems), summed(elems), node(2 * elems, each=elems))
    bwd = (node(2 * elems), summed(elems), node(2 * elems, each=elems), node(3 * elems))
    return Op(name=name, fwd=fwd, bwd=bwd, saved=Saved(high=elems))


def _kept(elems: float, low: bool) -> Saved:
    return Saved(low=elems) if low else Saved(high=elems)
