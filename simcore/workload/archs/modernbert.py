"""ModernBERT (Warner et al. 2024): pre-norm encoder of local and global attention, GeGLU, RoPE.

Op by op as transformers runs it (models/modernbert/modeling_modernbert.py), on sequences without
padding, as after its unpadding.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from simcore.base.record import dataclass
from simcore.base.units import INT64_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS, check_names, head_width
from simcore.workload.archs.body import Body
from simcore.workload.archs.lm_attention import FLASH
from simcore.workload.archs.lm_mlp import MlpShape, dense
from simcore.workload.archs.towers import Tower, check_length, layer
from simcore.workload.graph import TIE, Block, Kernel, Op, Workload
from simcore.workload.saved import Saved

_HEADS = ("masked-lm", "classifier")
_POOLS = ("mean", "cls")


@dataclass(frozen=True, kw_only=True)
class _Shape(Tower):
    """A layer; ``reach``: keys on either side of a query to which a local layer attends."""

    reach: int


def _rope(name: str, elems: float) -> Op:
    """``x.float() cos + rotate_half(x.float()) sin``, cast back: fp32 whatever the precision.

    Both casts are separate kernels, and so are those of their gradients. Nothing is saved except
    cosines and sines, which all layers of a kind share.
    """
    cast = ops.cast(elems, narrow=True)
    # Cosines are broadcast over strided heads: kernels address element by element.
    fwd = (
        cast,
        cast,
        Kernel(kind="elementwise", raw_bytes=8 * elems, indexed=elems),
        Kernel(kind="elementwise", raw_bytes=4 * elems, indexed=elems / 2),  # half is negated
        Kernel(kind="copy", raw_bytes=8 * elems, indexed=elems),
        Kernel(kind="elementwise", raw_bytes=8 * elems, indexed=elems),
        Kernel(kind="elementwise", raw_bytes=12 * elems, indexed=elems),
        cast,
    )
    bwd = (
        cast,
        Kernel(kind="elementwise", raw_bytes=16 * elems, launches=2.0, indexed=2 * elems),
        Kernel(kind="elementwise", raw_bytes=4 * elems, indexed=elems / 2),
        Kernel(kind="elementwise", raw_bytes=8 * elems, launches=2.0),  # zeros
        Kernel(
            kind="copy", raw_bytes=8 * elems, launches=2.0, indexed=elems
        ),  # each half into its own
        Kernel(kind="elementwise", raw_bytes=12 * elems),  # and their sum
        cast,
        cast,
        Kernel(kind="elementwise", low=3 * elems),
    )
    return Op(name=name, fwd=fwd, bwd=bwd)


def _local_pairs(s: _Shape) -> float:
    """Number of pairs of a query and a key within reach, on both sides and at its own position."""
    reach = min(s.reach, s.rows - 1)
    return s.rows * (2.0 * reach + 1) - reach * (reach + 1.0)


def _fused(s: _Shape, *, local: bool) -> tuple[Op, ...]:
    """Attention as one kernel.

    flash-attn's skips keys that are out of reach; torch's, under a mask, computes all pairs. For
    each layer torch writes the mask once more as numbers, which backward saves (ATen,
    native/transformers/attention.cpp, convert_boolean_attn_mask). The kernel is assumed to be as
    fast as the first FlashAttention, as in ``lm_attention``.
    """
    kind = FLASH["flash2"] if s.attention == "flash" else FLASH["flash"]
    op = ops.sdpa("attention", 1, s.heads, s.heads, s.rows, s.rows, s.head_dim, kind=kind)
    if not local:
        return (op,)
    pairs = float(s.rows) ** 2
    if s.attention == "flash":
        share = _local_pairs(s) / pairs
        fwd, bwd = (tuple(replace(k, flop=k.flop * share) for k in ks) for ks in (op.fwd, op.bwd))
        return (replace(op, fwd=fwd, bwd=bwd),)
    numbers = Kernel(kind="elementwise", low=pairs, raw_bytes=pairs, indexed=pairs)
    fwd, bwd = (
        tuple(replace(k, kind=FLASH["flash1"], low=k.low + s.heads * pairs) for k in ks)
        for ks in (op.fwd, op.bwd)
    )
    return (
        Op(name="attention.mask", fwd=(numbers,), saved=Saved(low=pairs)),
        replace(op, fwd=fwd, bwd=bwd),
    )


def _attend(body: Body, s: _Shape, _prefix: str, reads: str, *, local: bool) -> None:
    body.linear("qkv", s.rows, s.hidden, 3 * s.hidden, bias=bool(s.qkv_bias), reads=reads)
    body.add(
        ops.grad_only("qkv.unbind", 6 * s.elems, kind="copy"),  # three gradients joined
        _rope("rope.q", s.elems),
        _rope("rope.k", s.elems),
    )
    if s.attention == "eager":
        body.add(
            *ops.attention_eager(
                "attention", s.heads, s.rows, s.rows, s.head_dim,
                mask="add_causal" if local else "none", upcast=True,
            )
        )  # fmt: skip
    else:
        # v is a view of the packed product
        body.add(*_fused(s, local=local), ops.keep("qkv.packed", 2 * s.elems))
        body.kept.add("context")
        body.pinned.add("context")
    body.linear("attention.out", s.rows, s.hidden, s.hidden, bias=bool(s.qkv_bias), reads="context")


def _feed(body: Body, s: _Shape) -> None:
    shape = MlpShape(
        seq=s.rows, hidden=s.hidden, ffn=s.ffn, kind="geglu", bias=s.biased, fused=True
    )
    dense(body, shape, s.fed)


def _pooled(body: Body, s: _Shape, pooling: str) -> None:
    """Add the pooling to one row per sequence: its first row, or its mean under the mask."""
    rows, elems = float(s.rows), s.elems
    if pooling == "cls":
        # The row is a view, whose gradient is written into zeros; the head saves the whole storage.
        body.add(
            ops.grad_only("first_token", 2 * elems, high=True, kind="copy", launches=2.0),
            ops.keep("last_hidden", elems, high=True),
        )
        body.kept.add("pooled")
    else:
        body.add(
            ops.binary("masked", elems, broadcast=rows, grads=0, high=True),
            Op(name="mask", fwd=(), bwd=(Kernel(kind="elementwise", high=2 * elems),),
               saved=Saved(raw_bytes=rows)),
            ops.reduction("mean", elems, out=float(s.hidden)),
            Op(name="count", fwd=(Kernel(kind="reduction", raw_bytes=rows),
                                  Kernel(kind="elementwise", high=2.0 * s.hidden)),
               bwd=(Kernel(kind="elementwise", high=2.0 * s.hidden),),
               saved=Saved(raw_bytes=INT64_BYTES)),
        )  # fmt: skip
    body.high.add("pooled")


def _head(
    s: _Shape, vocab: int, head: str, classes: int, pooling: str, share: float,
    head_bias: bool, decoder_bias: bool,
) -> Block:  # fmt: skip
    """A product, GELU and norm before the tied table, or before the classes."""
    body = Body(in_layer=False)
    body.norm("final_norm", s.rows, s.hidden, "layernorm", bias=s.norm_bias)
    reads, rows = "final_norm", float(s.rows)
    if head == "classifier":
        _pooled(body, s, pooling)
        reads, rows = "pooled", 1.0
    elif share < 1.0:
        rows *= share
        moved = Kernel(kind="gather", high=2.0 * rows * s.hidden)
        body.add(Op(name="positions", fwd=(moved,), bwd=(moved,)))
        reads = "chosen"
        body.high.add(reads)
    body.linear("transform", rows, s.hidden, s.hidden, bias=head_bias, reads=reads)
    body.add(ops.activation("gelu", rows * s.hidden))
    body.norm("head_norm", rows, s.hidden, "layernorm", bias=s.norm_bias)
    if head == "classifier":
        body.linear("classifier", rows, s.hidden, classes, bias=True, reads="head_norm")
        body.add(ops.cross_entropy("loss", rows, classes), ops.loss_seed())
    else:
        body.linear(
            "decoder", rows, s.hidden, vocab, bias=decoder_bias, reads="head_norm", weight=False
        )
        body.add(
            ops.grad_only(TIE, 0.0, weight=3.0 * vocab * s.hidden),
            *ops.lm_loss("loss", rows, vocab, upcast=True),
        )
    return body.block("head")


@ARCHS.register("modernbert")
def build(
    *,
    name: str,
    sample_unit: str = "sequence",
    layers: int,
    hidden: int,
    heads: int,
    ffn: int,
    vocab: int = 50368,
    seq_len: int = 512,
    max_positions: int = 8192,
    global_every: int = 3,
    window: int = 128,
    attention: str = "sdpa",
    head: str = "masked-lm",
    classes: int = 2,
    pooling: str = "mean",
    masked_share: float = 1.0,
    attention_bias: bool = False,
    mlp_bias: bool = False,
    norm_bias: bool = False,
    head_bias: bool = False,
    decoder_bias: bool = True,
) -> Workload:
    """ModernBERT over ``seq_len`` tokens.

    Every ``global_every``-th layer, beginning with the first, attends to all tokens, the others to
    ``window`` // 2 tokens on either side.

    - ``attention``: sdpa, transformers' own choice, which computes all pairs under a mask in local
      layers; flash (flash-attn), which skips keys out of reach; eager (or math).
    - ``head``: masked-lm, with a loss over all positions or a fraction ``masked_share`` of them, or
      classifier of one row.
    - ``pooling``: how that row is computed: mean or cls.
    """
    check_names(
        attention=(attention, ("sdpa", "flash", "eager", "math")),
        head=(head, _HEADS),
        pooling=(pooling, _POOLS),
    )
    check_length(seq_len, max_positions)
    s = _Shape(
        rows=seq_len, hidden=hidden, heads=heads, head_dim=head_width(hidden, heads), ffn=ffn,
        attention="eager" if attention == "math" else attention, norm_bias=norm_bias,
        biased=mlp_bias, qkv_bias="qkv" * attention_bias, reach=window // 2,
    )  # fmt: skip

    def layer_of(name: str, *, local: bool, first: bool = False) -> Block:
        """A layer; the ``first`` has no norm before attention: it reads the embeddings' norm."""
        return layer(s, name, _feed, partial(_attend, local=local), first_norm=not first)

    start = Body()
    start.embedding("tokens", seq_len, hidden, vocab)
    start.norm("norm", seq_len, hidden, "layernorm", bias=norm_bias)
    # Cosines and sines of both kinds of layers and the mask of one, once per step.
    once = Kernel(kind="elementwise", weight=float(seq_len) ** 2, launches=27.0)
    start.add(Op(name="positions", fwd=(once,)))
    blocks = [
        start.block("embeddings"),
        layer_of("first layer", local=False, first=True),
        _head(s, vocab, head, classes, pooling, masked_share, head_bias, decoder_bias),
    ]
    locals_ = [i % global_every != 0 for i in range(1, layers)]
    at: dict[bool, int] = {}
    for local in sorted(set(locals_)):
        at[local] = len(blocks)
        blocks.append(layer_of("local layer" if local else "global layer", local=local))
    labels = seq_len if head == "masked-lm" else 1
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=tuple(blocks),
        order=(0, 1, *(at[local] for local in locals_), 2),
        input_bytes=INT64_BYTES * (2.0 * seq_len + labels),  # tokens, mask, labels
        tokens_per_sample=seq_len,
    )
