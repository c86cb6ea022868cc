"""Attention of language models: separate or packed q, k and v; grouped, windowed, or low-rank."""

from __future__ import annotations

from math import gcd

from simcore.base.record import dataclass, replace
from simcore.base.units import FP32_BYTES
from simcore.workload import ops
from simcore.workload.archs.body import Body
from simcore.workload.archs.lm_settings import Attention, Gate, Indexer
from simcore.workload.graph import Affine, Kernel, KernelKind, Op, Workload
from simcore.workload.saved import NOTHING, Saved

#: Kernels of fused attention by name. flash: torch's own choice (cuDNN's on Hopper and data-centre
#: Blackwell, else FlashAttention-2); flash_first: the same before PyTorch 2.10, cuDNN's on
#: Blackwell alone; flash2, flash3, flash4: FlashAttention-2, -3 and -4; flash_newest: the newest of
#: them for the device; cudnn: cuDNN's (Transformer Engine's choice from Hopper on); cudnn_first:
#: the same before cuDNN 9.4, slower on Hopper; cudnn_fp8: cuDNN's in 8 bits where products are (its
#: fp8_dpa); flash1: the first FlashAttention; flash_triton: Triton's implementation of it.
FLASH: dict[str, KernelKind] = {
    "flash": "attention", "flash_first": "attention_flash_first",
    "flash2": "attention_v2", "flash3": "attention_v3", "flash4": "attention_v4",
    "flash_newest": "attention_newest",
    "cudnn": "attention_cudnn", "cudnn_first": "attention_cudnn_first",
    "cudnn_fp8": "attention_cudnn_fp8",
    "flash1": "attention_v1", "flash_triton": "attention_triton",
}  # fmt: skip
#: Attention with scores in memory and a softmax that scales and masks: Megatron-LM's kernel, or
#: XLA's passes.
SCORES = ("fused_softmax", "xla")
#: Megatron-LM's softmax kernel needs a rank's heads times samples to be a multiple of this number;
#: otherwise tensor operations run instead (megatron/model/fused_softmax.py, is_kernel_available;
#: bigscience's chronicles-prequel.md: "(HEADS/TP)*MBS % 4 = 0").
FUSED_SOFTMAX_SCORES = 4


def writes_scores(workload: Workload) -> bool:
    """Whether attention's scores are in memory, for a softmax that may depend on the batch."""
    names = (op.name for block in workload.blocks for op in block.ops)
    return any(name.endswith("attention.scores") for name in names)


def softmax_factor(micro_batch: int) -> int:
    """Micro-batches with the same factor run the same softmax on scores in memory."""
    return gcd(micro_batch, FUSED_SOFTMAX_SCORES)


#: Fused attention with a mask tensor, by name. torch's flash kernel takes none
#: (aten/src/ATen/native/transformers/sdp_utils_cpp.h, check_for_attn_mask), cuDNN's and CUTLASS's
#: read it. masked_first: before PyTorch 2.10, which put cuDNN last.
MASKED: dict[str, KernelKind] = {"masked": "attention_masked", "masked_first": "attention_v1"}
#: All kernels of a decoder's attention. The last two are tensor operations; eager has its softmax
#: in fp32, as transformers does for Llama and later models (``attn_implementation="eager"``).
ATTENTIONS = (*FLASH, *MASKED, *SCORES, "math", "eager")


@dataclass(frozen=True, kw_only=True)
class AttentionShape:
    """One attention layer.

    - ``own``: its settings, complete (``Attention.complete``); ``gate``: those of its gate.
      ``out``: width of the result (0: that of the input).
    - ``inner_norm``: the last product's input passes a norm.
    - ``norm``: kind of the norms of q and k. ``kernel``: one of ``ATTENTIONS``.
    - ``rotated``: elements of a head that have rotary positions (0: none); ``fused``: one kernel
      computes them; ``tables``: ``rope_tables`` of the model.
    - ``drop_joined``: dropout of the output is part of the residual sum's kernel.
    - ``given_kv``: keys and values are those of an earlier layer.
    - ``indexer``: that of the model; ``selects``: this layer has it; ``selected``: tokens that
      attention reads after a selection, 0 without one.
    """

    seq: int
    hidden: int
    own: Attention
    norm: str
    kernel: str
    out: int = 0
    qkv_bias: bool = False
    out_bias: bool = False
    rotated: int = 0
    fused: bool = False
    tables: int = 0
    drop: bool = False
    drop_joined: bool = False
    gate: Gate = Gate()
    inner_norm: bool = False
    indexer: Indexer = Indexer()
    selects: bool = False
    selected: int = 0
    given_kv: bool = False

    @property
    def q_dim(self) -> int:
        return self.own.heads * self.own.head_dim

    @property
    def kv_dim(self) -> int:
        return self.own.kv_heads * self.own.head_dim

    @property
    def v_dim(self) -> int:
        return self.own.kv_heads * self.own.value_dim

    @property
    def out_dim(self) -> int:
        """Width of attention's result."""
        return self.own.heads * self.own.value_dim

    def indexed(self, letter: str) -> AttentionShape:
        """The same layer with sparse attention, by a letter of the index pattern."""
        if not self.indexer.index_heads or letter == "f":
            return self
        return replace(self, selects=letter == "i", selected=self.indexer.index_top)

    def unturned(self) -> AttentionShape:
        """The same layer without rotary positions."""
        own = replace(self.own, qk_norm=self.own.qk_norm and self.own.qk_norm_weight)
        return replace(self, rotated=0, own=own)


def rope_fused(name: str, elems: float) -> Op:
    """Rotary positions in one kernel, which reads and writes each element once each way.

    This is fused_rope of Apex and Transformer Engine, which Megatron-LM's apply_rope_fusion uses.
    """
    kernel = Kernel(kind="elementwise", low=2 * elems)
    return Op(name=name, fwd=(kernel,), bwd=(kernel,))


def rope(name: str, elems: float, passed: float = 0.0, tables: float = 0.0) -> Op:
    """``x cos + rotate_half(x) sin``: forward mul, neg (half), cat, mul, add.

    Backward: two products, neg, the two halves each scattered into zeros, two sums. Nothing is
    saved except the cosines and sines: those of one sequence, which all layers share, or
    ``tables``, elements that this layer keeps. ``passed``: elements without rotary positions, which
    are joined to the others. Heads are strided and cosines and sines are broadcast over them, so
    that most kernels address elements one by one. Under autocast cosines are fp32, and so are
    products and sum, which attention casts; backward casts their gradients.
    """
    fwd = [
        Kernel(
            kind="elementwise",
            low=3 * elems,
            high=5 * elems,
            launches=4.0,
            indexed=3.5 * elems,
            autocasts=elems,
        ),
        Kernel(kind="copy", low=2 * elems, indexed=elems),
    ]
    bwd = [
        Kernel(
            kind="elementwise",
            low=4 * elems,
            high=4 * elems,
            launches=4.0,
            indexed=3.5 * elems,
            autocasts=3 * elems,
        ),
        Kernel(kind="elementwise", low=3 * elems),  # both halves, each written as a full tensor
        Kernel(kind="copy", low=2 * elems, launches=2.0, indexed=elems),
        Kernel(kind="elementwise", low=2 * elems, launches=2.0),  # zeros
    ]
    if passed:
        both = elems + passed  # parts of heads
        fwd.append(Kernel(kind="copy", low=2 * both, indexed=both))
        bwd.append(Kernel(kind="copy", low=3 * both, launches=2.0, indexed=both))
    saved = Saved(high=tables) if tables else NOTHING
    return Op(name=name, fwd=tuple(fwd), bwd=tuple(bwd), saved=saved)


def _project(body: Body, s: AttentionShape, reads: str) -> None:
    q, kv, v = (float(s.seq * width) for width in (s.q_dim, s.kv_dim, s.v_dim))
    apart = s.gate.gated_attention and s.gate.gate_apart
    gate = s.q_dim * (s.gate.gated_attention and not apart)
    if s.own.q_rank:
        _project_from_latent(body, s, reads)
    elif s.own.fused_qkv:
        packed = s.q_dim + gate + s.kv_dim + s.v_dim
        body.linear("qkv", s.seq, s.hidden, packed, bias=s.qkv_bias, reads=reads)
        # The gradients of q, k and v are joined.
        body.add(ops.grad_only("qkv.cat", 2 * s.seq * float(packed), kind="copy"))
    else:
        own = [("v", s.v_dim)] * (s.own.values != "keys")
        for part, width in [("q", s.q_dim + gate), ("k", s.kv_dim), *own]:
            body.linear(part, s.seq, s.hidden, width, bias=s.qkv_bias, reads=reads)
        times, high = 1 + len(own), reads in body.high
        body.add(ops.accumulate("qkv.forks", float(s.seq * s.hidden), times=times, high=high))
        if gate:  # the gradients of both halves are joined
            body.add(ops.grad_only("attention_gate.cat", 4 * q, kind="copy", indexed=2 * q))
    if apart:
        body.linear("attention_gate", s.seq, s.hidden, s.out_dim, reads=reads)
        high = reads in body.high
        body.add(ops.accumulate("attention_gate.fork", float(s.seq * s.hidden), high=high))
    if s.own.qkv_clip:  # backward masks by the input, which is saved
        if s.own.fused_qkv:
            body.add(ops.activation("qkv.clip", q + kv + v))
        else:
            body.add(*(ops.activation(f"{p}.clip", n) for p, n in (("q", q), ("k", kv), ("v", v))))
    if s.own.qk_norm:
        for part, heads in (("q_norm", s.own.heads), ("k_norm", s.own.kv_heads)):
            rows, dim = (
                (1, heads * s.own.head_dim) if s.own.qk_norm_whole else (heads, s.own.head_dim)
            )
            body.norm(
                part, float(s.seq * rows), dim, s.norm, weight=s.own.qk_norm_weight, narrow=True
            )
    if s.own.values != "own":
        many, of_keys = float(s.seq * s.own.kv_heads), s.own.values == "keys"
        if of_keys:
            body.kept.add("k.product")  # which the norm of k saves
            body.add(ops.accumulate("k.product.fork", kv))
        body.norm("v_norm", many, s.own.value_dim, s.norm, weight=False, narrow=True,
                  reads="k.product" if of_keys else "")  # fmt: skip
    wide = {"q", "k", "v"} <= body.high  # attention takes 16 bit
    if wide:
        body.add(ops.brought_to_fp32("v.narrowed", v if s.rotated else q + kv + v))
    if s.rotated and s.fused:
        body.add(rope_fused("rope.q", q), rope_fused("rope.k", kv))
    elif s.rotated:
        share, tables = s.rotated / s.own.head_dim, s.tables / 2 * s.seq * s.rotated
        turned = [
            rope("rope.q", q * share, q * (1 - share), tables),
            rope("rope.k", kv * share, kv * (1 - share), tables),
        ]
        body.add(
            *(ops.in_fp32(op) if wide else op for op in turned),
            # Their gradients are laid out head by head, but products read rows of tokens.
            ops.grad_only("turned.rows", 2 * (q + kv), launches=2, kind="copy", indexed=q + kv),
        )


def _project_from_latent(body: Body, s: AttentionShape, reads: str) -> None:
    """Add q of a latent, and k and v of the input (Step 3; vllm, step3_text.py)."""
    rows = float(s.seq)
    body.linear("q_a", rows, s.hidden, s.own.q_rank, bias=s.qkv_bias, reads=reads)
    body.norm("q_a_norm", rows, s.own.q_rank, s.norm, narrow=True)
    body.linear("q_b", rows, s.own.q_rank, s.q_dim, reads="q_a_norm")
    for part, width in (("k", s.kv_dim), ("v", s.v_dim)):
        body.linear(part, rows, s.hidden, width, bias=s.qkv_bias, reads=reads)
    body.add(ops.accumulate("qkv.forks", rows * s.hidden, times=2, high=reads in body.high))


def _project_queries(body: Body, s: AttentionShape, reads: str) -> None:
    """Add q alone, and the sum of the gradients of keys and values that several layers read."""
    q, kv = float(s.seq * s.q_dim), float(s.seq * (s.kv_dim + s.v_dim))
    body.linear("q", s.seq, s.hidden, s.q_dim, bias=s.qkv_bias, reads=reads)
    if s.own.qk_norm:
        rows = float(s.seq * s.own.heads)
        body.norm("q_norm", rows, s.own.head_dim, s.norm, weight=s.own.qk_norm_weight, narrow=True)
    if s.rotated:
        share = s.rotated / s.own.head_dim
        turned = rope_fused("rope.q", q) if s.fused else rope("rope.q", q * share, q * (1 - share))
        body.add(turned, ops.grad_only("turned.rows", 2 * q, kind="copy", indexed=q))
    body.add(ops.accumulate("kv.shared", kv, times=2))


def _select(body: Body, s: AttentionShape, reads: str) -> None:
    """Add the indexer, which runs forward alone (transformers, DeepseekV32Indexer: no_grad).

    Products of queries, key and weights; scores of all pairs of which the causal half is computed,
    written once in fp32 and read by the search for the largest.
    """
    x, rows = s.indexer, float(s.seq)
    heads, dim = x.index_heads, x.index_dim
    parts = [("q", s.own.q_rank or s.hidden, heads * dim), ("k", s.hidden, dim)]
    if not x.index_norms:
        parts.append(("weights", s.hidden, heads))
    for part, width, out in parts:
        product = ops.linear(f"index.{part}", rows, width, out, input_grad=False, weight_grad=False)
        body.add(Op(name=product.name, fwd=product.fwd))
        body.param(f"index.{part}.weight", width * out)
    if x.index_norms:
        body.param("index.q_norm.weight", dim)
        body.param("index.k_norm.weight", dim)
    else:
        body.param("index.k_norm.weight", dim)
        body.param("index.k_norm.bias", dim)
    pairs, turned = float(s.seq) * s.seq, rows * (heads + 1) * dim
    scores = Kernel(
        kind="gemm", flop=pairs * heads * dim, low=turned, raw_bytes=2.0 * pairs,
        m=Affine(0, rows * heads), n=Affine(rows), k=Affine(dim),
    )  # fmt: skip
    largest = Kernel(kind="reduction", raw_bytes=2.0 * pairs, launches=2.0)
    normed = Kernel(kind="norm", low=2.0 * turned, launches=2.0)
    body.add(
        Op(name="index.norm", fwd=(normed,)),
        Op(name="index.rope", fwd=rope("", turned).fwd),
        Op(name="index.scores", fwd=(scores,)),
        Op(name="index.top", fwd=(largest,)),
    )


def _project_latent(body: Body, s: AttentionShape, reads: str) -> None:
    plain, rows = s.own.head_dim - s.own.rope_dim, float(s.seq)
    if s.own.q_rank:
        body.linear("q_a", rows, s.hidden, s.own.q_rank, bias=s.qkv_bias, reads=reads)
        body.norm("q_a_norm", rows, s.own.q_rank, s.norm, narrow=True)
        body.linear("q_b", rows, s.own.q_rank, s.q_dim, reads="q_a_norm")
    else:
        body.linear("q", rows, s.hidden, s.q_dim, reads=reads)
    body.linear(
        "kv_a", rows, s.hidden, s.own.kv_rank + s.own.rope_dim, bias=s.qkv_bias, reads=reads
    )
    body.norm("kv_a_norm", rows, s.own.kv_rank, s.norm, narrow=True)
    body.linear(
        "kv_b", rows, s.own.kv_rank, s.own.heads * (plain + s.own.value_dim), reads="kv_a_norm"
    )
    turned, kept = rows * s.own.heads * s.rotated, rows * s.own.heads * plain
    body.add(ops.accumulate("qkv.forks", rows * s.hidden))
    keys, values = (rows * s.own.heads * width for width in (s.own.head_dim, s.own.value_dim))
    if s.rotated and s.fused:
        # One kernel turns q in place, another one writes k and v from the latent's product
        # (Megatron-Core, fused_mla_yarn_rope_apply.py).
        split = Kernel(kind="elementwise", low=2 * (keys + values))
        body.add(rope_fused("rope.q", turned), Op(name="rope.kv", fwd=(split,), bwd=(split,)))
        return
    if s.rotated:
        body.add(rope("rope.q", turned, kept), rope("rope.k", rows * s.rotated))
    body.add(
        # The key's parts are written into one tensor, the rotary part once per head; values are
        # strided parts of that product's rows, which attention takes as a tensor of their own.
        ops.copy("kv.expand", keys),
        ops.copy("values", values),
    )


def _repeat_kv(body: Body, s: AttentionShape) -> None:
    """Add copies of k and v for each head of q (transformers, repeat_kv)."""
    if s.own.kv_heads != s.own.heads:
        q, kv = float(s.seq * s.q_dim), float(s.seq * s.kv_dim)
        copies = Kernel(kind="copy", low=2 * (kv + q), launches=2.0, indexed=2 * q)
        sums = Kernel(kind="reduction", low=2 * (kv + q), launches=2.0)
        body.add(Op(name="attention.repeat_kv", fwd=(copies,), bwd=(sums,)))


def _under_a_mask(body: Body, s: AttentionShape) -> None:
    """Add fused attention with a mask tensor.

    All pairs are computed, whatever the mask hides, and each head reads the mask in 16 bit.
    CUTLASS's kernel is assumed to be as fast as the first FlashAttention.
    """
    _repeat_kv(body, s)
    body.add(
        ops.sdpa(
            "attention", 1, s.own.heads, s.own.heads, s.seq, s.seq, s.own.head_dim,
            value_dim=s.own.value_dim, kind=MASKED[s.kernel], drop=s.drop, masked=True,
        )
    )  # fmt: skip


def eager_attention(body: Body, s: AttentionShape, keys: int = 0) -> None:
    """Add attention to ``keys`` keys (0: as many as tokens) in tensor operations."""
    keys = keys or s.seq
    scores = float(s.own.heads) * s.seq * keys
    _repeat_kv(body, s)
    if s.own.attention_softcap:
        body.add(
            ops.scale("attention.cap", scores),
            ops.activation("attention.tanh", scores, saves="output"),
            ops.scale("attention.uncap", scores),
        )
    if s.own.sinks:  # joined as one more key; the row's maximum is subtracted
        shift = Kernel(kind="elementwise", low=2 * scores, indexed=scores)
        body.add(
            ops.copy("attention.sinks", scores),
            Op(
                name="attention.shift",
                fwd=(shift,),
                bwd=(Kernel(kind="elementwise", low=2 * scores),),
            ),
        )
    eager = s.kernel == "eager"
    body.add(
        *ops.attention_eager(
            "attention", s.own.heads, s.seq, keys, s.own.head_dim,
            mask="add_causal" if eager else "where", drop=s.drop, value_dim=s.own.value_dim,
            upcast=eager and not s.own.sinks,  # gpt-oss does not change the scores' type
        )
    )  # fmt: skip
    if s.own.sinks:  # the index of each row's largest score
        rows = float(s.own.heads * s.seq)
        body.add(Op(name="attention.largest", fwd=(), saved=Saved(low=rows, raw_bytes=8.0 * rows)))


def _gate(body: Body, s: AttentionShape) -> None:
    """Add the product of the output and a sigmoid.

    One kernel that saves both (Megatron-LM, attention.py, _apply_output_gate under jit_fuser), or
    tensor operations, of which the first one's output is saved.
    """
    elems = float(s.seq * s.own.heads * s.own.value_dim)
    unsaved = elems * ("context" not in body.kept)
    if s.fused:
        fwd, bwd = (Kernel(kind="elementwise", low=n * elems) for n in (3, 5))
        kept = Saved(low=elems + unsaved)
        body.add(
            Op(name="attention_gate", fwd=(fwd,), bwd=(bwd,), saved=kept, result=Saved(low=elems))
        )
        return
    if not s.gate.gate_apart:
        body.add(ops.copy("attention_gate.rows", elems))
    body.add(
        _gate_activation("attention_gate", elems, s.gate),
        ops.binary("attention_gate.product", elems, saves=unsaved, grads=2),
    )


def _gate_activation(name: str, elems: float, gate: Gate) -> Op:
    """The sigmoid of a gate, or its softplus in fp32 between two casts.

    Softplus saves its fp32 input; the product that follows saves its result in 16 bit.
    """
    if not gate.gate_softplus:
        return ops.activation(f"{name}.sigmoid", elems, saves="output")
    wide = FP32_BYTES * elems
    fwd = Kernel(kind="elementwise", low=2 * elems, raw_bytes=4 * wide, launches=3.0)
    bwd = Kernel(kind="elementwise", low=2 * elems, raw_bytes=5 * wide, launches=3.0)
    return Op(name=f"{name}.softplus", fwd=(fwd,), bwd=(bwd,),
              saved=Saved(low=elems, raw_bytes=wide))  # fmt: skip


def _gate_heads(body: Body, s: AttentionShape, reads: str) -> None:
    """Add the product of each head's output and a sigmoid of its own product of the input."""
    rows, elems = float(s.seq * s.own.heads), float(s.seq * s.out_dim)
    body.linear("head_gate", s.seq, s.hidden, s.own.heads, reads=reads)
    unsaved = elems * ("context" not in body.kept)
    body.add(
        ops.accumulate("head_gate.fork", float(s.seq * s.hidden), high=reads in body.high),
        _gate_activation("head_gate", rows, s.gate),
        ops.binary("head_gate.product", elems, broadcast=rows, saves=unsaved, grads=2),
    )


def attention(body: Body, s: AttentionShape, reads: str, window: int = 0) -> None:
    """Add self-attention of ``reads`` with its output product.

    ``window``: preceding tokens that are attended to; 0: all of them.
    """
    if s.own.sinks:
        body.param("sinks", s.own.heads)
    if s.given_kv:
        _project_queries(body, s, reads)
    else:
        (_project_latent if s.own.kv_rank else _project)(body, s, reads)
    in_fp8 = s.kernel == "cudnn_fp8"  # saves its own 8-bit tensors
    packed = s.own.fused_qkv and s.rotated and not in_fp8 and not s.given_kv
    if s.selects:
        _select(body, s, reads)
    if s.kernel in SCORES:
        body.add(
            *ops.attention_fused_softmax(
                "attention", s.own.heads, s.seq, s.seq, s.own.head_dim, drop=s.drop,
                passes=s.kernel == "xla",
            )
        )  # fmt: skip
    elif s.kernel in FLASH or s.kernel in MASKED:
        if packed and s.own.values_copied:
            body.add(replace(ops.copy("values", float(s.seq * s.v_dim)), bwd=()))
        if s.kernel in MASKED:
            _under_a_mask(body, s)
        else:
            op = ops.sdpa(
                "attention", 1, s.own.heads, s.own.kv_heads, s.seq, s.seq, s.own.head_dim,
                causal=True, value_dim=s.own.value_dim, window=window,
                chunked=s.own.chunked, kind=FLASH[s.kernel], drop=s.drop,
            )  # fmt: skip
            kept_already = Saved(low=float(s.seq * (s.kv_dim + s.v_dim)) * s.given_kv)
            body.add(replace(op, saved=op.saved - kept_already) if s.given_kv else op)
        if s.own.rotary_joined:  # q is laid out head by head, and so is the output
            body.add(ops.copy("context", float(s.seq * s.out_dim)))
        elif not in_fp8:
            body.kept.add("context")
            body.pinned.add("context")
        if packed and not s.own.values_copied:
            # v is a view: the storage of q and k before rotation stays alive too
            body.add(ops.keep("qkv.packed", float(s.seq * (s.q_dim + s.kv_dim))))
    else:
        eager_attention(body, s)
    last = "gated" if s.gate.gated_attention or s.gate.head_gate else "context"
    if s.gate.gated_attention:
        _gate(body, s)
    if s.gate.head_gate:
        _gate_heads(body, s, reads)
    if s.inner_norm:
        body.norm("attention.inner_norm", s.seq, s.out_dim, s.norm, reads=last, narrow=True)
        last = "attention.inner_norm"
    body.linear("attention.out", s.seq, s.out_dim, s.out or s.hidden, bias=s.out_bias, reads=last)
    if s.drop and not s.drop_joined:
        body.add(ops.dropout("attention.dropout", float(s.seq * s.hidden)))
