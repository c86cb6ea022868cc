"""A layer of BERT as TensorFlow runs it: one kernel per node of the graph, or fused by XLA.

Nodes are those of the original modeling.py (attention_layer, transformer_model), TensorFlow 2's
official/nlp/modeling/layers and ELECTRA's modeling_utils.py.
"""

from __future__ import annotations

from simcore.workload import ops
from simcore.workload.graph import Op
from simcore.workload.ops import tensorflow as tf
from simcore.workload.ops import xla


def graph_layer(
    seq: int, hidden: int, heads: int, ffn: int, *, drop: bool, tanh: bool
) -> tuple[Op, ...]:
    """A layer without XLA.

    Under mixed precision everything from q, k and v to the context is 16 bit. Norms begin with a
    mean, and GELU's approximation (``tanh``) with a power, so that everything from a product's
    result to the next product's operand is fp32: the bias, dropout and residual, GELU, and in
    backward everything between products. A result's gradient is cast once for both products that
    read it.
    """
    elems, inner = float(seq * hidden), float(seq * ffn)
    scores = float(heads) * seq * seq
    head_dim = hidden // heads
    body: list[Op] = [tf.crossed("qkv.input", elems, backward=False)]
    for part in "qkv":
        body += [
            ops.linear(part, seq, hidden, hidden, save_input=part == "q"),
            tf.bias(f"{part}.bias", elems, hidden, low=True, low_grad=True),
            ops.copy(f"{part}.transpose", elems, saves=elems),
        ]
    body += [
        ops.bmm("scores", heads, seq, seq, head_dim, save_left=False, save_right=False),
        Op(name="scale", fwd=(tf.node(2 * scores, low=True),), bwd=(tf.node(2 * scores),)),
        Op(name="mask", fwd=(tf.node(2 * scores, each=scores, low=True),)),
        tf.softmax("softmax", scores),
        *((tf.dropout("softmax.dropout", scores, low=True),) if drop else ()),
        # The gradient is cast before and after the scores; forward is 16 bit throughout.
        *(tf.crossed(f"scores.{end}", scores, forward=False) for end in ("in", "out")),
        ops.bmm("context", heads, seq, head_dim, seq, save_left=drop, save_right=False),
        ops.copy("merge", elems),
        ops.linear("attention.out", seq, hidden, hidden),
        *_added("attention", elems, hidden, drop, forks=3),
        tf.layer_norm("attention.norm", seq, hidden),
        tf.crossed("up.input", elems),
        ops.linear("up", seq, hidden, ffn),
        # Cast to fp32 for GELU's power and back; with erf, too, the gradient reaches the product in
        # fp32.
        tf.crossed("up.result", inner, forward=tanh),
        tf.bias("up.bias", inner, ffn, low=not tanh),
        tf.gelu("gelu", inner, tanh=tanh),
        *((tf.crossed("down.input", inner),) if tanh else ()),
        ops.linear("down", seq, ffn, hidden),
        *_added("mlp", elems, hidden, drop, forks=1),
        tf.layer_norm("mlp.norm", seq, hidden),
    ]
    return tuple(body)


def _added(name: str, elems: float, width: int, drop: bool, *, forks: int) -> tuple[Op, ...]:
    """A branch's result cast to fp32, its bias, dropout and the residual.

    Backward sums the gradients of ``forks`` products and of the residual in one node (AddN).
    """
    fork = tf.node((forks + 2) * elems)
    casts = (ops.autocast_cast(elems),) * (forks if forks > 1 else 0)
    return (
        tf.crossed(f"{name}.result", elems),
        tf.bias(f"{name}.bias", elems, width),
        *((tf.dropout(f"{name}.dropout", elems),) if drop else ()),
        Op(name=f"{name}.residual", fwd=(tf.node(3 * elems),), bwd=(*casts, fork)),
    )


def xla_layer(seq: int, hidden: int, heads: int, ffn: int, *, drop: bool) -> tuple[Op, ...]:
    """A layer that XLA compiles: ops between products and sums are one kernel, casts included.

    A bias is added where the result is read: by the copy to heads, by GELU, or by the sum with the
    residual, which also applies dropout. TensorFlow's kernels draw random numbers (``xla.random``).
    """
    elems, inner = float(seq * hidden), float(seq * ffn)
    return (
        *(
            ops.linear(part, seq, hidden, hidden, bias=True, save_input=part == "q")
            for part in "qkv"
        ),
        *(ops.copy(f"{part}.heads", elems) for part in "qkv"),
        *xla.attention("attention", heads, seq, hidden // heads, drop=drop),
        ops.linear("attention.out", seq, hidden, hidden, bias=True, save_input=False),
        xla.added("attention.residual", elems, drop=drop),
        ops.accumulate("attention.forks", elems, times=3, high=True),
        xla.layer_norm("attention.norm", seq, hidden),
        ops.linear("up", seq, hidden, ffn, bias=True),
        ops.activation("gelu", inner),
        ops.linear("down", seq, ffn, hidden, bias=True),
        xla.added("mlp.residual", elems, drop=drop),
        ops.accumulate("mlp.fork", elems, high=True),
        xla.layer_norm("mlp.norm", seq, hidden),
    )
