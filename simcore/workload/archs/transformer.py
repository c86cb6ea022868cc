"""Decoder-only language models: GPT-2's layout and, by settings, that of later models.

The settings add rotary positions, RMSNorm, gated layers, grouped-query and latent attention,
windows, experts and adapters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simcore.base.record import dataclass, replace
from simcore.base.units import INT64_BYTES
from simcore.workload import ops
from simcore.workload.archs import (
    ARCHS,
    adapter_assumptions,
    adapters,
    check_names,
    settings_by_part,
)
from simcore.workload.archs.body import Body, check_targets, frozen_parts, frozen_weight_flop
from simcore.workload.archs.lm_attention import ATTENTIONS, AttentionShape
from simcore.workload.archs.lm_layer import (
    FED,
    INDEXED,
    MIXERS,
    RECURRENT,
    Kind,
    Model,
    kind_of,
    layer,
    name_of,
    pattern_of,
)
from simcore.workload.archs.lm_mlp import GATED, PLAIN, MlpShape, RankShare
from simcore.workload.archs.lm_settings import (
    Attention,
    Ends,
    Implementation,
    LanguageModel,
    Sizes,
)
from simcore.workload.graph import Kernel, Op, Workload
from simcore.workload.saved import Saved

if TYPE_CHECKING:
    from simcore.workload.archs.lm_mixers import MixerShape

#: Former names of norms, which users' records may have.
_FORMER_NORMS = {"rmsnorm_gemma": "rmsnorm_eager_wide"}
#: Parts into which torchtune splits a sequence for head and loss (CEWithChunkedOutputLoss).
_CHUNKS = 8
_CHOICES = {
    "norm": (
        "layernorm",
        "layernorm_eager",
        "rmsnorm",
        "rmsnorm_again",
        "rmsnorm_eager",
        "rmsnorm_eager_wide",
    ),
    "mlp": (*PLAIN, *GATED),
    "positions": ("learned", "rope", "alibi", "none"),
    "attention": ATTENTIONS,
    "residual": ("serial", "parallel", "parallel_one_norm", "sandwich", "after"),
    "values": ("own", "normed", "keys"),
    "joint_experts": ("none", "products", "looked_up"),
    "expert_tokens": ("chosen", "chosen_weighed", "all"),
    "loss": (
        "eager",
        "eager_freed",
        "eager_shifted",
        "parallel",
        "vocab_parallel",
        "vocab_parallel_copied",
        "vocab_parallel_fused",
        "in_place",
        "flash",
        "compiled",
        "compiled_chunks",
        "chunked",
        "embedding",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Adapting:
    """Low-rank adapters, of ``lora_rank`` > 0: the base is frozen, in format ``quantised_base``.

    Only adapters on ``lora_targets`` (a comma list, or all-linear) are trained. ``lora_dropout`` >
    0: each has its own dropout, as in PEFT. ``lora_wide``, ``lora_kernels``, ``frozen_inputs``:
    ``wide``, ``kernels`` and ``inputs`` of ``body.Adapters``. ``wide_experts``: routed experts are
    not quantised with the base. ``frozen_model``: nothing of the language model is trained, and it
    passes gradients to an encoder of images that is (``trained`` of the encoder).
    """

    lora_rank: int = 0
    lora_targets: str = ""
    lora_dropout: float = 0.0
    lora_wide: bool = False
    lora_kernels: str = "apart"
    frozen_inputs: bool = False
    wide_experts: bool = False
    quantised_base: str = "none"
    frozen_model: bool = False


def _embeddings(m: Model, vocab: int, ends: Ends, table_rows: int) -> Body:
    body, seq, hidden = Body(m.adapters, in_layer=False), m.mlp.seq, m.mlp.hidden
    width = ends.embedding_width or hidden
    body.embedding("tokens", seq, width, vocab, fused=m.run.compiled)
    if width != hidden:
        body.linear("project_in", seq, width, hidden, reads="tokens")
    if ends.scaled_embedding:
        body.add(ops.scale("scale", m.elems, high=True))
    if ends.embedding_norm:
        body.norm(
            "norm", seq, hidden, m.norms.norm, bias=m.norms.norm_bias, weight=m.norms.norm_weight
        )
    if table_rows:
        arange = Kernel(kind="elementwise")
        added = ops.add_positions("positions", seq, hidden, table_rows=table_rows)
        body.add(Op(name="position_ids", fwd=(arange,)))
        body.add(added if body.trains else Op(name=added.name, fwd=added.fwd))
        body.param("positions.weight", table_rows * hidden)
    elif m.attention.rotated:
        # ids, outer product, cos, sin: once for all layers
        body.add(Op(name="rope.table", fwd=(Kernel(kind="elementwise", launches=5.0),)))
    if m.drop:
        body.add(ops.dropout("dropout", m.elems, high=True))
    if m.streams.alternating:
        from simcore.workload.archs.lm_alternating import begin

        begin(body, m.streams, seq, hidden)
    elif m.streams.streams > 1:
        from simcore.workload.archs.lm_streams import spread_embedding

        spread_embedding(body, m.streams, m.elems)
    if m.layer_input:
        from simcore.workload.archs.lm_inputs import look_up

        look_up(body, seq, hidden, m.layers, m.layer_input, ends.layer_input_vocab or vocab,
                m.norms.norm)  # fmt: skip
    return body


def _loss(name: str, seq: int, vocab: int, run: Implementation) -> tuple[Op, ...]:
    """The ops of the loss over the logits.

    ``chunked`` is compiled here: a softcap then separates it from the head.
    """
    match run.loss:
        case "parallel":
            return ops.loss_parallel(name, seq, vocab)
        case "vocab_parallel" | "vocab_parallel_fused" | "vocab_parallel_copied" as loss:
            _, _, how = loss.rpartition("_")
            return ops.loss_vocab_parallel(
                name, seq, vocab, fused=how == "fused", copied=how == "copied"
            )
        case "in_place":
            return ops.loss_in_place(name, seq, vocab)
        case "compiled_chunks":
            chunked_loss, seed = ops.loss_compiled(name, seq, vocab)
            return ops.in_chunks(chunked_loss, _CHUNKS), seed
        case "flash":
            return ops.loss_flash(name, seq, vocab)
        case "compiled" | "chunked":
            return ops.loss_compiled(name, seq, vocab)
    return ops.lm_loss(
        name, seq, vocab, upcast=run.upcast_loss, held=run.loss == "eager",
        shifted=run.loss == "eager_shifted" and run.upcast_loss,
    )  # fmt: skip


def _of_last_token(seq: int, hidden: int) -> tuple[Op, ...]:
    """A text's embedding, its last token's normalised row; the loss of all pairs is small work."""
    return (
        ops.grad_only("last_token", 2.0 * seq * hidden, high=True, kind="copy"),
        ops.activation("normalise", float(hidden), high=True, launches=3.0), ops.loss_seed(),
    )  # fmt: skip


def _head(m: Model, vocab: int, ends: Ends) -> Body:
    """The body of the final norm, the head and the loss."""
    run, fused = m.run, m.run.compiled
    body = Body(m.adapters, in_layer=False, fused=fused)
    seq, hidden = m.mlp.seq, m.mlp.hidden
    width = ends.embedding_width or hidden
    if m.streams.alternating:
        from simcore.workload.archs.lm_alternating import end

        end(body, m.streams, seq, hidden)
    elif m.streams.streams > 1:
        from simcore.workload.archs.lm_streams import head

        head(body, m.streams, seq, hidden, m.norms.norm)
    if m.norms.final_norm:
        body.norm(
            "norm", seq, hidden, m.norms.norm, bias=m.norms.norm_bias, weight=m.norms.norm_weight
        )
        if width == hidden and not fused:
            body.high.add("out")
    if run.loss == "embedding":
        body.add(*_of_last_token(seq, hidden))
        return body
    if width != hidden:
        body.linear("project_out", seq, hidden, width, reads="norm")
    if run.loss == "chunked" and not ends.logit_softcap:
        body.add(*ops.loss_chunked("head", seq, width, vocab, trained=body.trains))
        if not ends.tied:
            body.param("head.weight", width * vocab)
        if ends.head_bias:
            body.param("head.bias", vocab)
        return body
    body.linear(
        "head", seq, width, vocab, bias=ends.head_bias, reads="out", weight=not ends.tied,
        wide=not run.head_in_format, padded=run.pads_products,
    )  # fmt: skip
    if run.loss == "compiled_chunks":
        body.ops[-1] = ops.in_chunks(body.ops[-1], _CHUNKS)
    if ends.tied and body.trains:
        # The shared table's two gradients are summed.
        body.add(ops.grad_only("tie", 0.0, weight=3.0 * vocab * width, role="table_sum"))
    # A compiler makes scale and cap part of the loss's kernels.
    is_separate = run.loss not in ("compiled", "compiled_chunks", "chunked")
    logits = float(seq * vocab)
    if ends.scaled_logits and is_separate:
        body.add(ops.scale("logits.scale", logits))
    if ends.logit_softcap and is_separate:
        body.add(
            ops.scale("cap", logits),
            ops.activation("tanh", logits, saves="output"),
            ops.scale("uncap", logits),
        )
    if run.gathered_logits and run.loss_vocab > vocab:  # the whole vocabulary, not a rank's part
        vocab = run.loss_vocab
        body.add(replace(ops.copy("head.join", float(seq * vocab)), role="joined_logits"))
    body.add(*_loss("loss", seq, vocab, run))
    if run.logit_metrics:
        body.add(ops.logit_metrics("metrics", seq, vocab, run.logit_metrics))
    return body


def _next_token(m: Model, vocab: int, routed: bool) -> Body:
    """A multi-token prediction module (DeepSeek-V3 2024, section 2.2).

    It has the shared embedding of the next tokens, two norms, a product, a layer, the shared head
    and a second instance of the model's loss.
    """
    body = layer(m, Kind(False, routed, True))
    seq, hidden = m.mlp.seq, m.mlp.hidden
    if body.trains:
        embedded = ops.embedding("mtp.tokens", seq, hidden, vocab, fused=m.run.compiled)
        body.add(replace(embedded, role="next_tokens"))
    body.norm("embedding.norm", seq, hidden, m.norms.norm)
    body.norm("hidden.norm", seq, hidden, m.norms.norm)
    body.add(ops.copy("mtp.cat", 2 * m.elems))
    body.linear("mtp.project", seq, 2 * hidden, hidden, reads="mtp.cat")
    body.norm("norm", seq, hidden, m.norms.norm)
    body.linear(
        "head", seq, hidden, vocab, reads="norm.out", weight=False, wide=not m.run.head_in_format,
        padded=m.run.pads_products,
    )  # fmt: skip
    body.add(*_loss("mtp.loss", seq, vocab, m.run))
    return body


def _shapes(
    model: LanguageModel, run: Implementation, share: RankShare, adapting: Adapting
) -> Model:
    """What the layers share. Raises ValueError for settings that do not fit together."""
    sizes, norms, feed_forward = model.sizes, model.norms, model.feed_forward
    own = model.attention.complete(sizes)
    seq, hidden, drop = sizes.seq_len, sizes.hidden, sizes.dropout > 0

    def attending(own: Attention) -> AttentionShape:
        rotated = own.rotated if model.ends.positions == "rope" else 0
        if not 0 <= rotated <= own.head_dim:
            raise ValueError(f"rope_dim {rotated} is not within head_dim {own.head_dim}")
        return AttentionShape(
            seq=seq, hidden=hidden, own=own, norm=norms.norm, kernel=run.attention,
            qkv_bias=sizes.biased(own.qkv_bias), out_bias=sizes.biased(own.out_bias),
            rotated=rotated, fused=run.rope_is_fused, tables=model.ends.rope_tables, drop=drop,
            drop_joined=run.fused_pointwise and norms.residual == "serial",
            indexer=model.indexer, gate=model.gate, inner_norm=norms.inner_norms,
        )  # fmt: skip

    full = replace(own, sinks=own.sinks and (model.windowed.full_sinks or not own.window))
    return Model(
        attention=attending(full),
        windowed=attending(model.windowed.of(own)),
        mixer=_mixer_shape(model, run),
        mlp=MlpShape(
            seq=seq, hidden=hidden, ffn=feed_forward.ffn or 4 * hidden, kind=feed_forward.mlp,
            bias=sizes.biased(feed_forward.mlp_bias),
            fused=feed_forward.fused_gate_up, fused_pointwise=run.fused_pointwise,
            fp8_input=run.fp8_activation_input, clamps_apart=run.clamps_apart,
            in_place=run.gradients_in_place, casts=run.activation_casts,
            inner_norm=norms.norm * norms.inner_norms,
        ),
        experts=model.experts, share=share, norms=norms, run=run,
        window=own.window, drop=drop,
        adapters=adapters(
            adapting.lora_rank, adapting.lora_targets, adapting.quantised_base,
            adapting.lora_dropout, adapting.lora_wide, adapting.lora_kernels,
            adapting.frozen_inputs, adapting.wide_experts, adapting.frozen_model,
        ),
        compressed=model.compressed, streams=model.streams,
        layers=sizes.layers, layer_input=model.ends.layer_input,
    )  # fmt: skip


def _mixer_shape(model: LanguageModel, run: Implementation) -> MixerShape | None:
    """The shape of the mixers beside attention; None for a model without any."""
    if RECURRENT.isdisjoint(model.mixers.mixer_pattern):
        return None
    from simcore.workload.archs.lm_mixers import mixer_shape

    return mixer_shape(model.sizes, model.mixers, run.mixer_apart)


def _check_mixers(shape: MixerShape | None, order: list[Kind], residual: str, kv_rank: int) -> None:
    """Raises ValueError if a layer is empty or the sizes of its mixer do not fit."""
    mixers = {k.mixer for k in order}
    if any(k.halves == 0 for k in order):
        raise ValueError("mixer_pattern and expert_pattern leave a layer empty")
    recurs = residual.startswith("parallel") and mixers & RECURRENT
    if recurs or (residual != "serial" and any(k.halves == 1 for k in order)):
        raise ValueError(f"residual {residual!r} needs layers of attention and a feed-forward part")
    if kv_rank and mixers & RECURRENT - {"k"}:
        raise ValueError(
            "mixer_pattern: latent attention together with recurrent mixers is not supported"
        )
    if shape is not None:
        from simcore.workload.archs.lm_mixers import check_mixers

        check_mixers(shape, mixers)


def _kinds(model: LanguageModel, m: Model) -> list[Kind]:
    """The kind of each layer. Raises ValueError for patterns that do not fit."""
    layers, experts = model.sizes.layers, model.experts
    compress = model.compressed.compress_pattern
    indexes = model.indexer.index_heads and not compress
    fed = experts.expert_pattern or ("e" if experts.experts else "d")
    patterns = (
        ("window_pattern", model.attention.window_pattern, "wf"),
        ("expert_pattern", fed, FED),
        ("rope_pattern", model.attention.rope_pattern, "rn"),
        ("mixer_pattern", model.mixers.mixer_pattern, "".join(MIXERS)),
        (
            "index_pattern",
            model.indexer.index_pattern if indexes else "f",
            INDEXED,
        ),
        ("compress_pattern", compress or "w", "whs"),
    )
    letters = [pattern_of(*pattern, layers) for pattern in patterns]
    routed = letters[1]
    if "e" in routed and not experts.experts:
        raise ValueError("expert_pattern has layers of experts, but experts is 0")
    shared = model.attention.shared_kv_layers
    first_sparse = model.feed_forward.sparse_layers
    every = zip(*letters, model.feed_forward.widths(layers), strict=True)
    order = [
        kind_of(
            w if m.window and not compress else "f", e, r, x, i, width, c if compress else "",
            place >= layers - shared, place < first_sparse,
        )
        for place, (w, e, r, x, i, c, width) in enumerate(every)
    ]  # fmt: skip
    _check_shared(model, order)
    _check_mixers(m.mixer, order, model.norms.residual, model.attention.kv_rank)
    _check_streams(model, order)
    if compress and not model.attention.q_rank:
        raise ValueError("compress_pattern: queries of compressed attention come from q_rank")
    if model.ends.next_tokens and not order[-1].fed:
        raise ValueError(
            "expert_pattern ends in a layer without feed-forward part: modules "
            "that predict further tokens are not supported then"
        )
    return order


def _check_shared(model: LanguageModel, order: list[Kind]) -> None:
    """Raises ValueError if a layer takes keys and values that no earlier layer of its kind has."""
    shared, streams = model.attention.shared_kv_layers, model.streams
    own = {k.windowed for k in order if k.attends and not k.given_kv}
    if not 0 <= shared < len(order) or any(k.given_kv and k.windowed not in own for k in order):
        raise ValueError(
            f"shared_kv_layers {shared} of {len(order)}: keys and values come from a layer before "
            "them that has the same window"
        )
    if shared and (model.attention.kv_rank or model.compressed.compress_pattern):
        raise ValueError("shared_kv_layers: not with keys and values that are compressed")
    if (shared or model.ends.layer_input) and streams.streams > 1 and not streams.alternating:
        raise ValueError("shared_kv_layers, layer_input: of streams only with alternating ones")


def _check_streams(model: LanguageModel, order: list[Kind]) -> None:
    """Raises ValueError for layers that cannot have several streams, or not those of Gemma 3n."""
    streams = model.streams
    if streams.streams > 1:
        if any(k.mixer != "a" or not k.fed for k in order) or model.ends.next_tokens:
            raise ValueError(
                "streams: only layers of attention and a feed-forward part, without further tokens"
            )
        if model.norms.residual != "serial":
            raise ValueError(f"streams replace the residual {model.norms.residual!r}")
    if not streams.alternating:
        if streams.branch_rank or model.feed_forward.sparse_layers:
            raise ValueError("branch_rank, sparse_layers: only with alternating streams")
        return
    if model.sizes.dropout:
        raise ValueError("alternating: no dropout")
    if streams.streams == 1 or not streams.branch_rank:
        raise ValueError("alternating: takes streams of 2 or more and branch_rank of 1 or more")
    if any(k.routed or k.compress or k.index != "f" for k in order):
        raise ValueError("alternating: only layers of plain attention, without experts")


def _table_rows(sizes: Sizes, ends: Ends) -> int:
    """Rows of the table of positions; 0 without one. Raises ValueError for a wrong length."""
    rows = (ends.max_positions or sizes.seq_len) if ends.positions == "learned" else 0
    if sizes.seq_len < 1 or (rows and sizes.seq_len > rows):
        raise ValueError(f"seq_len {sizes.seq_len} is not within 1..{rows or 'any'}")
    return rows + ends.extra_positions if rows else 0


@ARCHS.register("transformer")
@settings_by_part
def build(
    *,
    name: str,
    sample_unit: str = "sequence",
    model: LanguageModel,
    run: Implementation,
    share: RankShare,
    adapting: Adapting,
) -> Workload:
    """A causal language model over ``seq_len`` tokens with the loss at every position.

    The settings are those of ``lm_settings``: the published model, how a program runs it, this
    rank's part of the experts, and adapters.
    """
    if now := _FORMER_NORMS.get(model.norms.norm):
        model = replace(model, norms=replace(model.norms, norm=now))
    names = {"norm": model.norms.norm, "mlp": model.feed_forward.mlp,
             "positions": model.ends.positions, "attention": run.attention,
             "residual": model.norms.residual, "values": model.attention.values, "loss": run.loss,
             "expert_tokens": model.experts.expert_tokens}  # fmt: skip
    check_names(**{key: (name, _CHOICES[key]) for key, name in names.items()})
    model.experts.check()
    share.check()
    share = share.times(model.experts.rows_over_chosen)
    m = _shapes(model, run, share, adapting)
    sizes, ends = model.sizes, model.ends
    order = _kinds(model, m)
    kinds = list(dict.fromkeys(order))
    first = _embeddings(m, sizes.vocab, ends, _table_rows(sizes, ends))
    middle = [layer(m, kind) for kind in kinds]
    left_out = check_targets(m.adapters, middle)
    last = _head(m, sizes.vocab, ends)
    extra = [_next_token(m, sizes.vocab, order[-1].routed)] if ends.next_tokens else []
    input_of_layer = Saved(high=m.elems * m.streams.streams)
    names_of_layers = [*(name_of(kind, kinds) for kind in kinds), *("next token" for _ in extra)]
    blocks = [
        first.block("embeddings"),
        *(
            body.block(name, boundary=input_of_layer, recomputable=True)
            for name, body in zip(names_of_layers, [*middle, *extra], strict=True)
        ),
        last.block("head"),
    ]
    if run.attention == "xla":
        blocks = [ops.compiled(b) for b in blocks]
    counts = [1, *(order.count(kind) for kind in kinds), *(ends.next_tokens for _ in extra), 1]
    end = len(blocks) - 1
    built = list(zip([first, *middle, *extra, last], counts, strict=True))
    routed_flop = sum(body.routed_flop * count for body, count in built)
    uneven_flop = routed_flop * (1.0 - 1.0 / share.expert_rows)
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=tuple(blocks),
        order=(
            0, *(1 + kinds.index(kind) for kind in order), *[end - 1] * ends.next_tokens, end
        ),
        frozen=frozen_parts(built),
        # The experts' rows beyond balanced routing need no weight gradient either.
        frozen_weight_flop=frozen_weight_flop(built)
        - (uneven_flop if m.adapters else 0.0),
        uneven_flop=uneven_flop,
        input_bytes=2.0 * INT64_BYTES * sizes.seq_len,  # tokens and labels
        tokens_per_sample=sizes.seq_len,
        notes=(*adapter_assumptions(m.adapters), *left_out),
    )  # fmt: skip
