"""A graph in TensorFlow's sense: nodes, its own gradient functions, the mixed-precision rewrite.

Written from TensorFlow's sources apart from what simcore counts with, to hold that against it:
``python/ops/math_grad.py``, ``nn_grad.py``, ``array_grad.py`` for gradients, and
``core/grappler/optimizers/auto_mixed_precision.cc`` with its lists for what is 16 bit. Tensors that
are a number a row or a column are taken for nothing.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

ALLOW = {"MatMul", "BatchMatMul"}
DENY = {"Exp", "Mean", "Pow", "Sum"}
INFER = {
    "Add", "AddN", "BiasAdd", "BiasAddGrad", "Erf", "LogSoftmax", "Mul", "RealDiv", "Softmax",
    "Sub", "Tanh", "TanhGrad",
}  # fmt: skip
CLEAR = {"Alias", "Move", "Neg", "Relu", "ReluGrad", "Split", "Tile"}
#: Elements that a node moves for each of its output: Softmax reads its input three times.
READS = {"Softmax": 3, "LogSoftmax": 3}


@dataclass(eq=False)
class Node:
    """An operation on tensors of ``size`` elements (0: negligible); constants have no inputs.

    ``Move`` stands for what is on the list of ops that only move elements (Transpose, Pad, Slice,
    ConcatV2, StridedSliceGrad): it reads and writes ``size``, its gradient ``back``. ``Alias`` is a
    slice of the first dimension, which shares its input's memory.
    """

    op: str
    inputs: tuple[Node, ...]
    size: float
    bool_: bool = False
    back: float = 0.0


@dataclass
class Graph:
    """Nodes in the order of execution; ``loss`` adds those of the gradients."""

    nodes: list[Node] = field(default_factory=list)

    def __call__(
        self, op: str, *inputs: Node, size: float | None = None, bool_=False, back=None
    ) -> Node:
        largest = max((i.size for i in inputs), default=0.0)
        elems = largest if size is None else size
        node = Node(op, inputs, elems, bool_, elems if back is None else back)
        self.nodes.append(node)
        return node

    def gradients(self, result: Node, trained: set[Node]) -> dict[Node, Node]:
        """As tf.gradients: on all ways from ``trained`` to ``result``, several summed by AddN."""
        needs = set(trained)
        forward = list(self.nodes)
        for node in forward:
            if needs & set(node.inputs):
                needs.add(node)
        found: dict[Node, list[Node]] = defaultdict(list)
        found[result] = [self("Const", size=result.size)]
        total: dict[Node, Node] = {}
        for node in reversed(forward):
            if node not in needs or not found[node]:
                continue
            several = found[node]
            joined = "Move" if node.op == "Split" else "AddN"
            total[node] = (
                several[0] if len(several) == 1 else self(joined, *several, size=node.size)
            )
            if node in trained:
                continue
            for source, made in self._of_inputs(node, total[node], needs):
                fits = made.size <= source.size or made.op in ("MatMul", "BatchMatMul")
                found[source].append(made if fits else self("Sum", made, size=source.size))
        return total

    def _of_inputs(self, node: Node, g: Node, needs: set[Node]):
        wanted = [i for i in node.inputs if i in needs]
        x = node.inputs[0]
        match node.op:
            case "Add":
                return [(i, g) for i in wanted]
            case "BiasAdd":
                return [(i, g if i is x else self("BiasAddGrad", g, size=0.0)) for i in wanted]
            case "Sub":
                return [(i, g if i is x else self("Neg", g)) for i in wanted]
            case "Mul":
                a, b = node.inputs
                return [(i, self("Mul", g, b if i is a else a)) for i in wanted]
            case "RealDiv":
                return [(x, self("RealDiv", g, node.inputs[1]))]
            case "Tanh":
                return [(x, self("TanhGrad", node, g))]
            case "Relu":
                return [(x, self("ReluGrad", g, node))]
            case "Pow":
                return [(x, self("Mul", self("Mul", g, self("Const")), self("Pow", x)))]
            case "Erf":
                exp = self("Exp", self("Neg", self("Square", x)))
                return [(x, self("Mul", g, self("Mul", self("Const"), exp)))]
            case "Mean":
                return [(x, self("RealDiv", self("Tile", g, size=x.size), self("Const")))]
            case "SquaredDifference":  # its second input is behind a stop_gradient
                twice = self("Mul", self("Const"), g)
                return [(x, self("Mul", twice, self("Sub", x, node.inputs[1])))]
            case "Rsqrt":
                return [(x, self("RsqrtGrad", node, g, size=0.0))]
            case "Softmax":
                total = self("Sum", self("Mul", g, node), size=0.0)
                return [(x, self("Mul", self("Sub", g, total), node))]
            case "LogSoftmax":
                softmax = self("Exp", node)
                return [(x, self("Sub", g, self("Mul", self("Sum", g, size=0.0), softmax)))]
            case "Move" | "Alias":
                return [(i, self("Move", g, size=node.back)) for i in wanted]
            case "Split":
                return [(x, g)]
            case "MatMul" | "BatchMatMul":
                a, b = node.inputs
                return [(i, self(node.op, g, b if i is a else a, size=i.size)) for i in wanted]
        raise KeyError(node.op)

    def half(self) -> set[Node]:
        """What the rewrite turns to 16 bit: its passes 1 to 4."""
        readers: dict[Node, list[Node]] = defaultdict(list)
        for node in self.nodes:
            for i in node.inputs:
                readers[i].append(node)

        def spread(start: set[Node], step, through) -> set[Node]:
            seen, left = set(start), list(start)
            while left:
                for near in step(left.pop()):
                    if near not in seen and through(near):
                        seen.add(near)
                        left.append(near)
            return seen

        def inputs(n: Node):
            return n.inputs

        def outputs(n: Node):
            return readers[n]

        of = {name: {n for n in self.nodes if n.op in ops}
              for name, ops in (("allow", ALLOW), ("deny", DENY), ("infer", INFER))}  # fmt: skip
        towards = spread(of["deny"] | of["infer"], inputs, lambda n: n.op in CLEAR)
        denied = spread(of["deny"], outputs, lambda n: n in towards)

        def passes(n: Node) -> bool:
            return n not in denied and n.op in CLEAR | INFER

        below = spread(of["allow"], outputs, passes)
        allowed = spread(of["allow"], inputs, lambda n: n in below)
        return spread(
            allowed, lambda n: (*n.inputs, *readers[n]),
            lambda n: n not in denied and n.op in CLEAR,
        )  # fmt: skip

    def moved_bytes(self, *, mixed: bool) -> float:
        """Of all nodes but products, with a cast for each tensor that crosses over."""
        half = self.half() if mixed else set()
        # a mask's cast is of the type that all its readers have
        for node in self.nodes:
            readers = [n for n in self.nodes if node in n.inputs]
            if node.op == "Cast" and readers and readers[0] in half:
                half.add(node)

        def width(node: Node, by: Node) -> float:
            return 1.0 if node.bool_ else 2.0 if by in half else 4.0

        total = 0.0
        for node in self.nodes:
            if node.op in ALLOW or node.op in ("Alias", "Const", "Input"):
                continue
            if node.op in ("Move", "Split"):
                total += 2 * node.size * width(node, node)
                continue
            reads = READS.get(node.op, 1)
            by_cast = node.op == "Cast"
            for i in node.inputs:
                total += reads * i.size * (1.0 if by_cast else width(i, node))
            total += node.size * width(node, node)
        if mixed:
            crossing = {
                (i, node in half) for node in self.nodes for i in node.inputs
                if (i in half) != (node in half) and not i.bool_ and i.op != "Const"
                and node.op != "Cast"
            }  # fmt: skip
            total += 6.0 * sum(i.size for i, _ in crossing)
        return total


def dropout(g: Graph, x: Node) -> Node:
    """``tf.nn.dropout`` (nn_ops.py)."""
    drawn = g("RandomUniform", size=x.size)
    keep = g("GreaterEqual", drawn, g("Const"), bool_=True)
    mask = g("Cast", keep)
    return g("Mul", g("Mul", x, g("Const")), mask)


def layer_norm(g: Graph, x: Node) -> tuple[Node, set[Node]]:
    """``tf.nn.moments`` and ``tf.nn.batch_normalization``; its result and parameters."""
    gamma, beta = g("Input", size=0.0), g("Input", size=0.0)
    mean = g("Mean", x, size=0.0)
    held = g("StopGradient", mean)
    variance = g("Mean", g("SquaredDifference", x, held), size=0.0)
    inv = g("Mul", g("Rsqrt", variance), gamma, size=x.size)  # a number a row, one a column
    offset = g("Sub", beta, g("Mul", mean, inv))
    return g("Add", g("Mul", x, inv), offset), {gamma, beta}


def gelu(g: Graph, x: Node, *, tanh: bool) -> Node:
    """BERT's ``gelu`` (modeling.py), or transformers' with erf."""
    c = g("Const")
    if tanh:
        inside = g("Mul", g("Add", x, g("Mul", g("Pow", x), c)), c)
        f = g("Tanh", inside)
    else:
        f = g("Erf", g("RealDiv", x, c))
    return g("Mul", x, g("Mul", g("Add", f, c), c))
