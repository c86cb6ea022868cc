"""Megatron-LM from 2021 on, Megatron-Core, and NVIDIA's NeMo and Megatron-Bridge around it."""

from __future__ import annotations

from dataclasses import replace

from simcore.strategy.software.record import RUNS, SOFTWARE, Program, Software, called

#: Each tensor rank sends the next stage all it has (core/pipeline_parallel/p2p_communication.py).
#: Of several chunks a stage: schedules.py raises where micro-batches are no multiple of the stages
#: (until 2024), later where a group of microbatch_group_size_per_vp_stage, at least pp and at most
#: all of them, leaves fewer than pp over.
MEGATRON = SOFTWARE.register("megatron")(
    Software(
        name="megatron",
        meaning="Megatron-Core as NVIDIA's recipes run it",
        whole_sends=True,
        whole_rounds=True,
    )
)
called("megatron", "megatron-core", "mcore", "megatron-bridge", "nemo")
MEGATRON_LM = SOFTWARE.register("megatron-lm")(
    replace(
        MEGATRON,
        name="megatron-lm",
        meaning="Megatron-LM's own scripts as their flags default: of tensor ranks' exchanges "
        "gradients of inputs alone are hidden (--overlap grads,tensor,params where flags say so)",
    )
)
called("megatron-lm", "pretrain-gpt", "megatron-patch", "flagscale")
#: Narayanan et al. 2021, 4.1: tensor ranks send a share each and gather what they receive;
#: p2p_communication.py does where scatter_gather_tensors_in_pipeline is set, until 2023;
#: Megatron-Core's sends whatever a rank has.
SOFTWARE.register("megatron-whole-sends")(
    Software(
        name="megatron-whole-sends",
        meaning="Megatron-LM before its scatter/gather of 2021, and Megatron-Core, which has none: "
        "each tensor rank sends the next stage all, unless the sequence is cut",
        whole_sends=True,
        whole_rounds=True,
    )
)
#: megatron/core/optimizer/__init__.py: with use_precision_aware_optimizer Transformer Engine's Adam
#: gets store_param_remainders=True (from 2.1 on; an option of optimizer_config.py later), and
#: gradients uncast (distrib_optimizer.py, decoupled_grad); NeMo 1 sets the same of apex's
#: distributed_fused_adam (nlp/models/language_modeling/megatron_base_model.py).
PRECISION_AWARE = SOFTWARE.register("precision-aware")(
    Software(
        name="precision-aware",
        meaning="Megatron-Core's precision-aware optimizer and NeMo's distributed_fused_adam: "
        "beside bf16 weights the lower halves of their fp32 masters",
        remainders=True,
        whole_rounds=True,
    )
)

#: Megatron-LM's softmax kernel takes multiples of so many heads and samples of a rank, else tensor
#: operations run instead (megatron/model/fused_softmax.py, is_kernel_available; bigscience's
#: chronicles-prequel.md: "(HEADS/TP)*MBS % 4 = 0").
SCORES_A_BLOCK = 4

#: Before FlashAttention, which came into Megatron-LM in 2023, --overlap-grad-reduce (2023) and
#: sequence parallelism (May 2022, Korthikanti et al.). Gradients are one buffer that is also what
#: is reduced, the loss is over the cut vocabulary, with an fp32 copy in place; dropout is 0.1 by
#: default (arguments.py). q, k and v, gate and up are one product each (core/transformer/
#: attention.py, mlp.py), norms, rotary positions and gated units kernels of their own
#: (core/fusions; Transformer Engine later); experts' rows, which came later, are weighed in their
#: activation (core/transformer/moe/experts.py). Mixers, later still, are of modules (core/ssm).
MEGATRON_2021 = Program(
    issuer="megatron_2022", overlap=frozenset(), grads="fused", sequence_parallel=False,
    dropout=0.1,
    settings={
        "fused_pointwise": True, "fused_qkv": True, "fused_gate_up": True,
        "attention": "fused_softmax", "loss": "vocab_parallel", "upcast_loss": False,
        "weighed_early": True, "mixer_apart": True, "delta_products": 1,
    },
)  # fmt: skip
#: Gradients of inputs are summed up beside the products of weights' gradients, by default since
#: late 2021 (apex pull requests 1183 and 1297 are its code).
MEGATRON_2022 = replace(MEGATRON_2021, overlap=frozenset({"dgrad"}), sequence_parallel=True)
#: With FlashAttention, gradients reduced under backward and interleaved stages' messages beside
#: compute (--no-overlap-p2p-communication turns that off); gradients of bf16 are summed and reduced
#: in fp32 unless --grad-reduce-in-bf16 is given (arguments.py). Published runs are without dropout.
MEGATRON_CORE = replace(
    MEGATRON_2022, issuer="megatron", overlap=frozenset({"grads", "dgrad", "pipeline"}),
    wide_grads=True, dropout=0.0,
).with_settings(attention="flash")  # fmt: skip
#: Transformer Engine takes cuDNN's attention from Hopper on and FlashAttention-2 before
#: (NVIDIA/NeMo pull 9188 says so). Its frozen products keep their normed input (module/
#: layernorm_linear.py: prepare_for_saving).
TRANSFORMER_ENGINE = MEGATRON_CORE.with_settings(attention="cudnn", frozen_inputs=True)
#: NVIDIA's recipes overlap parameters and what tensor ranks exchange too
#: (MegatronCommOverlapCallback; Megatron-Bridge, training/comm_overlap.py).
RECIPES = replace(TRANSFORMER_ENGINE, switched=frozenset({"params", "tensor"}))

#: Recipes for benchmarks let segments grow (Megatron-Bridge, scripts/performance/utils/
#: executors.py; Megatron-MoE-ModelZoo, model_configs/benchmarking).
_GROWING = {"growing_segments": True}
#: And set grad_reduce_in_fp32=False.
NVIDIA = replace(RECIPES, wide_grads=False)
MODEL_ZOO = replace(NVIDIA, options=_GROWING)
#: NeMo's models fuse Megatron-Core's loss (nemo/collections/llm/gpt/model/base.py, GPTConfig:
#: cross_entropy_loss_fusion).
NEMO = NVIDIA.with_settings(loss="vocab_parallel_fused")
NEMO_RECIPES = replace(NEMO, options=_GROWING)
#: NeMo 1's distributed Adam keeps the lower halves of bf16 weights' masters.
NEMO_1 = replace(NEMO_RECIPES, software=PRECISION_AWARE)
#: Weights are held in 8 bits where products have a scale a tensor (mixed_precision.py:
#: fp8_param_gather).
BRIDGE = replace(MODEL_ZOO, fp8_params=True)
#: Its benchmarks take Transformer Engine's loss (scripts/performance/utils/overrides.py:
#: cross_entropy_fusion_impl = "te", of every recipe), and in bf16 the precision-aware optimizer
#: (set_post_overrides), which its FSDP does without.
BRIDGE_BENCHMARKS = BRIDGE.with_settings(loss="in_place")
BRIDGE_BENCHMARKS_BF16 = replace(BRIDGE_BENCHMARKS, software=PRECISION_AWARE)

#: Where nobody says how: the recipes' switches, and Megatron's defaults beside them: recompute is
#: none unless --recompute-granularity is given.
RUN = replace(RECIPES, software=MEGATRON, options={**_GROWING, "recompute": "none"})
for _library in (MEGATRON, PRECISION_AWARE):
    RUNS.register(_library.name)(RUN)
#: megatron/training/arguments.py: --overlap-grad-reduce, --overlap-param-gather and
#: --tp-comm-overlap are off unless given; interleaved stages' messages hide unless
#: --no-overlap-p2p-communication is; --transformer-impl is transformer_engine (since mid-2024). The
#: allocator is PyTorch's default. dialects/megatron.py reads its launch files so.
RUNS.register(MEGATRON_LM.name)(
    replace(
        TRANSFORMER_ENGINE, software=MEGATRON_LM, overlap=frozenset({"dgrad", "pipeline"}),
        options={"recompute": "none"},
    )
)  # fmt: skip
