"""Transformer-XL (Dai et al. 2019) op by op as PyTorch runs it: relative attention over a memory.

Keys and values span the memory and the segment; scores are the sum of a content product and a
position product, which is shifted. Norms come after the sums. The adaptive softmax is approximated:
every token passes the head of its short list, and a fixed fraction of them each tail. Neither the
vocabulary nor a cluster is padded (vocabulary.py), so rows of logits are not aligned.

In TensorFlow 1.15 a layer and the adaptive softmax have one kernel per node. The nodes were read in
a published program (tf/model.py), of which only the optimizer is compiled (main.py, jit_optimizer).
``tf.einsum`` transposes both operands, to [shared, free, summed] and [shared, summed, free],
multiplies them, and transposes the product to the requested order (``special_math_ops.py``,
_einsum_v1_reduction).
"""

from __future__ import annotations

from simcore.base.record import dataclass
from simcore.base.units import INT64_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS, BIAS_ADDS, UNITS, check_names
from simcore.workload.archs.params import norm_params, weight_and_bias
from simcore.workload.graph import TIE, Block, Kernel, Op, Param, Workload
from simcore.workload.ops import tensorflow as tf
from simcore.workload.saved import Saved

#: Fraction of tokens in each cluster after the 20,000 most frequent words, for WikiText-103, with
#: frequencies that fall as 1/rank beyond the head; rounded, an assumption.
_TAIL_SHARES = (0.035, 0.05, 0.004)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A segment of ``tgt`` tokens after ``mem`` tokens of memory, and options of the program.

    ``graph``: TensorFlow runs it, one kernel per node.
    """

    tgt: int
    mem: int
    hidden: int
    heads: int
    head_dim: int
    ffn: int
    drop: bool
    drop_scores: bool
    bias_apart: bool = False
    unaligned_on_vector_units: bool = False
    graph: bool = False

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim

    @property
    def keys(self) -> int:
        """Tokens of memory and segment."""
        return self.mem + self.tgt


def _dropout(name: str, elems: float, on: bool, *, high: bool = False) -> tuple[Op, ...]:
    return (ops.dropout(name, elems, high=high),) if on else ()


def _attention(s: Shape) -> tuple[Op, ...]:
    d, h = s.hidden, s.inner
    scores = float(s.heads * s.tgt * s.keys)
    q, kv, elems = float(s.tgt * h), float(s.keys * h), float(s.tgt * d)
    # r_net runs once for the batch: its rows do not grow with it, so its traffic counts as weights.
    relative = Kernel(kind="gemm", weight=float(d * h + s.keys * (d + h)))
    shift = Kernel(kind="copy", low=2 * scores, indexed=scores)
    return (
        ops.copy("memory.cat", float(s.keys * d)),
        ops.linear("qkv", s.keys, d, 3 * h),
        Op(name="r_net", fwd=(relative,), bwd=(relative,), gemm_weight=float(d * h)),
        ops.binary("q.content", q, broadcast=h),
        ops.binary("q.position", q, broadcast=h),
        ops.copy("k.permute", kv),
        ops.bmm("scores.content", s.heads, s.tgt, s.keys, s.head_dim),
        ops.copy("r.expand", q),
        ops.bmm("scores.position", s.heads, s.tgt, s.keys, s.head_dim, save_right=False),
        Op(name="shift.pad", fwd=(shift,), bwd=(shift, shift)),
        # The shifted scores are a strided view.
        Op(
            name="scores.sum",
            fwd=(Kernel(kind="elementwise", low=3 * scores, indexed=scores),),
            result=Saved(low=scores),
        ),
        ops.scale("scores.scale", scores),
        Op(
            name="scores.mask",
            fwd=(Kernel(kind="elementwise", low=2 * scores, indexed=scores),),  # over heads
            bwd=(Kernel(kind="elementwise", low=2 * scores, indexed=scores),),
        ),
        ops.softmax("softmax", scores, row=s.keys),
        *_dropout("softmax.dropout", scores, s.drop_scores, high=True),
        ops.copy("v.permute", kv),
        ops.bmm("context", s.heads, s.tgt, s.head_dim, s.keys, save_left=s.drop_scores),
        ops.copy("merge", q),
        ops.linear("out", s.tgt, h, d),
        *_dropout("out.dropout", elems, s.drop),
        ops.binary("residual", elems, grads=0, high=True),
        ops.accumulate("forks", elems, times=2, high=True),
        ops.layer_norm("norm1", s.tgt, d),
    )


def _layer_ops(s: Shape) -> tuple[Op, ...]:
    d, elems = s.hidden, float(s.tgt * s.hidden)
    inner = float(s.tgt * s.ffn)
    return (
        *_attention(s),
        ops.linear("up", s.tgt, d, s.ffn, bias=True, bias_apart=s.bias_apart),
        ops.activation("relu", inner, saves="output" if s.drop else "none"),
        *_dropout("up.dropout", inner, s.drop),
        ops.linear("down", s.tgt, s.ffn, d, bias=True, bias_apart=s.bias_apart),
        *_dropout("down.dropout", elems, s.drop),
        ops.binary("mlp.residual", elems, grads=0, high=True),
        ops.accumulate("mlp.fork", elems, high=True),
        ops.layer_norm("norm2", s.tgt, d),
    )


def _layer(s: Shape, body: tuple[Op, ...]) -> Block:
    d, h, elems = s.hidden, s.inner, float(s.tgt * s.hidden)
    params = (
        Param("qkv.weight", 3 * d * h),
        Param("r_net.weight", d * h),
        Param("out.weight", h * d),
        *norm_params("norm1", d),
        *weight_and_bias("up", d, s.ffn),
        *weight_and_bias("down", s.ffn, d),
        *norm_params("norm2", d),
    )
    return Block(
        name="layer", ops=body, params=params, boundary=Saved(high=elems), recomputable=True
    )


def _logits(s: Shape, name: str, rows: float, k: int, words: int) -> Op:
    return ops.linear(
        name, rows, k, words, bias=True, bias_apart=s.bias_apart,
        row_elems=ops.row_elems(k, words), vector_units=s.unaligned_on_vector_units,
    )  # fmt: skip


def _full_head(s: Shape, vocab: int) -> Block:
    tie = ops.grad_only(TIE, 0.0, weight=3.0 * vocab * s.hidden)
    logits = _logits(s, "head", s.tgt, s.hidden, vocab)
    body = (*_dropout("dropout", float(s.tgt * s.hidden), s.drop), logits, tie,
            *ops.lm_loss("loss", s.tgt, vocab))  # fmt: skip
    return Block(name="head", ops=body, params=(Param("head.bias", vocab),))


def _chosen_rows(name: str, elems: float, clusters: int) -> Op:
    """The rows of the short list's log-probabilities of each cluster, by ``index_select``.

    All clusters together take every row once. For each cluster backward makes a gradient as large
    as all rows, of zeros to which the cluster's rows are added, and sums these gradients. Before
    that the gradient of a cluster's own rows, of which ``gather`` or a column takes a part, starts
    as zeros too (proj_adaptive_softmax.py, ``forward``).
    """
    zeros = Kernel(kind="elementwise", high=(clusters + 1.0) * elems, launches=2.0 * clusters)
    added = Kernel(kind="gather", high=3.0 * elems, launches=float(clusters))
    sums = Kernel(kind="elementwise", high=3.0 * (clusters - 1) * elems, launches=clusters - 1.0)
    chosen = Kernel(kind="gather", high=2.0 * elems, launches=float(clusters))
    return Op(name=name, fwd=(chosen,), bwd=(zeros, added, sums))


def _table_gradients(tables: list[Param], clusters: int) -> Op:
    """Cost of tying in backward: the sum of the gradients of one table, or of one per cluster.

    A table that all clusters share is sliced: each slice's gradient is copied into zeros as large
    as the table, and these and the embedding's are added.
    """
    numel = float(sum(t.numel for t in tables))
    if len(tables) > 1:
        return ops.grad_only(TIE, 0.0, weight=3.0 * numel, launches=float(len(tables)))
    moved = clusters + 2.0 + 3.0 * clusters
    return ops.grad_only(TIE, 0.0, weight=moved * numel, launches=3.0 * clusters)


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


def graph_layer(s: Shape) -> tuple[Op, ...]:
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


def graph_logits(name: str, rows: float, width: int, words: int, *, chosen: bool) -> tuple[Op, ...]:
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


def _adaptive_head(s: Shape, edges: tuple[int, ...], div: int) -> tuple[Block, list[Param]]:
    """The head of a short list and tails; with ``div`` > 1 the tails are narrower and projected."""
    d, tails = s.hidden, len(edges) - 1
    short = edges[0] + tails
    body: list[Op]
    if s.graph:
        body = [
            *((tf.dropout("dropout", float(s.tgt * d)),) if s.drop else ()),
            tf.crossed("head.input", float(s.tgt * d)),
            *graph_logits("short", s.tgt, d, short, chosen=True),
        ]
    else:
        body = [
            *_dropout("dropout", float(s.tgt * d), s.drop),
            _logits(s, "short", s.tgt, d, short),
            ops.cross_entropy("short.loss", s.tgt, short),
            _chosen_rows("short.rows", float(s.tgt * short), len(edges)),
        ]
    tables: list[Param] = [Param("tokens0.weight", edges[0] * d)]
    params = [Param("clusters.weight", tails * d), Param("clusters.bias", tails)]
    projections: list[Param] = []
    if div > 1:
        projections.append(Param("projection0", d * d))
        body.append(ops.linear("short.projection", s.tgt, d, d))
    for i in range(tails):
        width, words = d // div ** (i + 1), edges[i + 1] - edges[i]
        rows = s.tgt * _TAIL_SHARES[min(i, len(_TAIL_SHARES) - 1)]
        if div > 1:
            # Tied to the embedding's projection, so without a parameter.
            body.append(ops.linear(f"tail{i}.projection", rows, d, width, save_input=False))
        body += (
            graph_logits(f"tail{i}", rows, width, words, chosen=False)
            if s.graph
            else (
                _logits(s, f"tail{i}", rows, width, words),
                ops.cross_entropy(f"tail{i}.loss", rows, words),
            )
        )
        body += [
            # The nonzero, index_select, gather and index_copy of the cluster's tokens.
            Op(name=f"tail{i}.select", fwd=(Kernel(kind="gather", low=2 * rows * d, launches=8.0),),
               bwd=(Kernel(kind="gather", low=2 * rows * d, launches=6.0),)),
        ]  # fmt: skip
        tables.append(Param(f"tokens{i + 1}.weight", words * width))
    params += [Param(f"bias{i}", edges[i] - (edges[i - 1] if i else 0)) for i in range(tails + 1)]
    total = tables if div > 1 else [Param("tokens.weight", edges[-1] * d)]
    tie = tied_gradient(edges[-1] * d, len(edges)) if s.graph else None
    body += [tie or _table_gradients(total, len(edges)), ops.loss_seed()]
    return Block(name="head", ops=tuple(body), params=(*params, *projections)), tables


@ARCHS.register("transformer_xl")
def build(
    *,
    name: str,
    sample_unit: str = "sequence",
    layers: int,
    hidden: int,
    heads: int,
    head_dim: int = 64,
    ffn: int,
    vocab: int = 267735,
    seq_len: int = 192,
    memory: int = 192,
    adaptive: bool = True,
    div: int = 1,
    dropout: float = 0.1,
    attention_dropout: float | None = None,
    bias_add: str = "fused",
    unaligned_products: str = "matrix_units",
    framework: str = "torch",
) -> Workload:
    """Transformer-XL over a segment of ``seq_len`` tokens after ``memory`` cached ones.

    - ``adaptive=False``: one softmax over the whole vocabulary, tied to the embedding.
    - ``div``: divides the width of each further cluster of the adaptive softmax, embeddings
      included.
    - ``attention_dropout``: dropout of attention's weights; None: ``dropout``.
    - ``bias_add``: by the products (``fused``) or by separate kernels (``separate``: PyTorch before
      1.12).
    - ``unaligned_products``: in 16 bit on ``matrix_units``, or on ``vector_units`` (cuBLAS before
      11, whose matrix units take aligned rows only).
    - ``framework``: as torch runs it, or as ``tensorflow`` does, one kernel per node (only the
      adaptive softmax with one width).
    """
    check_names(
        framework=(framework, ("torch", "tensorflow")),
        bias_add=(bias_add, BIAS_ADDS),
        unaligned_products=(unaligned_products, UNITS),
    )
    if framework == "tensorflow" and not (adaptive and div == 1):
        raise ValueError("framework tensorflow has the adaptive softmax with div 1 alone")
    if min(layers, hidden, heads, seq_len) < 1 or memory < 0:
        raise ValueError("layers, hidden, heads and seq_len must be at least 1")
    of_scores = dropout if attention_dropout is None else attention_dropout
    s = Shape(
        tgt=seq_len, mem=memory, hidden=hidden, heads=heads, head_dim=head_dim, ffn=ffn,
        drop=dropout > 0, drop_scores=of_scores > 0, bias_apart=bias_add == "separate",
        unaligned_on_vector_units=unaligned_products == "vector_units",
        graph=framework == "tensorflow",
    )  # fmt: skip
    edges = (19997, 39997, 199997, vocab)
    if adaptive and vocab <= edges[-2]:
        raise ValueError(f"vocab {vocab} must exceed {edges[-2]} for the adaptive softmax")
    head, tables = (
        _adaptive_head(s, edges, div)
        if adaptive
        else (_full_head(s, vocab), [Param("tokens.weight", vocab * hidden)])
    )
    elems = float(seq_len * hidden)
    words: list[Op] = []
    dropped = _dropout("dropout", elems, s.drop, high=True)
    body = _layer_ops(s)
    if s.graph:
        dropped = (tf.dropout("dropout", elems),) if s.drop else ()
        body = graph_layer(s)
    if adaptive and div > 1:
        # Each cluster's tokens are looked up, projected to full width and copied in.
        shares = (1.0 - sum(_TAIL_SHARES), *_TAIL_SHARES)
        for i, (share, table) in enumerate(zip(shares, tables, strict=True)):
            width = hidden // div**i
            words.append(ops.embedding(f"tokens{i}", seq_len * share, width, table.numel // width))
            words.append(ops.linear(f"tokens{i}.projection", seq_len * share, width, hidden))
    else:
        words.append(ops.embedding("tokens", seq_len, hidden, vocab))
    positions = Kernel(kind="elementwise", launches=6.0)
    embed = Block(
        name="embedding",
        ops=(
            *words,
            ops.scale("scale", elems, high=True),
            Op(name="positions", fwd=(positions,)),
            *dropped,
        ),
        params=(
            *tables,
            # The embedding's own projections, in addition to the head's.
            *(
                (Param(f"embed.projection{i}", hidden * (hidden // div**i)) for i in range(4))
                if adaptive and div > 1
                else ()
            ),
            Param("r_w_bias", s.inner),
            Param("r_r_bias", s.inner),
        ),
    )
    # The new memory: every layer's input is detached and joined with the old one.
    update = Kernel(kind="copy", high=2.0 * memory * hidden * (layers + 1), launches=layers + 1.0)
    last = Block(
        name="memory", ops=(Op(name="memory.update", fwd=(update,)),
                            ops.keep("memory.held", float(memory * hidden * (layers + 1)))),
    )  # fmt: skip
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=(embed, _layer(s, body), last, head),
        order=(0, *[1] * layers, 2, 3),
        input_bytes=2.0 * INT64_BYTES * seq_len,
        tokens_per_sample=seq_len,
    )
