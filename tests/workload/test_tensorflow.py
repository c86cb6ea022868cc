"""Operators of TensorFlow's graphs against a graph with TensorFlow's own gradients and rewrite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from reference.tensorflow_graph import Graph, Node, dropout, gelu, layer_norm

from simcore.workload.archs.body_layers import BodyList
from simcore.workload.graph import Kernel, Op
from simcore.workload.ops import tensorflow as tf
from simcore.workload.ops import xla

bert, transformer_xl = BodyList("bert"), BodyList("transformer_xl")

E = 64.0


def moved(ops: tuple[Op, ...], *, mixed: bool = False) -> float:
    low = 2.0 if mixed else 4.0

    def of(k: Kernel) -> float:
        return low * k.low + 4.0 * k.high + k.raw_bytes

    return sum(of(k) for op in ops for k in (*op.fwd, *op.bwd) if k.kind != "gemm")


def alone(build) -> float:
    """Bytes of an operator and its gradient, by the graph."""
    g = Graph()
    x = g("Input", size=E)
    y, params = build(g, x)
    g.gradients(y, {x, *params})
    return g.moved_bytes(mixed=False)


@pytest.mark.parametrize(
    ("op", "build"),
    [
        (tf.gelu("f", E), lambda g, x: (gelu(g, x, tanh=True), set())),
        (tf.gelu("f", E, tanh=False), lambda g, x: (gelu(g, x, tanh=False), set())),
        (tf.softmax("f", E, forward_low=False), lambda g, x: (g("Softmax", x), set())),
        (tf.log_softmax("f", E), lambda g, x: (g("LogSoftmax", x), set())),
        (tf.dropout("f", E), lambda g, x: (dropout(g, x), set())),
    ],
)
def test_operators_move_what_their_nodes_move(op: Op, build) -> None:
    assert moved((op,)) == pytest.approx(alone(build))


def test_layer_norm_moves_fifteen_elements_forward_and_forty_one_backward() -> None:
    op = tf.layer_norm("norm", 1.0, int(E))
    small = sum(k.raw_bytes for k in (*op.fwd, *op.bwd))
    assert sum(k.high for k in op.fwd) == 15 * E
    assert sum(k.high for k in op.bwd) == 41 * E
    assert moved((op,)) - small == pytest.approx(alone(layer_norm))


class Net:
    """A stack of layers as a graph, with what it trains."""

    def __init__(self, elems: float) -> None:
        self.g, self.trained = Graph(), set[Node]()
        first = self.weight(elems)
        self.x = self.norm(first)

    def weight(self, size: float = 0.0) -> Node:
        found = self.g("Input", size=size)
        self.trained.add(found)
        return found

    def dense(self, x: Node, size: float, *, biased: bool = True) -> Node:
        y = self.g("MatMul", x, self.weight(), size=size)
        return self.g("BiasAdd", y, self.weight()) if biased else y

    def norm(self, x: Node) -> Node:
        y, params = layer_norm(self.g, x)
        self.trained.update(params)
        return y

    def moved(self, *, mixed: bool) -> float:
        self.g.gradients(self.x, self.trained)
        return self.g.moved_bytes(mixed=mixed)


def _one_layer(elems: float, add: Callable[[Net], None], *, mixed: bool) -> float:
    """What two layers move and one does not."""
    found = []
    for layers in (1, 2):
        net = Net(elems)
        for _ in range(layers):
            add(net)
        found.append(net.moved(mixed=mixed))
    return found[1] - found[0]


def _without_rows(body: tuple[Op, ...], *, mixed: bool) -> float:
    """What a layer's operators move, less the norms' numbers a row."""
    small = sum(k.raw_bytes for op in body if "norm" in op.name for k in (*op.fwd, *op.bwd))
    return moved(body, mixed=mixed) - small


@pytest.mark.parametrize("tanh", [True, False])
@pytest.mark.parametrize("mixed", [False, True])
def test_layer_of_bert_moves_what_the_graph_moves(tanh: bool, mixed: bool) -> None:
    seq, hidden, heads, ffn = 32, 64, 2, 256
    elems, inner, scores = float(seq * hidden), float(seq * ffn), float(heads * seq * seq)

    def add(net: Net) -> None:  # transformer_model and attention_layer of BERT's modeling.py
        g, x = net.g, net.x
        q, k, v = (g("Move", net.dense(x, elems)) for _ in "qkv")
        s = g("BatchMatMul", q, k, size=scores)
        s = g("Add", g("Mul", s, g("Const")), g("Const"))
        context = g("Move", g("BatchMatMul", dropout(g, g("Softmax", s)), v, size=elems))
        x = net.norm(g("Add", dropout(g, net.dense(context, elems)), x))
        up = gelu(g, net.dense(x, inner), tanh=tanh)
        net.x = net.norm(g("Add", dropout(g, net.dense(up, elems)), x))

    net = bert(
        name="x", layers=1, hidden=hidden, heads=heads, ffn=ffn, seq_len=seq,
        framework="tensorflow", gelu="tanh" if tanh else "fused",
    )  # fmt: skip
    body = net.blocks[1].ops
    assert _without_rows(body, mixed=mixed) == pytest.approx(_one_layer(elems, add, mixed=mixed))


@pytest.mark.parametrize("mixed", [False, True])
def test_layer_of_transformer_xl_moves_what_the_graph_moves(mixed: bool) -> None:
    tgt, hidden, heads, width, ffn = 32, 64, 2, 32, 256
    keys, inner = 2 * tgt, heads * width
    elems, wide, scores = float(tgt * hidden), float(tgt * ffn), float(heads * tgt * keys)
    q, kv = float(tgt * inner), float(keys * inner)

    def add(net: Net) -> None:  # rel_multihead_attn and positionwise_FF of model.py
        g, x = net.g, net.x
        cat = g("Move", x, g("Input", size=elems), size=keys * hidden, back=elems)
        parts = g("Split", net.dense(cat, 3 * kv, biased=False))
        segment = g("Alias", parts, size=q, back=kv)
        content, position = (g("Move", g("Add", segment, net.weight()), size=q) for _ in range(2))
        k, v = (g("Move", parts, size=kv) for _ in "kv")
        r = g("MatMul", g("Input"), net.weight(), size=0.0)
        shifted = g("BatchMatMul", position, r, size=scores)
        for _ in range(3):  # transposed, padded, sliced
            shifted = g("Move", shifted)
        s = g("Add", g("BatchMatMul", content, k, size=scores), shifted)
        s = g("Sub", g("Mul", g("Mul", s, g("Const")), g("Const")), g("Const"))
        context = g("Move", g("BatchMatMul", g("Softmax", s), v, size=q))
        x = net.norm(g("Add", dropout(g, net.dense(context, elems, biased=False)), x))
        up = dropout(g, g("Relu", net.dense(x, wide)))
        net.x = net.norm(g("Add", dropout(g, net.dense(up, elems)), x))

    net = transformer_xl(
        name="x", layers=1, hidden=hidden, heads=heads, head_dim=width, ffn=ffn, seq_len=tgt,
        memory=tgt, attention_dropout=0.0, framework="tensorflow",
    )  # fmt: skip
    body = net.blocks[1].ops
    assert _without_rows(body, mixed=mixed) == pytest.approx(_one_layer(elems, add, mixed=mixed))


def _head() -> tuple[Op, ...]:
    """The head of one token, of which the short list has 20,000 words."""
    net = transformer_xl(
        name="x", layers=1, hidden=8, heads=1, ffn=8, seq_len=1, framework="tensorflow"
    )
    return net.blocks[-1].ops


def test_a_tied_table_is_written_joined_and_added() -> None:
    """Slices of 10 in all copied; four tables of 10 zeroed, joined, and added over zeros."""
    moved_elements = sum(k.weight for op in _head() if op.name == "tie" for k in op.bwd)
    assert moved_elements / (267735 * 8 / 10) == 2 * 10 + 40 + 2 * 40 + (10 + 40 + 2 * 40)


def test_a_cluster_s_logits_pass_fp32_elements_as_nodes_do() -> None:
    """Of 1 logit: bias 2, log-softmax 3 + 1 and backward 1 + 8, rows 2 and 6, zeros 1."""
    ops = [op for op in _head() if op.name.startswith("short")]
    forward, backward = (
        sum(k.high for op in ops for k in getattr(op, way) if k.kind != "gemm") / 20000.0
        for way in ("fwd", "bwd")
    )
    assert forward == pytest.approx(2 + 4 + 2 + 3)  # and a cast of 6 bytes, which is 3 - 3 of each
    assert backward == pytest.approx(1 + 8 + 6 + 1 + 3)


def test_what_xla_clusters_reads_random_numbers_that_tensorflow_writes() -> None:
    """fp32 numbers of the scores: written once, read by the quotient and twice in backward."""
    plain, dropped = (xla.attention("a", 2, 32, 16, drop=drop) for drop in (False, True))
    scores = 2.0 * 32 * 32
    more = moved(dropped) - moved(plain)
    # and what is dropped out is written beside what is not
    assert more == pytest.approx(4.0 * scores * (1 + 1 + 2) + 4.0 * scores)


def test_xla_moves_less_than_a_kernel_a_node() -> None:
    def of(**how: Any) -> float:
        net = bert(name="x", layers=1, hidden=64, heads=2, seq_len=32, **how)
        return moved(net.blocks[1].ops)

    assert of(xla=True) < 0.5 * of(framework="tensorflow")
