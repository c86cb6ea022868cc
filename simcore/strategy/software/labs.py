"""Programs that labs write themselves: Aleph Alpha's, Hugging Face's, InternLM's, and others."""

from __future__ import annotations

from dataclasses import replace

from simcore.base.units import MIB
from simcore.strategy.software.megatron import MEGATRON_CORE
from simcore.strategy.software.record import SOFTWARE, Program, Software

#: core/optimizer/allreduce.py: a bucket is joined and cast to fp32, reduced, copied back, all of it
#: called by the optimizer's step (optimizer.py, allreduce_gradients): joined, divided, cast, cast
#: back and copied to its tensors, 24 bytes a parameter read and written; parameter_group.py: all
#: gradients are scaled and their norms taken on every rank (6 bytes), gathered parameters are
#: copied to their partitions from a flat tensor (torch's all_gather of a list, 4); the
#: shard's fp32 gradient is filled tensor by tensor; core/nn/parallel_module/parallel_module.py:
#: each of its modules is checkpointed, norm and head like layers (forward, EVERY_LAYER), and
#: outputs stay in the pipe buffer until their gradient comes, on the last stage until their buffer
#: (of two) is written again; core/nn/mlp.py: gate and up are column-parallel layers apart, of which
#: each copies its input to the tensor ranks (column_parallel_linear.py), and a copy's backward is
#: an all-reduce; core/nn/parallel_module/communicator.py: send_data sends each tensor as it is.
SCALING_SOFTWARE = SOFTWARE.register("scaling")(
    Software(
        name="scaling",
        meaning="Aleph Alpha's scaling: buckets all-reduced in an fp32 copy",
        joins_shard=False, reduce_copy_bytes=4.0, all_reduces=True, late_buckets=True,
        update_passes_bytes=4.0 + 4.0 + 6.0 + 6.0 + 4.0 + 4.0 + 2.0 + 4.0,
        weight_stubs=False, sums_apart=True, head_again=True,
        sent_copies=1, logits_bytes=2.0, whole_sends=True, cut="modules", interleaves=False,
    )
)  # fmt: skip
#: Norms and rotary positions are tensor operations (Hagemann et al. 2023 time a fused RMSNorm
#: against that). Logits of tensor ranks are joined (core/nn/linear, whose products gather their
#: output unless told not to; lm_head.py does not tell), norms gather over the sequence what
#: products then keep (core/nn/norm/rms_norm.py), a gradient's sum is a plain all-reduce
#: (core/nn/linear/utils.py). Dropout is 0.1 by its own example (examples/transformer_example/
#: config.yml: RMSNorm, SwiGLU, no biases, untied, 128,000 tokens; of embeddings, probabilities and
#: after attention and MLP); the paper does not speak of it, and says where the sequence is cut.
SCALING = Program(
    software=SCALING_SOFTWARE, overlap=frozenset(), sequence_parallel=False,
    dropout=0.1,
    settings={
        "norm": "rmsnorm_eager", "fused_pointwise": False, "fused_gate_up": False,
        "gathered_logits": True, "gathered_inputs": True,
    },
)  # fmt: skip

#: models/base.py wraps the model in torch's DDP, whose hook adds a bucket to the fp32 sums
#: (optim/gradient_accumulator.py, where every backward ends with fp32_grad.add_), but not with
#: ZeRO-1 (trainer.py, make_ddp): there the fp32 sums are all-reduced as they are when backward is
#: over (sync_gradients_across_dp, reduce_scatter=False).
NANOTRON_SOFTWARE = SOFTWARE.register("nanotron")(
    Software(
        name="nanotron",
        meaning="nanotron: torch's DDP buckets beside gradients that are summed in fp32",
        all_reduces=True, weight_buckets=True, adds_grads=True, weight_stubs=False, cut="costs",
        interleaves=False,
    )
)  # fmt: skip
#: Norms, rotary positions and gated layers are tensor operations; gate and up are one product
#: (models/llama.py, gate_up_proj; GLUActivation), the loss is over the cut vocabulary;
#: slurm_launcher.py: tp_linear_async_communication=True.
NANOTRON = Program(
    software=NANOTRON_SOFTWARE, overlap=frozenset({"grads", "dgrad"}), late_shards=True,
    wide_grads=True,
    settings={
        "fused_pointwise": False, "fused_gate_up": True, "loss": "vocab_parallel",
        "upcast_loss": False,
    },
)  # fmt: skip

#: internlm/solver/optimizer/hybrid_zero_optim.py: _partition_param_list deals out tensors,
#: reduce_tensor without a dst_rank all-reduces over all data ranks whatever the shard group,
#: broadcast_params; model/linear.py, FeedForward: w1 and w2 are column-parallel layers apart.
INTERNEVO = SOFTWARE.register("internevo")(
    Software(
        name="internevo",
        meaning="InternEvo's hybrid ZeRO-1: gradients all-reduced among all data ranks, tensors "
        "owned whole and broadcast by their owners",
        all_reduces=True, sums_apart=True, whole_tensors=True,
    )
)  # fmt: skip
#: InternLM as of July 2023, with FlashAttention 1.0.5 (doc/en/install.md): rotary positions and the
#: loss are flash-attn's kernels, gate and up products of their own with tensor operations between
#: (model/linear.py, FeedForward), qkv and output have biases (multi_head_attention.py), norms read
#: fp32 and run again in backward (modeling_internlm.py, dropout_selective_checkpoint), where each
#: layer sets sequence_parallel=False; flash-attn's FusedDenseFunc sums up gradients of inputs
#: beside (internlm/model/utils.py). reduce_bucket_size is 512 x 1024 x 1024 elements
#: (configs/7B_sft.py), its AdamW torch's own, pass by pass over one flat tensor.
INTERNLM_2023 = Program(
    software=INTERNEVO, overlap=frozenset({"grads", "dgrad"}), sequence_parallel=False,
    settings={
        "attention": "flash1", "norm": "rmsnorm_again", "loss": "flash", "upcast_loss": False,
        "fused_pointwise": False, "fused_rope": True, "fused_gate_up": False,
        "qkv_bias": True, "out_bias": True,
    },
    options={"bucket_numel": 512 * MIB, "optimizer_impl": "foreach"},
)  # fmt: skip

#: Jiang et al. 2024: a parallel transformer block (3.1), and all traffic overlapped (3.2). Of the
#: gradients' width nothing is said; taken as NVIDIA's recipes have it.
MEGASCALE = replace(
    MEGATRON_CORE, switched=frozenset({"params", "tensor"}), wide_grads=False
).with_settings(residual="parallel_one_norm")
#: Of the kernels of Llama 3's and DeepSeek-V3's own programs nothing is said: both run Hopper's
#: asynchronous products (Meta's engineers are among FlashAttention-3's authors). Messages between
#: stages hide (Llama 3 2024, 3.3.2).
LLAMA3 = Program(overlap=frozenset({"grads", "pipeline"}), settings={"attention": "flash3"})
#: DeepSeek-V3 2024, 3.2.1 (DualPipe, in which experts' exchanges hide), 3.2.2 (a token goes to a
#: node once: DeepEP) and 3.2.3 (what runs again).
DEEPSEEK_V3 = Program(
    overlap=frozenset({"grads", "experts"}), selective="layernorm,mla_up_proj,moe_act",
    settings={"attention": "flash3"},
    options={"schedule": "dualpipe", "dispatcher": "deepep"},
)  # fmt: skip
