"""Decoder-only language models: GPT-2's layout and, by settings, that of later models.

The settings add rotary positions, RMSNorm, gated layers, grouped-query and latent attention,
windows, experts and adapters.
"""

from __future__ import annotations

from simcore.base.units import INT64_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.body import (
    Body,
    adapters,
    assumptions,
    check_targets,
    frozen_parts,
    frozen_weight_flop,
)
from simcore.workload.archs.checks import check_names, head_width
from simcore.workload.archs.lm_attention import ATTENTIONS, AttentionShape
from simcore.workload.archs.lm_kinds import FED, MIXERS, Kind, kind_of, name_of, pattern_of
from simcore.workload.archs.lm_layer import Model, layer
from simcore.workload.archs.lm_mixers import MixerShape, check_mixers
from simcore.workload.archs.lm_mlp import GATED, PLAIN, ExpertsShape, MlpShape, check_groups
from simcore.workload.graph import NEXT_TOKENS, TIE, Kernel, Op, Workload
from simcore.workload.saved import Saved

#: Parts into which torchtune splits a sequence for head and loss (CEWithChunkedOutputLoss).
_CHUNKS = 8
_CHOICES = {
    "norm": ("layernorm", "rmsnorm", "rmsnorm_again", "rmsnorm_eager", "rmsnorm_gemma"),
    "mlp": (*PLAIN, *GATED),
    "positions": ("learned", "rope", "alibi", "none"),
    "attention": ATTENTIONS,
    "residual": ("serial", "parallel", "parallel_one_norm", "sandwich", "after"),
    "loss": (
        "eager",
        "eager_freed",
        "parallel",
        "vocab_parallel",
        "vocab_parallel_fused",
        "in_place",
        "flash",
        "compiled",
        "compiled_chunks",
        "chunked",
    ),
}


def _embeddings(m: Model, vocab: int, width: int, table_rows: int, scaled: bool,
                normed: bool) -> Body:  # fmt: skip
    body, seq, hidden = Body(m.adapters, in_layer=False), m.mlp.seq, m.mlp.hidden
    body.embedding("tokens", seq, width, vocab)
    if width != hidden:
        body.linear("project_in", seq, width, hidden, reads="tokens")
    if scaled:
        body.add(ops.scale("scale", m.elems, high=True))
    if normed:
        body.norm("norm", seq, hidden, m.norm, bias=m.norm_bias)
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
    return body


def _loss(name: str, seq: int, vocab: int, loss: str, upcast: bool) -> tuple[Op, ...]:
    """The ops of the loss over the logits.

    ``chunked`` is compiled here: a softcap then separates it from the head.
    """
    if loss == "parallel":
        return ops.loss_parallel(name, seq, vocab)
    if loss in ("vocab_parallel", "vocab_parallel_fused"):
        return ops.loss_vocab_parallel(name, seq, vocab, fused=loss == "vocab_parallel_fused")
    if loss == "in_place":
        return ops.loss_in_place(name, seq, vocab)
    if loss == "compiled_chunks":
        chunked_loss, seed = ops.loss_compiled(name, seq, vocab)
        return ops.in_chunks(chunked_loss, _CHUNKS), seed
    if loss == "flash":
        return ops.loss_flash(name, seq, vocab)
    if loss in ("compiled", "chunked"):
        return ops.loss_compiled(name, seq, vocab)
    return ops.lm_loss(name, seq, vocab, upcast=upcast, held=loss != "eager_freed")


def _head(m: Model, vocab: int, width: int, tied: bool, softcap: bool, scaled: bool,
          final_norm: bool, upcast: bool, loss: str, joined: int = 0, bias: bool = False,
          metrics: int = 0) -> Body:  # fmt: skip
    """The body of the final norm, the head and the loss.

    ``joined``: the vocabulary of the loss if it is larger than this rank's part; 0: it is not.
    """
    fused = m.compiled
    body = Body(m.adapters, in_layer=False, fused=fused)
    seq, hidden = m.mlp.seq, m.mlp.hidden
    if final_norm:
        body.norm("norm", seq, hidden, m.norm, bias=m.norm_bias, weight=m.norm_weight)
        if width == hidden and not fused:
            body.high.add("out")
    if width != hidden:
        body.linear("project_out", seq, hidden, width, reads="norm")
    if loss == "chunked" and not softcap:
        body.add(*ops.loss_chunked("head", seq, width, vocab, trained=body.trains))
        if not tied:
            body.param("head.weight", width * vocab)
        if bias:
            body.param("head.bias", vocab)
        return body
    body.linear("head", seq, width, vocab, bias=bias, reads="out", weight=not tied)
    if loss == "compiled_chunks":
        body.ops[-1] = ops.in_chunks(body.ops[-1], _CHUNKS)
    if tied and body.trains:
        # The shared table's two gradients are summed.
        body.add(ops.grad_only(TIE, 0.0, weight=3.0 * vocab * width))
    # A compiler makes scale and cap part of the loss's kernels.
    is_separate = loss not in ("compiled", "compiled_chunks", "chunked")
    logits = float(seq * vocab)
    if scaled and is_separate:
        body.add(ops.scale("logits.scale", logits))
    if softcap and is_separate:
        body.add(
            ops.scale("cap", logits),
            ops.activation("tanh", logits, saves="output"),
            ops.scale("uncap", logits),
        )
    if joined > vocab:
        body.add(ops.copy("head.join", float(seq * joined)))
        vocab = joined
    body.add(*_loss("loss", seq, vocab, loss, upcast))
    if metrics:
        body.add(ops.logit_metrics("metrics", seq, vocab, metrics))
    return body


def _next_token(m: Model, vocab: int, routed: bool, loss: str, upcast: bool) -> Body:
    """A multi-token prediction module (DeepSeek-V3 2024, section 2.2).

    It has the shared embedding of the next tokens, two norms, a product, a layer, the shared head
    and a second instance of the model's loss.
    """
    body = layer(m, Kind(False, routed, True))
    seq, hidden = m.mlp.seq, m.mlp.hidden
    if body.trains:
        body.add(ops.embedding(NEXT_TOKENS, seq, hidden, vocab))
    body.norm("embedding.norm", seq, hidden, m.norm)
    body.norm("hidden.norm", seq, hidden, m.norm)
    body.add(ops.copy("mtp.cat", 2 * m.elems))
    body.linear("mtp.project", seq, 2 * hidden, hidden, reads="mtp.cat")
    body.norm("norm", seq, hidden, m.norm)
    body.linear("head", seq, hidden, vocab, reads="norm.out", weight=False, wide=True)
    body.add(*_loss("mtp.loss", seq, vocab, loss, upcast))
    return body


@ARCHS.register("transformer")
def build(
    *,
    name: str,
    sample_unit: str = "sequence",
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int = 0,
    head_dim: int = 0,
    ffn: int = 0,
    vocab: int,
    seq_len: int,
    max_positions: int = 0,
    norm: str = "layernorm",
    norm_bias: bool = True,
    norm_weight: bool = True,
    mlp: str = "gelu",
    positions: str = "learned",
    bias: bool = True,
    qkv_bias: bool | None = None,
    out_bias: bool | None = None,
    mlp_bias: bool | None = None,
    head_bias: bool = False,
    fused_qkv: bool = True,
    qkv_clip: bool = False,
    fused_gate_up: bool = False,
    tied: bool = True,
    attention: str = "flash",
    fused_pointwise: bool = False,
    fused_rope: bool | None = None,
    fp8_activation_input: bool = False,
    activation_casts: bool = False,
    dropout: float = 0.0,
    residual: str = "serial",
    rotary_share: float = 1.0,
    rotary_joined: bool = False,
    rope_pattern: str = "r",
    qk_norm: bool = False,
    qk_norm_weight: bool = True,
    qk_norm_whole: bool = False,
    window: int = 0,
    window_pattern: str = "w",
    chunked: bool = False,
    attention_softcap: bool = False,
    logit_softcap: bool = False,
    sinks: bool = False,
    scaled_embedding: bool = False,
    scaled_residual: bool = False,
    scaled_logits: bool = False,
    scaled_parts: bool = False,
    embedding_norm: bool = False,
    embedding_width: int = 0,
    extra_positions: int = 0,
    final_norm: bool = True,
    upcast_loss: bool = False,
    loss: str = "eager",
    gathered_logits: bool = False,
    loss_vocab: int = 0,
    logit_metrics: int = 0,
    gathered_inputs: bool = False,
    q_rank: int = 0,
    kv_rank: int = 0,
    rope_dim: int = 0,
    value_dim: int = 0,
    experts: int = 0,
    top_k: int = 2,
    expert_groups: int = 1,
    top_groups: int = 1,
    expert_ffn: int = 0,
    shared_ffn: int = 0,
    shared_gate: bool = False,
    expert_latent: int = 0,
    expert_bias: bool = False,
    expert_apart: bool = False,
    clamps_apart: bool = False,
    expert_bias_apart: bool = False,
    weighed_early: bool = False,
    regrouped_rows: bool = False,
    padded_rows: bool = False,
    fused_experts: bool = False,
    expert_pattern: str = "",
    local_experts: int = 0,
    routed_share: float = 1.0,
    expert_rows: float = 1.0,
    permuted_rows: float = 1.0,
    mixer_pattern: str = "a",
    ssm_heads: int = 0,
    ssm_head_dim: int = 64,
    ssm_state: int = 128,
    ssm_groups: int = 1,
    ssm_chunk: int = 256,
    ssm_norm: bool = True,
    ssm_inner: int = 0,
    ssm_rank: int = 0,
    delta_key_heads: int = 0,
    delta_value_heads: int = 0,
    delta_key_dim: int = 128,
    delta_value_dim: int = 128,
    delta_products: int = 2,
    conv_kernel: int = 4,
    conv_bias: bool = True,
    mixer_apart: bool = False,
    gated_attention: bool = False,
    next_tokens: int = 0,
    lora_rank: int = 0,
    lora_targets: str = "",
    lora_dropout: float = 0.0,
    lora_wide: bool = False,
    lora_kernels: str = "apart",
    frozen_inputs: bool = False,
    quantised_base: str = "none",
) -> Workload:
    """A causal language model over ``seq_len`` tokens with the loss at every position.

    Zeros mean: ``kv_heads`` = heads, ``head_dim`` = hidden / heads, ``ffn`` = 4 hidden,
    ``max_positions`` = seq_len, ``embedding_width`` = hidden, ``value_dim`` = head_dim,
    ``expert_ffn`` = ffn. Biases that are None follow ``bias``.

    Patterns of letters repeat over the layers.

    - ``window_pattern``: ``w`` attends to ``window`` tokens (``chunked``: within chunks of that
      length, Llama 4), ``f`` to all. ``rope_pattern``: ``r`` rotary positions, ``n`` none (nor
      norms of q and k without weight). ``expert_pattern``: ``e`` experts, ``d`` dense, ``n``
      neither.
    - ``mixer_pattern``: ``a`` attention, ``m`` Mamba-2, ``h`` both in parallel, ``s`` Mamba-1,
      ``g`` gated DeltaNet, ``k`` the same with decays by channel (Kimi Delta Attention), ``l``
      lightning attention with attention's heads (MiniMax-01), ``n`` none.

    Layers:

    - ``mlp``: ``gelu`` is one fused kernel, ``gelu_new`` eight. ``norm_bias``, ``norm_weight``:
      norms have one (OLMo's have no weight).
    - ``residual``: serial, parallel (parallel_one_norm: both parts read one norm), sandwich (norms
      before and after each half, Gemma 2) or after (only after it, OLMo 2).
    - ``scaled_embedding``, ``scaled_residual``, ``scaled_logits``: multiplied by a constant
      (Granite); ``scaled_parts``: so are inputs and results of a layer's parts (Falcon-H1).
    - ``qkv_clip``: q, k and v are clamped (DBRX). ``qk_norm_whole``: norms of q and k are over all
      heads. ``gated_attention``: a sigmoid of a second result of q's product multiplies the output
      (Qwen3-Next). ``kv_rank`` > 0: latent attention; ``rope_dim`` elements of ``head_dim`` have
      positions, if there are any, and all heads share one key's.
    - ``attention``: flash (torch's choice: FlashAttention-2, cuDNN's on data-centre Blackwell),
      flash2, flash3 and cudnn (faster from Hopper on), flash1 and flash_triton (older), masked
      (torch's with a mask tensor), fused_softmax (scores in memory, Megatron-LM's kernel), xla (the
      same in XLA's fusions) or math (tensor operations).
    - ``fused_pointwise``: rotary positions, gated activations, and bias, dropout and residual sum
      are one kernel each (Megatron-LM, Transformer Engine, or a compiler), not tensor operations;
      ``fused_rope``: so for positions alone. ``fp8_activation_input``: gated activations save their
      input in 8 bits; ``activation_casts``: they cast their result for the products that read it.
    - ``ssm_``: Mamba-2 (``ops.SsdShape``); ``ssm_norm``: it has a gated norm, and Mamba-1 norms of
      steps, B and C; ``ssm_inner``, ``ssm_rank``: Mamba-1's widths. ``delta_``: gated DeltaNet
      (``ops.DeltaShape``, ``MixerShape``). ``mixer_apart``: norm and last product of Mamba-2 save
      their inputs (Megatron-Core).

    Experts:

    - ``local_experts``: experts that this rank holds (0: all); ``routed_share``: fraction of the
      tokens that it routes and computes. ``expert_rows``: rows that its experts compute, over those
      of balanced routing; ``permuted_rows``: rows that it sorts and combines, over the same.
    - The other settings are those of ``ExpertsShape``: ``expert_latent`` (Nemotron 3 Super),
      ``expert_apart``, ``expert_bias_apart``, ``weighed_early`` (Megatron-Core),
      ``regrouped_rows``, ``padded_rows``, ``fused_experts``; and of ``MlpShape``: ``clamps_apart``.

    Loss and adapters:

    - ``loss``: eager (tensor operations, the logits held until backward ends; eager_freed: until it
      begins), parallel (torch's loss_parallel, of tensor ranks), vocab_parallel (Megatron-LM's, in
      place in fp32; vocab_parallel_fused: compiled), in_place (Transformer Engine's: forward
      overwrites the logits with their gradient), flash (flash-attn's: backward does), compiled (no
      fp32 copy; compiled_chunks: an eighth of the logits at a time, torchtune) or chunked (Liger:
      no logits).
    - ``gathered_logits``: tensor ranks join their parts of the logits, so that each computes the
      loss of the whole vocabulary (``loss_vocab``, if this rank's part is smaller).
      ``logit_metrics``: cross entropies computed from the logits in addition to the loss, for logs.
      ``gathered_inputs``: inputs of products that sequence parallelism gathers are saved whole.
    - ``next_tokens``: multi-token prediction modules after the last layer.
    - ``lora_rank`` > 0: the base is frozen, in the format ``quantised_base``; only adapters on
      ``lora_targets`` (a comma list, or all-linear) are trained. ``lora_dropout`` > 0: each has its
      own dropout, as in PEFT. ``lora_wide``, ``lora_kernels``, ``frozen_inputs``: ``wide``,
      ``kernels`` and ``inputs`` of ``Adapters``.
    """
    names = {"norm": norm, "mlp": mlp, "positions": positions, "attention": attention,
            "residual": residual, "loss": loss}  # fmt: skip
    check_names(**{key: (name, _CHOICES[key]) for key, name in names.items()})
    kv_heads = kv_heads or heads
    head_dim = head_dim or head_width(hidden, heads)
    if heads % kv_heads:
        raise ValueError(f"heads {heads} is not a multiple of kv_heads {kv_heads}")
    table_rows = (max_positions or seq_len) if positions == "learned" else 0
    if seq_len < 1 or (table_rows and seq_len > table_rows):
        raise ValueError(f"seq_len {seq_len} is not within 1..{table_rows or 'any'}")
    if experts and not 1 <= top_k <= experts:
        raise ValueError(f"top_k {top_k} is not within 1..{experts} experts")
    check_groups(experts, top_k, expert_groups, top_groups)
    if min(expert_rows, permuted_rows) < 1:
        raise ValueError(f"expert_rows {expert_rows} and permuted_rows {permuted_rows} are below 1")
    rotated = rope_dim if kv_rank else int(head_dim * rotary_share)
    if positions != "rope":
        rotated = 0
    if not 0 <= rotated <= head_dim:
        raise ValueError(f"rope_dim {rotated} is not within head_dim {head_dim}")

    def biased(own: bool | None) -> bool:
        return bias if own is None else own

    m = Model(
        attention=AttentionShape(
            seq=seq_len, hidden=hidden, heads=heads, kv_heads=heads if kv_rank else kv_heads,
            head_dim=head_dim, value_dim=value_dim or head_dim, rotated=rotated,
            joined=rotary_joined,
            fused_qkv=fused_qkv, qkv_bias=biased(qkv_bias), out_bias=biased(out_bias),
            qk_norm=qk_norm, qk_norm_weight=qk_norm_weight, qk_norm_whole=qk_norm_whole,
            clip=qkv_clip, chunked=chunked, norm=norm, kernel=attention, drop=dropout > 0,
            fused=fused_pointwise if fused_rope is None else fused_rope,
            drop_joined=fused_pointwise and residual == "serial",
            softcap=attention_softcap, sinks=sinks, q_rank=q_rank, kv_rank=kv_rank,
            gated=gated_attention, shared=rope_dim if kv_rank else 0,
        ),
        mixer=MixerShape(
            seq=seq_len, hidden=hidden, bias=bias, conv_bias=conv_bias, apart=mixer_apart,
            products=delta_products, normed=ssm_norm,
            ssd=ops.SsdShape(
                seq=seq_len, heads=ssm_heads, head_dim=ssm_head_dim, state=ssm_state,
                groups=ssm_groups, chunk=ssm_chunk, conv=conv_kernel,
            ),
            selective=ops.SelectiveShape(
                seq=seq_len, inner=ssm_inner, state=ssm_state, rank=ssm_rank, conv=conv_kernel,
                normed=ssm_norm,
            ),
            delta=ops.DeltaShape(
                seq=seq_len, key_heads=delta_key_heads, value_heads=delta_value_heads,
                key_dim=delta_key_dim, value_dim=delta_value_dim, conv=conv_kernel,
            ),
        ),
        mlp=MlpShape(
            seq=seq_len, hidden=hidden, ffn=ffn or 4 * hidden, kind=mlp, bias=biased(mlp_bias),
            fused=fused_gate_up, fused_pointwise=fused_pointwise, fp8_input=fp8_activation_input,
            clamps_apart=clamps_apart, casts=activation_casts,
        ),
        experts=ExpertsShape(
            experts=experts, local=local_experts or experts, top_k=top_k,
            groups=expert_groups, top_groups=top_groups,
            ffn=expert_ffn or ffn or 4 * hidden,
            shared_ffn=shared_ffn, shared_gate=shared_gate, latent=expert_latent,
            bias=expert_bias, apart=expert_apart,
            routed_share=routed_share, rows=expert_rows, permuted=permuted_rows,
            bias_apart=expert_bias_apart, weighed_early=weighed_early,
            regrouped=regrouped_rows, padded_rows=padded_rows,
            fused_experts=fused_experts,
        ),
        residual=residual, norm=norm, norm_bias=norm_bias,
        norm_weight=norm_weight, scaled=scaled_residual,
        scaled_parts=scaled_parts, window=window, drop=dropout > 0,
        adapters=adapters(
            lora_rank, lora_targets, quantised_base, lora_dropout, lora_wide, lora_kernels,
            frozen_inputs,
        ),
    )  # fmt: skip
    windows = pattern_of("window_pattern", window_pattern, "wf", layers)
    routed = pattern_of("expert_pattern", expert_pattern or ("e" if experts else "d"), FED, layers)
    if "e" in routed and not experts:
        raise ValueError("expert_pattern has layers of experts, but experts is 0")
    turned = pattern_of("rope_pattern", rope_pattern, "rn", layers)
    mixers = pattern_of("mixer_pattern", mixer_pattern, "".join(MIXERS), layers)
    order = [
        kind_of(w if window else "f", e, r, x)
        for w, e, r, x in zip(windows, routed, turned, mixers, strict=True)
    ]
    check_mixers(m.mixer, order, residual, kv_rank)
    kinds = list(dict.fromkeys(order))
    width = embedding_width or hidden
    rows = table_rows + (extra_positions if table_rows else 0)
    first = _embeddings(m, vocab, width, rows, scaled_embedding, embedding_norm)
    middle = [layer(m, kind) for kind in kinds]
    check_targets(m.adapters, middle)
    last = _head(
        m, vocab, width, tied, logit_softcap, scaled_logits, final_norm, upcast_loss, loss,
        joined=loss_vocab if gathered_logits else 0, bias=head_bias, metrics=logit_metrics,
    )  # fmt: skip
    if next_tokens and routed[-1] == "n":
        raise ValueError(
            "expert_pattern ends in a layer without feed-forward part: modules "
            "that predict further tokens are not supported then"
        )
    extra = [_next_token(m, vocab, routed[-1] == "e", loss, upcast_loss)] if next_tokens else []
    input_of_layer = Saved(high=m.elems)
    blocks = [
        first.block("embeddings"),
        *(
            body.block(name_of(kind, kinds), boundary=input_of_layer, recomputable=True)
            for kind, body in zip(kinds, middle, strict=True)
        ),
        *(b.block("next token", boundary=input_of_layer, recomputable=True) for b in extra),
        last.block("head"),
    ]
    if attention == "xla":
        blocks = [ops.compiled(b) for b in blocks]
    counts = [1, *(order.count(kind) for kind in kinds), *(next_tokens for _ in extra), 1]
    end = len(blocks) - 1
    built = list(zip([first, *middle, *extra, last], counts, strict=True))
    routed_flop = sum(body.routed_flop * count for body, count in built)
    uneven_flop = routed_flop * (1.0 - 1.0 / expert_rows)
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=tuple(blocks),
        order=(
            0, *(1 + kinds.index(kind) for kind in order), *[end - 1] * next_tokens, end
        ),
        frozen=frozen_parts(built),
        # The experts' rows beyond balanced routing need no weight gradient either.
        frozen_weight_flop=frozen_weight_flop(built)
        - (uneven_flop if m.adapters else 0.0),
        uneven_flop=uneven_flop,
        input_bytes=2.0 * INT64_BYTES * seq_len,  # tokens and labels
        tokens_per_sample=seq_len,
        notes=assumptions(m.adapters),
    )  # fmt: skip
