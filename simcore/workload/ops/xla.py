"""Operators of TensorFlow graphs that XLA clusters automatically.

``global_jit_level`` or ``set_jit`` turn this on. A cluster's kernels end at products and at sums;
each kernel that reads a cheap result recomputes it (``gpu/instruction_fusion.cc``). Random numbers
are drawn outside: automatic clustering excludes stateful generators on GPUs
(``mark_for_compilation_pass.cc``, ``allow_stateful_rng_ops``; set for the XLA_GPU device alone).
TensorFlow's kernel therefore writes them in fp32, and each fusion that applies dropout, in backward
too, reads and compares them.
"""

from __future__ import annotations

from simcore.base.units import FP32_BYTES
from simcore.workload.graph import Kernel, Op
from simcore.workload.ops.pointwise import copy
from simcore.workload.ops.products import bmm
from simcore.workload.saved import Saved

__all__ = ["added", "attention", "layer_norm"]


def random(name: str, elems: float) -> Op:
    """A dropout's random numbers, which are saved for backward."""
    made = Kernel(kind="elementwise", raw_bytes=FP32_BYTES * elems)
    return Op(name=name, fwd=(made,), saved=Saved(raw_bytes=FP32_BYTES * elems))


def attention(name: str, heads: int, seq: int, head_dim: int, *, drop: bool) -> tuple[Op, ...]:
    """Scores, softmax and context of one sequence per sample.

    The scores are read for their maximum, their sum and the quotient. The quotient is written, with
    dropout also a second time after it; backward reads both. Backward, p (g - sum(p g)), reads p
    and g for the sum and a second time for the product, and with dropout the random numbers of g.
    """
    scores = float(heads) * seq * seq
    drawn = FP32_BYTES * scores * drop
    sums = Kernel(kind="reduction", low=scores)
    fwd = (sums, sums, Kernel(kind="elementwise", low=(2.0 + drop) * scores, raw_bytes=drawn))
    bwd = (
        Kernel(kind="reduction", low=2 * scores, raw_bytes=drawn),
        Kernel(kind="elementwise", low=3 * scores, raw_bytes=drawn),
    )
    saved = Saved(low=scores)
    return (
        bmm(f"{name}.scores", heads, seq, seq, head_dim),
        *((random(f"{name}.random", scores),) if drop else ()),
        Op(name=f"{name}.softmax", fwd=fwd, bwd=bwd, saved=saved),
        bmm(f"{name}.context", heads, seq, head_dim, seq, save_left=drop),
        copy(f"{name}.merge", float(heads * seq * head_dim)),
    )


def added(name: str, elems: float, *, drop: bool) -> Op:
    """Bias, dropout and the sum with the fp32 residual; backward masks the branch's gradient."""
    drawn = FP32_BYTES * elems * drop
    total = Kernel(kind="elementwise", low=elems, high=2 * elems, raw_bytes=drawn)
    back = Kernel(kind="elementwise", low=elems, high=elems, raw_bytes=drawn)
    made = random(name, elems)
    return Op(
        name=name, fwd=(*made.fwd * drop, total), bwd=(back,),
        saved=made.saved if drop else Saved(),
    )  # fmt: skip


def layer_norm(name: str, rows: float, dim: int) -> Op:
    """Mean and variance in one pass each, then the result in fp32 and, for products, in 16 bit.

    ``tf.nn.moments`` squares the difference from the mean, so that the second sum needs the first.
    Backward: two sums per row over the gradient and the input, the gradient of the input, and two
    sums per column.
    """
    e = rows * dim
    fwd = (
        Kernel(kind="reduction", high=e), Kernel(kind="reduction", high=e),
        Kernel(kind="elementwise", high=2 * e, low=e),
    )  # fmt: skip
    bwd = (
        Kernel(kind="reduction", high=2 * e), Kernel(kind="elementwise", high=3 * e),
        Kernel(kind="reduction", high=2 * e, weight=2.0 * dim),
    )  # fmt: skip
    return Op(name=name, fwd=fwd, bwd=bwd, saved=Saved(high=e, raw_bytes=2 * FP32_BYTES * rows))
