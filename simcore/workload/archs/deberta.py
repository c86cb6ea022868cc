"""DeBERTa v2 and v3 (He et al. 2020, 2021): post-norm encoder with disentangled attention.

Op by op as transformers runs it (models/deberta_v2/modeling_deberta_v2.py), which has no fused
attention for it: the scores are a product of contents, and two products of contents with a table of
relative positions, from which the scores of each pair are gathered. The operations on the table
itself (its projections, indices of pairs) happen once for the whole batch; their traffic is
counted, but neither FLOP nor storage.
"""

from __future__ import annotations

from simcore.base.record import dataclass
from simcore.base.units import INT64_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS, check_names, head_width
from simcore.workload.archs.bert import masked_lm_head
from simcore.workload.archs.body import Body
from simcore.workload.archs.towers import Tower, check_length, layer
from simcore.workload.graph import Affine, Block, Kernel, Op, Workload
from simcore.workload.saved import Saved

#: Size of an int64 in elements of fp32.
_INT64_ELEMS = 2.0


@dataclass(frozen=True, kw_only=True)
class _Shape(Tower):
    """A layer; ``table``: rows of the table of relative positions, two per bucket."""

    table: int
    share_keys: bool


def _drop(body: Body, s: _Shape, name: str, elems: float, *, high: bool = False) -> None:
    if s.drop:
        body.add(ops.dropout(name, elems, high=high))


def _projected(s: _Shape, name: str) -> tuple[Op, ...]:
    """The table times a weight of keys or queries, head by head, copied for each sequence."""
    table, weight = float(s.table * s.hidden), float(s.hidden**2)
    product = Kernel(
        kind="gemm", weight=weight + 2 * table,
        m=Affine(s.table), n=Affine(s.hidden), k=Affine(s.hidden),
    )  # fmt: skip
    turned = Kernel(kind="copy", weight=2 * table, indexed=0.0)
    sums = Kernel(kind="reduction", weight=table)
    # The weights are shared with contents: both gradients are summed, those of the biases as well.
    shared = Kernel(kind="elementwise", weight=3 * weight, launches=2.0)
    return (
        Op(
            name=name,
            fwd=(product, turned),
            bwd=(turned, product, product, sums, *((shared,) if s.share_keys else ())),
            gemm_weight=0.0 if s.share_keys else weight,
        ),
        Op(
            name=f"{name}.repeat",
            fwd=(Kernel(kind="copy", low=table, weight=table),),
            bwd=(Kernel(kind="reduction", low=table, weight=table),),
        ),
    )


def _gathered(s: _Shape, name: str, *, turned: bool) -> tuple[Op, ...]:
    """Products with all rows of the table, of which each pair takes one.

    ``gather`` saves its input (tools/autograd/derivatives.yaml: gather_backward takes self);
    backward adds into zeros. ``turned``: the result is read transposed.
    """
    rows, across = float(s.heads) * s.rows * s.table, s.scores * turned
    index = _INT64_ELEMS * s.rows**2
    return (
        ops.bmm(name, s.heads, s.rows, s.table, s.head_dim, save_left=False),
        # Indices: one or two additions and a clamp of the pairs' buckets.
        Op(
            name=f"{name}.index",
            fwd=(Kernel(kind="elementwise", weight=2 * index, launches=2.0 + turned),),
        ),
        Op(
            name=f"{name}.gather",
            fwd=(Kernel(kind="gather", low=2 * s.scores, weight=index),),
            bwd=(
                Kernel(kind="elementwise", low=rows),
                Kernel(kind="gather", low=3 * s.scores, weight=index),
            ),
            saved=Saved(low=rows),
        ),
        Op(
            name=f"{name}.scale",
            fwd=(Kernel(kind="elementwise", low=2 * s.scores, indexed=across),),
            bwd=(Kernel(kind="elementwise", low=2 * s.scores, indexed=across),),
        ),
        # The first result is added to zero, the second to the first.
        Op(
            name=f"{name}.add",
            fwd=(Kernel(kind="elementwise", low=(2 + turned) * s.scores, indexed=across),),
        ),
    )


def _attend(body: Body, s: _Shape, _prefix: str, reads: str) -> None:
    rows, d = s.rows, s.hidden
    for part in "qkv":
        body.linear(part, rows, d, d, bias=True, reads=reads)
        body.add(ops.copy(f"{part}.heads", s.elems))
    body.add(
        ops.accumulate("qkv.forks", s.elems, times=2, high=True),
        ops.scale("k.scale", s.elems),
        ops.bmm("scores", s.heads, rows, rows, s.head_dim),
    )
    if s.drop:
        table = float(s.table * d)
        both = Kernel(kind="elementwise", weight=2 * table)
        body.add(Op(name="table.dropout", fwd=(both,), bwd=(both,)))
    for part in ("query", "key"):
        name = f"position.{part}"
        body.add(*_projected(s, name))
        if not s.share_keys:
            body.param(f"{name}.weight", d * d)
            body.param(f"{name}.bias", d)
    # Keys of positions with queries of contents, and the reverse, which saves keys of contents.
    body.add(
        *_gathered(s, "c2p", turned=False),
        *_gathered(s, "p2c", turned=True),
        ops.keep("k.unscaled", s.elems),
        ops.accumulate("qk.forks", s.elems, times=2),
        ops.grad_only("table.forks", 0.0, weight=6.0 * s.table * d, launches=2.0),
        ops.binary("scores.sum", s.scores, grads=0),
    )
    pairs = float(rows) ** 2
    filled = (
        Kernel(kind="copy", low=2 * s.scores),
        Kernel(kind="elementwise", low=2 * s.scores, raw_bytes=pairs, indexed=s.scores),
    )
    flags = Kernel(kind="elementwise", raw_bytes=11 * pairs, launches=2.0)  # of int64, inverted
    body.add(
        Op(name="mask.flags", fwd=(flags,)),
        Op(name="mask", fwd=filled, bwd=filled, saved=Saved(raw_bytes=pairs)),
        ops.softmax("softmax", s.scores, row=rows),
    )
    _drop(body, s, "softmax.dropout", s.scores, high=True)
    to_16_bit = ops.autocast_cast(s.scores)
    body.add(
        Op(
            name="softmax.cast", fwd=(to_16_bit,), bwd=(to_16_bit,),
            saved=Saved(autocast=s.scores * (not s.drop)),
        ),
        ops.bmm("context", s.heads, rows, s.head_dim, rows, save_left=s.drop),
        ops.copy("merge", s.elems),
    )  # fmt: skip
    body.linear("attention.out", rows, d, d, bias=True, reads="context")


def _embeddings(s: _Shape, vocab: int, positions: int, table_norm: bool) -> Block:
    """The embeddings and the table of relative positions.

    The gradient of the table is complete after the backward of all layers.
    """
    body, rows, table = Body(), float(s.rows), float(s.table * s.hidden)
    body.embedding("word", s.rows, s.hidden, vocab)
    if positions:
        body.add(ops.add_positions("position", s.rows, s.hidden, table_rows=positions))
        body.param("position.weight", positions * s.hidden)
    else:  # a tensor of zeros that no op reads
        body.add(Op(name="no_positions", fwd=(Kernel(kind="elementwise", high=s.elems),)))
    body.norm("norm", s.rows, s.hidden, "layernorm")
    body.add(
        Op(
            name="mask",
            fwd=(
                Kernel(kind="elementwise", high=rows, raw_bytes=INT64_BYTES * rows),
                Kernel(kind="elementwise", high=2 * s.elems + rows, indexed=s.elems),
            ),
            bwd=(Kernel(kind="elementwise", high=2 * s.elems + rows, indexed=s.elems),),
            saved=Saved(high=rows),
        )
    )
    _drop(body, s, "dropout", s.elems, high=True)
    pairs = float(s.rows) ** 2
    # The mask of pairs, and their buckets from sign, logarithm and selection, in int64 and fp32.
    body.add(
        Op(name="mask.pairs", fwd=(Kernel(kind="elementwise", raw_bytes=8 * pairs),)),
        Op(name="buckets", fwd=(Kernel(kind="elementwise", weight=60 * pairs, launches=21.0),)),
    )
    body.param("table.weight", s.table * s.hidden)
    if table_norm:
        body.add(
            Op(
                name="table.norm",
                fwd=(Kernel(kind="norm", weight=2 * table),),
                bwd=(
                    Kernel(kind="norm", weight=3 * table),
                    Kernel(kind="reduction", weight=2 * table),
                ),
            )
        )
        body.param("table.norm.weight", s.hidden)
        body.param("table.norm.bias", s.hidden)
    return body.block("embeddings")


def _classifier(s: _Shape, classes: int) -> Block:
    """A classifier of the first token, after a product and GELU.

    Rows with a negative label are left out of the loss.
    """
    body = Body(in_layer=False)
    # The first token is a view: the whole last hidden state is saved for the pooler, and its
    # gradient is zero elsewhere.
    body.add(
        ops.keep("last_hidden", s.elems, high=True),
        ops.grad_only("first_token", 2 * s.elems, high=True, kind="copy"),
    )
    body.kept.add("first")
    body.high.add("first")
    body.linear("pooler", 1, s.hidden, s.hidden, bias=True, reads="first")
    body.add(ops.activation("gelu", float(s.hidden)))
    _drop(body, s, "dropout", float(s.hidden))
    body.linear("classifier", 1, s.hidden, classes, bias=True, reads="pooled")
    chosen = Kernel(kind="gather", low=2.0 * classes, launches=4.0)
    body.add(
        Op(
            name="labelled",
            fwd=(chosen,),
            bwd=(Kernel(kind="gather", low=2.0 * classes, launches=2.0),),
            saved=Saved(low=classes, raw_bytes=2.0 * INT64_BYTES),
        ),
        ops.cross_entropy("loss", 1, classes),
        ops.loss_seed(),
    )
    return body.block("head")


@ARCHS.register("deberta")
def build(
    *,
    name: str,
    sample_unit: str = "sequence",
    layers: int,
    hidden: int,
    heads: int,
    ffn: int = 0,
    vocab: int = 128100,
    seq_len: int = 256,
    max_positions: int = 512,
    buckets: int = 256,
    share_keys: bool = True,
    table_norm: bool = True,
    absolute: bool = False,
    classes: int = 2,
    dropout: float = 0.1,
    head: str = "classifier",
    attention: str = "eager",
) -> Workload:
    """DeBERTa over ``seq_len`` tokens. ``ffn`` 0: four times hidden.

    - ``buckets``: number of buckets of distances to either side; each has a row in the table of
      relative positions, which all layers read. ``table_norm``: the table is normalised.
    - ``share_keys``: the table is multiplied by the weights of queries and keys; otherwise by two
      weights of its own.
    - ``absolute``: positions are added to tokens too.
    - ``attention``: eager (or math); there is no other.
    - ``head``: classifier or masked-lm.
    """
    check_names(
        head=(head, ("classifier", "masked-lm")), attention=(attention, ("eager", "math"))
    )  # fmt: skip
    check_length(seq_len, max_positions)
    s = _Shape(
        rows=seq_len, hidden=hidden, heads=heads, head_dim=head_width(hidden, heads),
        ffn=ffn or 4 * hidden, norm_first=False, drop=dropout > 0, drop_mlp=dropout > 0,
        table=2 * buckets, share_keys=share_keys,
    )  # fmt: skip
    blocks = (
        _embeddings(s, vocab, max_positions if absolute else 0, table_norm),
        layer(s, "layer", attend=_attend),
        _classifier(s, classes)
        if head == "classifier"
        else masked_lm_head(s.rows, hidden, hidden, vocab),
    )
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=blocks,
        order=(0, *[1] * layers, 2),
        buffers_numel=max_positions,
        n_buffers=1,
        # Token ids, token types, attention mask; one label per sequence or per token.
        input_bytes=INT64_BYTES * (3.0 * seq_len + (1 if head == "classifier" else seq_len)),
        tokens_per_sample=seq_len,
    )
