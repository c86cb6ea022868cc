"""Transformer-XL's layer and adaptive softmax in TensorFlow 1.15, one kernel per node.

The nodes were read in a published program (tf/model.py), of which only the optimizer is compiled
(main.py, jit_optimizer). ``tf.einsum`` transposes both operands, to [shared, free, summed] and
[shared, summed, free], multiplies them, and transposes the product to the requested order
(``special_math_ops.py``, _einsum_v1_reduction).
"""

from __future__ import annotations

from dataclasses import dataclass

from simcore.workload import ops
from simcore.workload.graph import TIE, Kernel, Op
from simcore.workload.ops import tensorflow as tf


@dataclass(frozen=True)
class Shape:
    """A segment of ``tgt`` tokens after ``mem`` tokens of memory; heads of ``head_dim``."""

    tgt: int
    mem: int
    hidden: int
    heads: int
    head_dim: int
    ffn: int
    drop: bool
    drop_scores: bool

    @property
    def keys(self) -> int:
        """Tokens of memory and segment."""
        return self.mem + self.tgt


def _moved(name: str, forward: float, backward: float) -> Op:
    """Elements copied between products, in 16 bit under mixed precision."""

    def copies(elems: float) -> tuple[Kernel, ...]:
        return (Kernel(kind="copy", low=2 * elems, indexed=elems),) if elems else ()

    return Op(name=name, fwd=copies(forward), bwd=copies(backward))


def _queries(q: float, width: float) -> Op:
    """Both biases of the queries.

    Backward sums each bias's gradient over the rows, in fp32, and adds both gradients of the
    queries.
    """
    added = Kernel(kind="elementwise", low=2 * q, indexed=q, weight=width)
    total = Kernel(kind="reduction", high=q, weight=width)
    cast = ops.autocast_cast(q)
    return Op(
        name="q.biases", fwd=(added,) * 2, bwd=(cast, total) * 2 + (tf.node(3 * q, low=True),)
    )


def layer(s: Shape) -> tuple[Op, ...]:
    """Relative attention and feed-forward layer, each with its norm.

    Under mixed precision scores are 16 bit in forward, from both products to the softmax's result
    and the context. In backward the softmax's sum makes products by a number fp32; from there to
    the next product, nodes that only move elements are 16 bit again.
    """
    d, inner, scores = s.hidden, s.heads * s.head_dim, float(s.heads * s.tgt * s.keys)
    q, kv, elems = float(s.tgt * inner), float(s.keys * inner), float(s.tgt * d)
    wide = float(s.tgt * s.ffn)
    relative = Kernel(kind="gemm", weight=float(d * inner + s.keys * (d + inner)))
    by_mask = tf.node(2 * scores, each=scores, low=True)
    return (
        tf.crossed("memory", float(s.mem * d), backward=False),
        tf.crossed("segment", elems),
        _moved("memory.concat", float(s.keys * d), elems),
        ops.linear("qkv", s.keys, d, 3 * inner),
        Op(name="r_net", fwd=(relative,), bwd=(relative,), gemm_weight=float(d * inner)),
        # Three parts, joined in backward; the segment's queries, in backward written into zeros.
        _moved("qkv.split", 3 * kv, 3 * kv),
        _moved("q.segment", 0.0, kv),
        _queries(q, inner),
        _moved("q.turned", 2 * q, 2 * q),
        _moved("k.turned", kv, kv),
        ops.bmm("scores.content", s.heads, s.tgt, s.keys, s.head_dim),
        ops.bmm("scores.position", s.heads, s.tgt, s.keys, s.head_dim, save_right=False),
        _moved("shift", 3 * scores, 3 * scores),  # to [b, n, i, j], padded, sliced
        Op(name="scores.sum", fwd=(tf.node(3 * scores, low=True),)),
        Op(name="scale", fwd=(tf.node(2 * scores, low=True),), bwd=(tf.node(2 * scores),)),
        # Scores times the inverted mask, minus 1e30 times the mask.
        Op(name="mask", fwd=(by_mask, by_mask), bwd=(tf.node(2 * scores, each=scores),)),
        tf.softmax("softmax", scores),
        *((tf.dropout("softmax.dropout", scores, low=True),) if s.drop_scores else ()),
        *(tf.crossed(f"scores.{end}", scores, forward=False) for end in ("in", "out")),
        _moved("v.turned", kv, kv),
        ops.bmm("context", s.heads, s.tgt, s.head_dim, s.keys, save_left=s.drop_scores),
        _moved("context.turned", q, q),
        ops.linear("out", s.tgt, inner, d),
        *_added("out", elems, s.drop),
        tf.layer_norm("norm1", s.tgt, d),
        tf.crossed("up.input", elems),
        ops.linear("up", s.tgt, d, s.ffn),
        # bias, ReLU and dropout lie between two products, both ways
        tf.bias("up.bias", wide, s.ffn, low=True, low_grad=True),
        ops.activation("relu", wide, saves="output"),
        *((_low_dropout("up.dropout", wide),) if s.drop else ()),
        ops.linear("down", s.tgt, s.ffn, d),
        *_added("down", elems, s.drop, width=d),
        tf.layer_norm("norm2", s.tgt, d),
    )


def _low_dropout(name: str, elems: float) -> Op:
    """Dropout whose backward lies between two products too, since no sum follows a ReLU."""
    op = tf.dropout(name, elems, low=True)
    back = (tf.node(3 * elems, low=True), tf.node(2 * elems, low=True))
    return Op(name=name, fwd=op.fwd, bwd=back, saved=op.saved)


def _added(name: str, elems: float, drop: bool, *, width: float = 0.0) -> tuple[Op, ...]:
    """A branch's result in fp32, its bias, dropout and the residual; two gradients are summed."""
    return (
        tf.crossed(f"{name}.result", elems),
        *((tf.bias(f"{name}.bias", elems, width),) if width else ()),
        *((tf.dropout(f"{name}.dropout", elems),) if drop else ()),
        Op(name=f"{name}.residual", fwd=(tf.node(3 * elems),), bwd=(tf.node(3 * elems),)),
    )


def logits(name: str, rows: float, width: int, words: int, *, chosen: bool) -> tuple[Op, ...]:
    """One cluster's logits, bias and log-probabilities, and those of the targets.

    Everything except the product is fp32. The table's slice is transposed for the product, its
    gradient transposed back. The gradient of ``gather_nd`` is a tensor of zeros except for one
    element per row. ``chosen``: the short list's log-probabilities are copied by row for each
    cluster (boolean_mask); backward joins the copies' gradients, scatters them over zeros and adds
    them there.
    """
    elems, table = rows * words, float(width) * words
    turned = Kernel(kind="copy", weight=2 * table)
    zeros = Op(name=f"{name}.targets", fwd=(), bwd=(tf.node(elems),))
    rowwise = Kernel(kind="gather", high=2 * elems)
    picked = Op(name=f"{name}.rows", fwd=(rowwise,), bwd=(rowwise, rowwise, tf.node(2 * elems)))
    return (
        Op(name=f"{name}.table", fwd=(turned,), bwd=(turned,)),
        ops.linear(name, rows, width, words, row_elems=ops.row_elems(width, words)),
        tf.crossed(f"{name}.result", elems),
        tf.bias(f"{name}.bias", elems, words),
        tf.log_softmax(f"{name}.log_softmax", elems),
        *((picked,) if chosen else ()),
        zeros,
    )


def tied_gradient(numel: float, slices: int) -> Op:
    """The gradient of a table that is looked up and, in slices, multiplied.

    Each slice's gradient is written over zeros as large as the table (StridedSliceGrad). Because
    the look-up's gradient consists of rows, all gradients are treated as rows and joined
    (``gradients_impl.py``, _AggregateIndexedSlicesGradients), and Horovod adds the rows into zeros
    (sparse_as_dense). So, for each of ``slices``, a whole table is written, read and written again
    when joined, and read and added; the slices' own gradients are copied once.
    """
    joined = Kernel(kind="copy", weight=(2.0 + 3.0 * slices) * numel, launches=2.0 * slices)
    added = Kernel(kind="gather", weight=(1.0 + 3.0 * slices) * numel, launches=2.0)
    return Op(name=TIE, fwd=(), bwd=(joined, added))
