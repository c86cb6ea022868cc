"""ALBERT (Lan et al. 2019): one layer like BERT's for all depths, after a narrow embedding.

Op by op as transformers runs it (models/albert/modeling_albert.py).
"""

from __future__ import annotations

from dataclasses import replace

from simcore.base.units import INT64_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS, check_names, head_width
from simcore.workload.archs.bert import classifier_head, embeddings, masked_lm_block
from simcore.workload.archs.params import weight_and_bias
from simcore.workload.archs.towers import CORES, Tower, check_length, layer
from simcore.workload.graph import Block, Workload

_ACTIVATIONS = ("gelu_new", "gelu", "relu")


def _repeated_layer(layer: Block) -> Block:
    """The layer at a further depth, with the weights of the first.

    Its gradients are added to those of the first.
    """
    sums = ops.grad_only("shared", 0.0, weight=3.0 * layer.numel, launches=len(layer.params))
    body = tuple(replace(op, gemm_weight=0.0) for op in layer.ops)
    return replace(layer, name="layer again", ops=(*body, sums), params=())


@ARCHS.register("albert")
def build(
    *,
    name: str,
    sample_unit: str = "sequence",
    layers: int,
    hidden: int,
    heads: int,
    ffn: int = 0,
    embedding: int = 128,
    vocab: int = 30000,
    seq_len: int = 128,
    max_positions: int = 512,
    type_vocab: int = 2,
    classes: int = 2,
    mlp: str = "gelu_new",
    dropout: float = 0.0,
    classifier_dropout: float = 0.1,
    head: str = "classifier",
    attention: str = "sdpa",
) -> Workload:
    """ALBERT over ``seq_len`` tokens.

    ``embedding``: width of the tables. ``ffn`` 0: four times hidden. ``head``: classifier after a
    pooler, or masked-lm. ``attention``: sdpa (or flash), transformers' own choice, or eager (or
    math).
    """
    check_names(
        head=(head, ("classifier", "masked-lm")),
        attention=(attention, tuple(CORES)),
        mlp=(mlp, _ACTIVATIONS),
    )
    check_length(seq_len, max_positions)
    drop = dropout > 0
    start = embeddings(seq_len, embedding, vocab, max_positions, type_vocab, drop, False)
    widened = ops.linear("mapping", seq_len, embedding, hidden, bias=True, input_high=True)
    start = replace(
        start, ops=(*start.ops, widened),
        params=(*start.params, *weight_and_bias("mapping", embedding, hidden)),
    )  # fmt: skip
    first = layer(
        Tower(
            rows=seq_len, hidden=hidden, heads=heads, head_dim=head_width(hidden, heads),
            ffn=ffn or 4 * hidden, mlp=mlp, norm_first=False, attention=CORES[attention],
            drop=drop, drop_scores=drop,
        ),
        "layer",
    )  # fmt: skip
    blocks = [
        start,
        first,
        classifier_head(seq_len, hidden, classes, classifier_dropout > 0, "tanh")
        if head == "classifier"
        else masked_lm_block(seq_len, hidden, embedding, vocab, act=mlp),
    ]
    if layers > 1:
        blocks.append(_repeated_layer(first))
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=tuple(blocks),
        order=(0, 1, *[3] * (layers - 1), 2),
        buffers_numel=2 * max_positions,  # position ids, token type ids
        n_buffers=2,
        input_bytes=INT64_BYTES * (3.0 * seq_len + (1 if head == "classifier" else seq_len)),
        tokens_per_sample=seq_len,
    )
