"""BART (Lewis et al. 2019) and mBART (Liu et al. 2020): encoder and decoder, products with biases.

Op by op as transformers runs them (models/bart/modeling_bart.py, models/mbart), on pairs without
padding, so that fused attention needs no mask.
"""

from __future__ import annotations

from dataclasses import replace

from simcore.base.units import INT64_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS, check_names, head_width
from simcore.workload.archs.body import Body
from simcore.workload.archs.encoder_decoder import end_of_encoder
from simcore.workload.archs.towers import CORES, Tower, check_length, layer
from simcore.workload.graph import TIE, Block, Kernel, Op, Workload
from simcore.workload.saved import NOTHING, Saved

#: Extra rows of a table of positions that no position uses.
OFFSET = 2


def _embedded(t: Tower, name: str, vocab: int, positions: int, *, own_table: bool) -> Block:
    """Tokens, scaled, and positions, each looked up for every row; then a norm."""
    body = Body()
    if own_table:
        body.embedding("shared", t.rows, t.hidden, vocab)
    else:  # the gradient is added to that of the encoder's look-up
        body.add(
            ops.embedding("shared", t.rows, t.hidden, vocab),
            ops.grad_only("shared.sum", 0.0, weight=3.0 * vocab * t.hidden),
        )
        # Labels become inputs: zeros, a copy of all but the last, the first, padding replaced;
        # mBART also looks for each row's last token.
        steps = 14.0 if t.norm_first else 8.0
        shifted = Kernel(kind="copy", raw_bytes=INT64_BYTES * steps * t.rows, launches=steps)
        body.add(Op(name="shift", fwd=(shifted,)))
    looked_up = ops.embedding("positions", t.rows, t.hidden, positions + OFFSET)
    body.add(
        ops.scale("scale", t.elems, high=True),
        Op(name="positions.ids", fwd=(Kernel(kind="elementwise", launches=2.0),)),
        replace(looked_up, saved=NOTHING),  # the ids are the same for all sequences
        ops.binary("positions.sum", t.elems, grads=0, high=True),
    )
    body.param("positions.weight", (positions + OFFSET) * t.hidden)
    body.norm("norm", t.rows, t.hidden, "layernorm")
    if t.drop:
        body.add(ops.dropout("dropout", t.elems, high=True))
    return body.block(name)


def _head(t: Tower, vocab: int) -> Block:
    """The head with the shared table, a bias and the loss.

    The bias is not trained, and autocast leaves it in fp32.
    """
    body = Body(in_layer=False)
    body.high.add("last")
    if t.norm_first:
        body.norm("norm", t.rows, t.hidden, "layernorm")
    body.linear(
        "head", t.rows, t.hidden, vocab, reads="norm" if t.norm_first else "last", weight=False
    )  # fmt: skip
    logits = float(t.rows) * vocab
    added = Kernel(kind="elementwise", low=logits, high=logits, indexed=logits)
    body.add(
        ops.grad_only(TIE, 0.0, weight=3.0 * vocab * t.hidden),
        Op(
            name="logits.bias",
            fwd=(added,),
            bwd=(ops.autocast_cast(logits),),
            saved=Saved(high=logits),  # the training step holds them
        ),
        ops.cross_entropy("loss", t.rows, vocab),
        ops.loss_seed(),
    )
    return body.block("head")


@ARCHS.register("bart")
def build(
    *,
    name: str,
    sample_unit: str = "sequence pair",
    layers: int,
    decoder_layers: int = 0,
    hidden: int,
    heads: int,
    decoder_heads: int = 0,
    ffn: int = 0,
    decoder_ffn: int = 0,
    vocab: int = 50265,
    max_positions: int = 512,
    seq_len: int = 512,
    target_len: int = 0,
    mlp: str = "gelu",
    norm_first: bool = False,
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    activation_dropout: float = 0.0,
    attention: str = "sdpa",
) -> Workload:
    """BART on ``seq_len`` source tokens and ``target_len`` target tokens (0: as many).

    One table serves both and the head. ``norm_first``: as mBART, with a norm at the end of either
    stack too. ``attention``: sdpa (or flash), transformers' own choice, or eager (or math).
    """
    check_names(attention=(attention, tuple(CORES)), mlp=(mlp, ("gelu", "relu")))
    if target_len < 0:
        raise ValueError(f"target_len {target_len} must be positive")
    for length in (seq_len, target_len or seq_len):
        check_length(length, max_positions)
    encoder = Tower(
        rows=seq_len, hidden=hidden, heads=heads, head_dim=head_width(hidden, heads),
        ffn=ffn or 4 * hidden, mlp=mlp, norm_first=norm_first, attention=CORES[attention],
        drop=dropout > 0, drop_mlp=dropout > 0, drop_inner=activation_dropout > 0,
        drop_scores=attention_dropout > 0,
    )  # fmt: skip
    decoder_heads = decoder_heads or heads
    decoder = replace(
        encoder, rows=target_len or seq_len, heads=decoder_heads,
        head_dim=head_width(hidden, decoder_heads), ffn=decoder_ffn or encoder.ffn, source=seq_len,
        causal=True,
    )  # fmt: skip
    n_decoder = decoder_layers or layers
    blocks = (
        _embedded(encoder, "source", vocab, max_positions, own_table=True),
        layer(encoder, "encoder layer"),
        end_of_encoder(encoder, n_decoder, normed=norm_first),
        _embedded(decoder, "target", vocab, max_positions, own_table=False),
        layer(decoder, "decoder layer"),
        _head(decoder, vocab),
    )
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=blocks,
        order=(0, *[1] * layers, 2, 3, *[4] * n_decoder, 5),
        buffers_numel=vocab,  # the logits' bias
        n_buffers=1,
        input_bytes=INT64_BYTES * (2.0 * seq_len + decoder.rows),  # source, its mask, labels
        tokens_per_sample=seq_len + decoder.rows,
    )
