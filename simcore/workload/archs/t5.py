"""T5 (Raffel et al. 2020) and Switch transformers: encoder and decoder trained together."""

from __future__ import annotations

from dataclasses import replace

from simcore.base.units import INT64_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS, check_names
from simcore.workload.archs.body import (
    Adapters,
    Body,
    adapters,
    assumptions,
    check_targets,
    frozen_parts,
    frozen_weight_flop,
)
from simcore.workload.archs.switch import Switch
from simcore.workload.archs.towers import ENCODED, Tower, add_layer, layer
from simcore.workload.graph import TIE, Block, Kernel, Op, Workload
from simcore.workload.saved import Saved


def _outside(chosen: Adapters | None, *, fused: bool = False) -> Body:
    """An empty block beside the layers, in which adapters are on no product."""
    return Body(chosen, in_layer=chosen is None, fused=fused)


def _end_of_encoder(t: Tower, decoders: int, chosen: Adapters | None) -> Body:
    """The norm after the encoder, whose output ``decoders`` layers read.

    The gradients of each layer's keys and values are summed there; here those of the layers are.
    """
    body = _outside(chosen)
    body.norm("norm", t.rows, t.hidden, t.norm)
    body.add(
        ops.keep(ENCODED, t.elems, high=True),
        ops.accumulate("encoder.forks", t.elems, times=decoders - 1.0, high=True),
    )
    return body


def _lm_head(t: Tower, vocab: int, chosen: Adapters | None, *, tied: bool) -> Body:
    """Norm, product with the vocabulary and loss.

    ``tied``: the product's weight is the embedding's table, and its input is multiplied by
    1/sqrt(hidden) before.
    """
    body = _outside(chosen, fused=t.xla)
    body.norm("norm", t.rows, t.hidden, t.norm)
    if tied:
        body.add(ops.scale("scale", t.elems))
    body.linear("head", t.rows, t.hidden, vocab, reads="out", weight=not tied)
    if tied and body.trains:
        body.add(ops.grad_only(TIE, 0.0, weight=3.0 * vocab * t.hidden))
    loss = ops.loss_compiled if t.xla else ops.lm_loss
    body.add(*loss("loss", t.rows, vocab))
    return body


def position_bias(body: Body, t: Tower, buckets: int) -> None:
    """Add a table of ``buckets`` rows, looked up for all pairs of positions once per stack."""
    pairs = float(t.rows) ** 2
    fwd = (
        Kernel(kind="elementwise", weight=4.0 * pairs, launches=16.0),
        Kernel(kind="gather", weight=2.0 * pairs * t.heads),
    )
    bwd = (Kernel(kind="gather", weight=2.0 * pairs * t.heads),)
    body.add(Op(name="position_bias", fwd=fwd, bwd=bwd if body.trains else ()))
    body.param("position_bias.weight", buckets * t.heads)


@ARCHS.register("t5")
def t5(
    *,
    name: str,
    sample_unit: str = "sequence pair",
    layers: int,
    decoder_layers: int = 0,
    hidden: int,
    heads: int,
    head_dim: int = 64,
    ffn: int,
    vocab: int = 32128,
    seq_len: int = 512,
    target_len: int = 0,
    buckets: int = 32,
    tied: bool = True,
    mlp: str = "relu",
    norm: str = "rmsnorm_eager",
    dropout: float = 0.1,
    experts: int = 0,
    expert_capacity: int = 64,
    sparse_step: int = 2,
    busy_experts: int = 0,
    attention: str = "math",
    lora_rank: int = 0,
    lora_targets: str = "",
    lora_dropout: float = 0.0,
    quantised_base: str = "none",
) -> Workload:
    """T5 on ``seq_len`` source tokens and ``target_len`` target tokens (0: as many).

    Both share one table, which is also the head's if ``tied`` (the released v1.1 and Flan-T5 have a
    separate head). Attention consists of separate operators, since a position bias is added to the
    scores. ``attention``: math (eager), as in transformers, or xla: XLA fuses the whole model, as
    in T5X. With ``experts`` every ``sparse_step``-th layer is a switch layer (Fedus et al. 2021):
    ``busy_experts`` of the experts (0: all) share each sequence equally, with at most
    ``expert_capacity`` tokens of it per expert. ``lora_rank`` > 0: adapters (``archs.body``), by
    default on q and v (PEFT, utils/constants.py: T5's targets).
    """
    chosen = adapters(
        lora_rank, lora_targets or "q,v" * bool(lora_rank), quantised_base, lora_dropout
    )
    if experts and chosen:
        raise ValueError("lora_rank: switch layers take no adapters")
    if experts < 0 or sparse_step < 1:
        raise ValueError(f"experts {experts} and sparse_step {sparse_step} must not be negative")
    switch = Switch(experts, expert_capacity, busy_experts or experts) if experts else None
    if seq_len < 1 or target_len < 0:
        raise ValueError(f"seq_len {seq_len} and target_len {target_len} must be positive")
    check_names(attention=(attention, ("math", "eager", "xla")))
    drop, xla = dropout > 0, attention == "xla"
    encoder = Tower(
        rows=seq_len, hidden=hidden, heads=heads, head_dim=head_dim, ffn=ffn, mlp=mlp,
        norm="rmsnorm" if xla else norm, biased=False, qkv_bias="", position_bias=True,
        attention="xla" if xla else "math", drop=drop, drop_mlp=drop, drop_inner=drop,
        drop_scores=drop,
    )  # fmt: skip
    decoder = replace(encoder, rows=target_len or seq_len, causal=True, source=seq_len)
    start, middle = _outside(chosen), _outside(chosen)
    start.embedding("shared", seq_len, hidden, vocab)
    position_bias(start, encoder, buckets)
    table = ops.embedding("shared", decoder.rows, hidden, vocab)
    middle.add(table if middle.trains else replace(table, bwd=()))
    position_bias(middle, decoder, buckets)
    if drop:
        start.add(ops.dropout("dropout", encoder.elems, high=True))
        middle.add(ops.dropout("dropout", decoder.elems, high=True))
    n_decoder = decoder_layers or layers
    repeated = {
        name: (Body(chosen, fused=xla), t)
        for name, t in (("encoder", encoder), ("decoder", decoder))
    }
    for body, t in repeated.values():
        add_layer(body, t)
    left_out = check_targets(chosen, [body for body, _ in repeated.values()])
    between = _end_of_encoder(encoder, n_decoder, chosen)
    end = _lm_head(decoder, vocab, chosen, tied=tied)

    def repeating(name: str) -> Block:
        body, t = repeated[name]
        return body.block(f"{name} layer", boundary=Saved(high=t.elems), recomputable=True)

    blocks = [
        start.block("source"),
        repeating("encoder"),
        between.block("encoder end"),
        middle.block("target"),
        repeating("decoder"),
        end.block("head"),
    ]
    if switch:
        blocks.append(layer(encoder, "encoder switch layer", switch.feed))
        blocks.append(layer(decoder, "decoder switch layer", switch.feed))
    if xla:
        blocks = [ops.compiled(b) for b in blocks]
    counts = {"encoder": layers, "decoder": n_decoder}
    built = [(body, 1) for body in (start, between, middle, end)]
    built += [(body, counts[name]) for name, (body, _) in repeated.items()]

    def stack(count: int, dense: int, sparse: int) -> list[int]:
        is_sparse = [i % sparse_step == min(1, sparse_step - 1) for i in range(count)]
        return [sparse if switch and s else dense for s in is_sparse]

    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=tuple(blocks),
        order=(0, *stack(layers, 1, 6), 2, 3, *stack(n_decoder, 4, 7), 5),
        frozen=frozen_parts(built),
        frozen_weight_flop=frozen_weight_flop(built),
        input_bytes=INT64_BYTES * (seq_len + 2.0 * decoder.rows),  # source, shifted, labels
        tokens_per_sample=seq_len + decoder.rows,
        notes=(*assumptions(chosen), *left_out),
    )
