"""Settings of language models: facts of the published model by part, and how a program runs it.

Zero: the usual value, where a docstring says so. Patterns of letters repeat over the layers.
"""

from __future__ import annotations

from dataclasses import field

from simcore.base.record import dataclass, replace
from simcore.workload.archs import head_width


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of the whole model, and what all its parts share.

    ``bias``: products have a bias, unless a part says otherwise. ``dropout``: of the residual.
    """

    layers: int
    hidden: int
    vocab: int
    seq_len: int
    bias: bool = True
    dropout: float = 0.0

    def biased(self, own: bool | None) -> bool:
        """Whether products have a bias, where their part says ``own``."""
        return self.bias if own is None else own


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Attention: q, k and v separate or packed, grouped, windowed, or from latents.

    - ``kv_heads``: 0 means as many as ``heads``; ``head_dim`` (width of a head of q and k): 0 means
      hidden / heads; ``value_dim`` (of v): 0 means ``head_dim``.
    - ``kv_rank`` > 0: k and v come from a latent of that width (multi-head latent attention,
      DeepSeek-V2 2024). ``q_rank`` > 0: q comes from one of that width (Step 3 too). ``rope_dim``
      elements of ``head_dim`` then have positions, if there are any, and all heads share one key's.
    - ``qkv_bias``, ``out_bias``: None means ``bias``. ``fused_qkv``: q, k and v are one product.
      ``qkv_clip``: they are clamped (DBRX). ``values_copied``: of one product attention takes a
      copy of v, not a view that keeps all of it (Transformer Engine).
    - ``rotary_share``: fraction of each head with rotary positions; ``rotary_joined``: these
      elements are written together with the others into a new tensor. ``rope_pattern``: ``r``
      rotary positions, ``n`` none (nor norms of q and k without weight).
    - ``qk_norm``: q and k pass norms, with a weight (``qk_norm_weight``; Llama 4's have none), over
      all heads (``qk_norm_whole``, OLMo 2) or over each.
    - ``window_pattern``: ``w`` attends to ``window`` tokens (``chunked``: within chunks of them),
      ``f`` to all. ``attention_softcap``: scores are capped. ``sinks``: heads have a learned one.
    - ``values``: ``own``; ``normed`` by a norm without weight; ``keys``: k's product, so normed, in
      layers without a window, and their own normed ones in the others (Gemma 4).
    - ``shared_kv_layers``: last layers that use an earlier one's keys and values (Gemma 3n, 4).
    """

    heads: int
    kv_heads: int = 0
    head_dim: int = 0
    value_dim: int = 0
    q_rank: int = 0
    kv_rank: int = 0
    rope_dim: int = 0
    fused_qkv: bool = True
    qkv_clip: bool = False
    values_copied: bool = False
    qkv_bias: bool | None = None
    out_bias: bool | None = None
    rotary_share: float = 1.0
    rotary_joined: bool = False
    rope_pattern: str = "r"
    qk_norm: bool = False
    qk_norm_weight: bool = True
    qk_norm_whole: bool = False
    window: int = 0
    window_pattern: str = "w"
    chunked: bool = False
    attention_softcap: bool = False
    sinks: bool = False
    values: str = "own"
    shared_kv_layers: int = 0

    def complete(self, sizes: Sizes) -> Attention:
        """The same with values for what has none. Raises ValueError for heads that do not fit."""
        head_dim = self.head_dim or head_width(sizes.hidden, self.heads)
        kv_heads = self.kv_heads or self.heads
        if self.heads % kv_heads:
            raise ValueError(f"heads {self.heads} is not a multiple of kv_heads {kv_heads}")
        return replace(
            self, kv_heads=self.heads if self.kv_rank else kv_heads, head_dim=head_dim,
            value_dim=self.value_dim or head_dim,
        )  # fmt: skip

    @property
    def rotated(self) -> int:
        """Elements of ``head_dim`` with rotary positions, in a model that has these."""
        return self.rope_dim if self.kv_rank else int(self.head_dim * self.rotary_share)


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What multiplies attention's output before its last product.

    - ``gated_attention``: a sigmoid of a second result of q's product (Qwen3-Next); ``gate_apart``:
      of a product of its own (Trinity). ``head_gate``: that of a narrow product, one number for
      each head (Step 3.5). ``gate_softplus``: softplus in fp32 instead of the sigmoid (Laguna).
    """

    gated_attention: bool = False
    gate_apart: bool = False
    head_gate: bool = False
    gate_softplus: bool = False


@dataclass(frozen=True, kw_only=True)
class Windowed:
    """What layers with a window have of their own in attention; 0 means: as the other layers.

    ``full_sinks``: where layers have sinks, those without a window have them too (not in MiMo-V2).
    """

    windowed_heads: int = 0
    windowed_kv_heads: int = 0
    windowed_head_dim: int = 0
    windowed_rotary_share: float = 0.0
    full_sinks: bool = True

    def of(self, own: Attention) -> Attention:
        """The attention of layers with a window. Raises ValueError for heads that do not fit."""
        heads = self.windowed_heads or own.heads
        kv_heads = self.windowed_kv_heads or own.kv_heads
        if heads % kv_heads:
            wrong = f"windowed_heads {heads} is not a multiple of windowed_kv_heads {kv_heads}"
            raise ValueError(wrong)
        head_dim = self.windowed_head_dim or own.head_dim
        return replace(
            own, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
            value_dim=self.windowed_head_dim or own.value_dim,
            rotary_share=self.windowed_rotary_share or own.rotary_share,
            values="normed" if own.values == "keys" else own.values,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Indexer:
    """Sparse attention: an indexer scores all preceding tokens, of which attention reads the best.

    - ``index_heads`` narrow heads (0: there is no indexer) of ``index_dim`` elements with one key
      for all of them; ``index_top``: number of tokens that attention then reads (DeepSeek-V3.2).
    - ``index_norms``: the indexer's q and k pass norms, and its scores are not weighted by a
      product of the input but pooled over blocks of keys (MiniMax-M3).
    - ``index_pattern``: ``i`` the layer has an indexer, ``s`` it takes the selection of an earlier
      layer (GLM-5), ``f`` it attends to all tokens.
    """

    index_heads: int = 0
    index_dim: int = 128
    index_top: int = 2048
    index_norms: bool = False
    index_pattern: str = "i"


@dataclass(frozen=True, kw_only=True)
class Compressed:
    """Attention to a window and to compressed keys, which are the values too (DeepSeek-V4).

    - ``compress_pattern``: ``w`` a window alone; ``h`` also one entry for each ``heavy_rate``
      tokens; ``s`` also those that an indexer selects of one for each ``sparse_rate`` tokens, each
      of twice as many tokens. Empty: ordinary attention.
    - ``out_groups``, ``out_rank``: the output is divided into groups, each of which passes a
      product of its own to that width, before the last product.
    """

    compress_pattern: str = ""
    sparse_rate: int = 4
    heavy_rate: int = 128
    out_groups: int = 1
    out_rank: int = 0


@dataclass(frozen=True, kw_only=True)
class Streams:
    """Several residual streams (manifold-constrained hyper-connections, DeepSeek-AI 2025).

    - ``streams``: their number; 1: the usual residual.
    - ``stream_rounds``: rounds that normalise the matrix which mixes streams (Sinkhorn-Knopp); 0:
      streams are not mixed (Hunyuan 4).
    - ``alternating``: the layer computes the first stream alone, from which the others are
      predicted and corrected (AltUp, Gemma 3n), with a narrow branch of ``branch_rank`` elements
      beside attention (LAuReL).
    """

    streams: int = 1
    stream_rounds: int = 0
    alternating: bool = False
    branch_rank: int = 0


@dataclass(frozen=True, kw_only=True)
class FeedForward:
    """Dense feed-forward layers.

    ``ffn``: their width; 0 means 4 hidden. ``ffn_widths``: each layer's, separated by blanks, where
    they differ. ``mlp``: ``gelu`` is one fused kernel, ``gelu_new`` eight. ``mlp_bias``: None means
    ``bias``. ``fused_gate_up``: gate and up are one product. ``sparse_layers``: first layers whose
    gate keeps its largest elements alone (Gemma 3n).
    """

    ffn: int = 0
    ffn_widths: str = ""
    mlp: str = "gelu"
    mlp_bias: bool | None = None
    fused_gate_up: bool = False
    sparse_layers: int = 0

    def widths(self, layers: int) -> tuple[int, ...]:
        """A width for each layer, 0 for ``ffn``. Raises ValueError for another number of them."""
        listed = self.ffn_widths.split()
        if listed and (len(listed) != layers or not all(w.isdigit() for w in listed)):
            raise ValueError(f"ffn_widths must be a whole number for each of {layers} layers")
        return tuple(map(int, listed)) or (0,) * layers


@dataclass(frozen=True, kw_only=True)
class Experts:
    """A mixture of ``experts``, of which a token takes ``top_k``.

    - ``expert_ffn``: width of an expert; 0: ``ffn``. ``expert_bias``: they and the router have one.
    - ``expert_groups``: groups of experts; a token's experts are in ``top_groups`` of these.
    - ``shared_ffn``: width of the layer that all tokens pass; ``shared_gate``: a sigmoid scales it.
    - ``expert_latent``: width to which rows are projected before dispatch, and from which after
      combination (0: as wide as the model; Nemotron 3 Super; Megatron-Core, moe_layer.py).
    - ``zero_experts``: experts that return their input, among which the router chooses too
      (LongCat-Flash 2025): of ``top_k`` choices only the share ``experts / (experts +
      zero_experts)`` is computed, with balanced routing.
    - ``expert_norm``: the mixture's result passes a norm (A.X K1). ``expert_pattern``: ``e``
      experts, ``d`` dense, ``n`` neither; empty: experts if there are any.
    - ``expert_tokens``: tokens that an expert computes: chosen, those that chose it;
      chosen_weighed, the same in a model that multiplies an expert's input by the routing weight
      (Llama 4); all, so that those that did not choose it are zeros (transformers,
      modeling_llama4.py, Llama4TextMoe.forward).
    """

    experts: int = 0
    top_k: int = 2
    expert_ffn: int = 0
    expert_bias: bool = False
    expert_groups: int = 1
    top_groups: int = 1
    shared_ffn: int = 0
    shared_gate: bool = False
    expert_latent: int = 0
    zero_experts: int = 0
    expert_norm: bool = False
    expert_pattern: str = ""
    expert_tokens: str = "chosen"

    @property
    def choices(self) -> int:
        """Experts among which the router chooses."""
        return self.experts + self.zero_experts

    @property
    def computed_top_k(self) -> float:
        """Experts that compute a token, with balanced routing."""
        return self.top_k * self.experts / self.choices if self.zero_experts else self.top_k

    @property
    def rows_over_chosen(self) -> float:
        """Rows that experts compute over those that chose them."""
        every = self.experts and self.expert_tokens == "all"
        return self.experts / self.top_k if every else 1.0

    def check(self) -> None:
        """Raises ValueError if a token cannot take ``top_k`` experts."""
        experts, groups, top = self.experts, self.expert_groups, self.top_groups
        if experts and not 1 <= self.top_k <= self.choices:
            raise ValueError(f"top_k {self.top_k} is not within 1..{self.choices} experts")
        if not 1 <= top <= groups:
            raise ValueError(f"top_groups {top} is not within 1..{groups} expert_groups")
        if experts % groups:
            raise ValueError(f"experts {experts} is not a multiple of expert_groups {groups}")
        if experts and top < groups and self.top_k > experts // groups * top:
            raise ValueError(f"top_k {self.top_k} is more than {top} of {groups} groups hold")


@dataclass(frozen=True, kw_only=True)
class Norms:
    """Norms and sums of the residual stream.

    - ``norm``: layernorm, rmsnorm (one kernel; rmsnorm_again: of a cast input, made once more in
      backward), or in tensor operations layernorm_eager, rmsnorm_eager and rmsnorm_eager_wide,
      which multiplies by the weight before it casts back to 16 bit (Gemma, OLMo 2).
    - ``norm_bias``, ``norm_weight``: norms have one (OLMo's have no weight). ``final_norm``: there
      is one before the head.
    - ``residual``: serial, parallel (parallel_one_norm: both parts read one norm), sandwich (norms
      before and after each half, Gemma 2) or after (only after it, OLMo 2; layers with a recurrent
      mixer are serial, OLMo Hybrid).
    - ``inner_norms``: inputs of attention's and feed-forward's last products pass norms (BitNet).
    - ``scaled_residual``: sums are multiplied by a constant (Granite); ``scaled_parts``: so are
      inputs and results of a layer's parts (Falcon-H1); ``scaled_layer``: its result (Gemma 4).
    """

    norm: str = "layernorm"
    norm_bias: bool = True
    norm_weight: bool = True
    final_norm: bool = True
    residual: str = "serial"
    scaled_residual: bool = False
    scaled_parts: bool = False
    scaled_layer: bool = False
    inner_norms: bool = False

    @property
    def is_parallel(self) -> bool:
        """Whether both parts of a layer read the layer's input."""
        return self.residual in ("parallel", "parallel_one_norm")


@dataclass(frozen=True, kw_only=True)
class Mixers:
    """Mixers that replace attention or run beside it; sizes of those that no layer has are unused.

    - ``mixer_pattern``: ``a`` attention, ``m`` Mamba-2, ``h`` both in parallel, ``s`` Mamba-1,
      ``g`` gated DeltaNet, ``k`` the same with decays by channel (Kimi Delta Attention), ``l``
      lightning attention with attention's heads (MiniMax-01), ``c`` a gated short convolution
      (LFM2), ``n`` none.
    - ``ssm_``: Mamba-2 (``ops.SsdShape``); ``ssm_norm``: it has a gated norm (without one, as in
      Falcon-H1, the scan applies the gate), and Mamba-1 norms of steps, B and C; ``ssm_inner``,
      ``ssm_rank``: Mamba-1's widths.
    - ``delta_``: gated DeltaNet (``ops.DeltaShape``); ``delta_products``: number of products into
      which its first one is split: 1 (Megatron-Core), 2 (Qwen3-Next: q, k, v and gate; b and a),
      4 (Qwen3.5: q, k and v; gate; b; a) or 6 (OLMo Hybrid: q; k; v; gate; b; a);
      ``delta_wide_gates``: decays and gate of ``k`` come from one product each, not from two narrow
      ones (Ling 3).
    """

    mixer_pattern: str = "a"
    ssm_heads: int = 0
    ssm_head_dim: int = 64
    ssm_state: int = 128
    ssm_groups: int = 1
    ssm_chunk: int = 256
    ssm_norm: bool = True
    ssm_inner: int = 0
    ssm_rank: int = 0
    delta_key_heads: int = 0
    delta_value_heads: int = 0
    delta_key_dim: int = 128
    delta_value_dim: int = 128
    delta_products: int = 2
    delta_wide_gates: bool = False
    conv_kernel: int = 4
    conv_bias: bool = True


@dataclass(frozen=True, kw_only=True)
class Ends:
    """Embedding and head.

    - ``max_positions``: rows of a table of learned positions (0: ``seq_len``), without
      ``extra_positions`` that are not used. ``embedding_width``: 0 means hidden.
    - ``rope_tables``: sines and cosines of its samples' positions that each layer looks up, for q
      and for k (4), and keeps for backward; 0: one sequence's serve all layers.
    - ``tied``: the head's weight is the embedding's. ``scaled_embedding``, ``scaled_logits``:
      multiplied by a constant (Granite). ``logit_softcap``: logits are capped.
    - ``next_tokens``: multi-token prediction modules after the last layer.
    - ``layer_input``: width of what each layer reads of a second table of embeddings, with
      ``layer_input_vocab`` rows (0: ``vocab``; Gemma 3n and 4).
    """

    positions: str = "learned"
    max_positions: int = 0
    extra_positions: int = 0
    rope_tables: int = 0
    embedding_norm: bool = False
    embedding_width: int = 0
    scaled_embedding: bool = False
    tied: bool = True
    head_bias: bool = False
    scaled_logits: bool = False
    logit_softcap: bool = False
    next_tokens: int = 0
    layer_input: int = 0
    layer_input_vocab: int = 0


@dataclass(frozen=True, kw_only=True)
class LanguageModel:
    """The published model, by part."""

    attention: Attention
    sizes: Sizes
    gate: Gate = field(default_factory=Gate)
    windowed: Windowed = field(default_factory=Windowed)
    indexer: Indexer = field(default_factory=Indexer)
    compressed: Compressed = field(default_factory=Compressed)
    streams: Streams = field(default_factory=Streams)
    feed_forward: FeedForward = field(default_factory=FeedForward)
    experts: Experts = field(default_factory=Experts)
    norms: Norms = field(default_factory=Norms)
    mixers: Mixers = field(default_factory=Mixers)
    ends: Ends = field(default_factory=Ends)


@dataclass(frozen=True, kw_only=True)
class ExpertKernels:
    """How a program runs routed experts.

    - ``expert_apart``: gate and up are two products. ``expert_bias_apart``: the last product's bias
      is multiplied by routing weights and added expert by expert, in tensor operations.
    - ``fused_experts``: the activation is in the products' kernels, one for all experts;
      ``joint_experts`` products: one kernel computes a product of all (torch's grouped_mm);
      looked_up: between PyTorch's look-ups of rows; ``experts_in_turn``: a Python loop runs one
      after the other. ``expert_tile``: rows of a tile of joint products whose tiles do not begin
      with an expert's rows, so that tiles across an edge are computed twice (megablox on TPUs).
    - ``weighed_early``: the activation weighs rows, not combination (Megatron-Core).
      ``regrouped_rows``: rows come by sender and are sorted by expert again. ``padded_rows``: those
      of each expert are copied to whole blocks of scales, and back. ``waits_for_counts``: the host
      reads how many rows each has before it issues kernels.
    """

    expert_apart: bool = False
    fused_experts: bool = False
    joint_experts: str = "none"
    expert_tile: int = 0
    experts_in_turn: bool = False
    expert_bias_apart: bool = False
    weighed_early: bool = False
    regrouped_rows: bool = False
    padded_rows: bool = False
    waits_for_counts: bool = False


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """How a training program runs the model.

    - ``attention``: flash (torch's choice: cuDNN's on Hopper and data-centre Blackwell, else
      FlashAttention-2), flash_first (the same before PyTorch 2.10: cuDNN's on Blackwell alone),
      flash2, flash3, flash4, cudnn, cudnn_first (before 9.4; faster from Hopper on), flash_newest
      (2, 3 or 4, by device), flash1 and flash_triton (older), masked (torch's with a mask tensor),
      fused_softmax (scores in memory, Megatron-LM's), xla (the same in XLA's fusions) or math.
    - ``fused_pointwise``: rotary positions, gated activations, and bias, dropout and residual sum
      are one kernel each (Megatron-LM, Transformer Engine, or a compiler), not tensor operations;
      ``fused_rope``: so for positions alone.
    - ``fp8_activation_input``: gated activations save their input in 8 bits; ``activation_casts``:
      they write their result and gradient in the format of the products that read them (Transformer
      Engine, pytorch/ops/basic/activation.py under its operation fuser); ``clamps_apart``: they do
      not include their clamps; ``gradients_in_place``: of dense layers, they write the gradients of
      gate and up over these (Liger-Kernel, ops/swiglu.py and geglu.py).
    - ``mixer_apart``: norm and last product of Mamba-2 are modules (Megatron-Core), not its scan.
    - ``loss``: eager (tensor operations, the logits held until backward ends; eager_freed: until it
      begins), parallel (torch's loss_parallel, of tensor ranks), vocab_parallel (Megatron-LM's, in
      place in fp32; vocab_parallel_fused: compiled; vocab_parallel_copied: with a second fp32
      tensor, nanotron), in_place (Transformer Engine's: forward overwrites the logits with their
      gradient), flash (flash-attn's: backward does), compiled (no fp32 copy; compiled_chunks: an
      eighth of the logits at a time, torchtune), chunked (Liger's) or embedding (of texts by their
      last tokens, without a head); ``upcast_loss``: in fp32.
    - ``gathered_logits``: tensor ranks join their parts of the logits, and each computes the loss
      of the whole vocabulary (``loss_vocab``, if this rank's part is smaller). ``logit_metrics``:
      cross entropies of the logits beside the loss, for logs.
    - ``gathered_inputs``: inputs of products that sequence parallelism gathers are saved whole.
    - ``padded_vocab``: the vocabulary is padded, so that rows of the logits are aligned.
      ``head_in_format``: the head computes in the format of the layers' products (Megatron-Core:
      fp8_output_proj), not in 16 bit.
    """

    attention: str = "flash"
    fused_pointwise: bool = False
    fused_rope: bool | None = None
    fp8_activation_input: bool = False
    activation_casts: bool = False
    clamps_apart: bool = False
    gradients_in_place: bool = False
    experts: ExpertKernels = field(default_factory=ExpertKernels)
    mixer_apart: bool = False
    loss: str = "eager"
    upcast_loss: bool = False
    gathered_logits: bool = False
    loss_vocab: int = 0
    logit_metrics: int = 0
    gathered_inputs: bool = False
    padded_vocab: bool = False
    head_in_format: bool = False

    @property
    def rope_is_fused(self) -> bool:
        """Whether rotary positions are one kernel."""
        return self.fused_pointwise if self.fused_rope is None else self.fused_rope

    @property
    def pads_products(self) -> bool:
        """Whether rows of the logits are aligned. XLA pads them (cublas_pad_for_gemms.cc)."""
        return self.padded_vocab or self.attention == "xla"

    @property
    def compiled(self) -> bool:
        """Whether casts are part of the kernels next to them."""
        return self.fused_pointwise or self.attention == "xla"
