"""What the software of each source of ``llm.csv`` was, where its rows do not say it."""

from __future__ import annotations

import re

from simcore.base.units import MIB
from simcore.engine.options import Options
from simcore.workload.models import Scalar

#: Sources whose software (2020 to early 2023) materialises attention scores: FlashAttention came
#: in mid-2022 and into Megatron-LM in 2023. zero-bubble: its Table 1 counts sb(34h + 5as) bytes of
#: activations a layer (Qi et al. 2023), scores and dropout masks in them.
MATERIALISED = (
    "vtrain", "bigscience-bloom", "bigscience-v100", "megatron-sc21-a100", "megatron-jan21-a100",
    "megatron-v2-tables", "megatron-gpt3-example", "korthikanti-recompute", "mt-nlg-530b",
    "deepspeed-azure-zero3", "zero-bubble",
)  # fmt: skip
#: Megatron-LM's softmax kernel takes multiples of so many heads and samples of a rank, else tensor
#: operations run instead (megatron/model/fused_softmax.py, is_kernel_available; bigscience's
#: chronicles-prequel.md: "(HEADS/TP)*MBS % 4 = 0").
SCORES_A_BLOCK = 4
#: Sources whose framework runs rotary positions, norms and gated layers as tensor operations:
#: Aleph Alpha (Hagemann et al. 2023 time a fused RMSNorm against that), nanotron.
TENSOR_OPERATIONS = ("aleph-alpha", "huggingface-nanotron")
#: Sources whose models have q, k, v, gate and up as products of their own.
APART = ("pytorch-torchtitan", "stas00-ml-engineering")
#: llm-foundry's recipes of 2023 set attn_impl: triton, a Triton port of the first FlashAttention.
TRITON_FLASH = ("mosaicml-llm-foundry",)
#: Sources on Transformer Engine, which takes cuDNN's attention from Hopper on and
#: FlashAttention-2 before (NVIDIA/NeMo pull 9188 says so). MLPerf's on AMD run their own kernels,
#: for which nothing else than the device's own figure is known.
TRANSFORMER_ENGINE = (
    "nvidia-megatron-bridge", "bridge-skills", "nvidia-nemo-docs", "nvidia-dgxc-benchmarking",
    "moe-modelzoo", "megatron-lm-llama-fp8", "megatron-lm-h100", "nemotron4-340b", "mlperf-gpt3",
    "mlperf-llama405b", "mlperf-llama8b", "mlperf-lora70b", "simumax-b200", "kwai-megatron",
)  # fmt: skip
#: stas00 says FlashAttention-3 of its H200. Of DeepSeek-V3's and Llama 3's own kernels nothing is
#: said: both run Hopper's asynchronous products (Meta's engineers are among the third's authors).
FLASH3 = ("stas00-ml-engineering", "deepseek-v3-report", "llama3-paper")
#: Sources whose gradients are reduced after backward, in one piece: Megatron-LM before 2023 had no
#: --overlap-grad-reduce; DeepSpeed's pipeline engine reduces after the last micro-batch, and Aleph
#: Alpha's library after accumulation.
LATE_REDUCTION = (
    "vtrain", "bigscience-bloom", "bigscience-v100", "megatron-sc21-a100", "megatron-jan21-a100",
    "megatron-v2-tables", "megatron-gpt3-example", "korthikanti-recompute", "mt-nlg-530b",
    "zero-bubble", "aleph-alpha", "deepspeed-azure-zero3",
)  # fmt: skip
#: Sources that do so with a sharded optimizer alone: nanotron (trainer.py, make_ddp).
LATE_SHARDED = ("huggingface-nanotron",)
#: Sources whose recipes overlap all they can: NVIDIA's (NeMo, Megatron-Bridge, DGX Cloud: their
#: communication settings turn tensor, gradient and parameter overlap on) and Megatron-Core's table.
RECIPES = (
    "nvidia-megatron-bridge", "bridge-skills", "nvidia-nemo-docs", "nvidia-dgxc-benchmarking",
    "moe-modelzoo", "megatron-lm-h100", "megatron-lm-llama-fp8",
)  # fmt: skip
#: MLPerf's words for overlaps.
OVERLAPS = {
    "TP_COMM_OVERLAP": "tensor", "OVERLAP_GRAD_REDUCE": "grads", "OVERLAP_PARAM_GATHER": "params",
}  # fmt: skip
#: Sources that say their pipeline is interleaved and not by how much: one layer a chunk, as
#: Megatron-LM's and Meta's largest runs have (Narayanan et al. 2021 2.2; Llama 3 2024, 3.3.2).
INTERLEAVED = ("llama3-paper", "megatron-lm-h100", "nemotron4-340b")
#: Sources without sequence parallelism where the row does not state it: it came in May 2022
#: (Korthikanti et al.), these programs are older or, with Aleph Alpha's, say where it is on.
#: InternLM's of July 2023 sets sequence_parallel=False in each layer (modeling_internlm.py).
NO_SEQUENCE = (
    "aleph-alpha", "vtrain", "bigscience-bloom", "bigscience-v100", "deepspeed-azure-zero3",
    "megatron-sc21-a100", "megatron-jan21-a100", "megatron-v2-tables", "megatron-gpt3-example",
    "mt-nlg-530b", "internlm-internevo",
)  # fmt: skip
#: Sources whose gradients accumulate and are reduced in fp32: Megatron-LM does with bf16 unless
#: told --grad-reduce-in-bf16 (arguments.py), and two that say so. NVIDIA's benchmark recipes
#: (NeMo, Megatron-Bridge, MLPerf) set grad_reduce_in_fp32=False; fp16 keeps the weights' width.
MAIN_GRADS_FP32 = (
    "huggingface-nanotron", "simumax-b200", "megatron-lm-h100", "megatron-lm-llama-fp8",
    "kwai-megatron", "pytorch-torchtitan",
)  # fmt: skip
#: Sources on Megatron-LM: gradients are one buffer that is also what is reduced, the loss is its
#: vocab-parallel one; their mixtures (2025 on) weigh rows in the experts' activation
#: (megatron/core/transformer/moe/experts.py). Of nanotron's own program the loss alone is alike
#: (fp32 copy, in place).
MEGATRON = (
    "nvidia-megatron-bridge", "bridge-skills", "nvidia-nemo-docs", "nvidia-dgxc-benchmarking",
    "moe-modelzoo", "megatron-lm-llama-fp8", "megatron-lm-h100", "megatron-sc21-a100",
    "megatron-jan21-a100", "megatron-gpt3-example", "megatron-v2-tables", "korthikanti-recompute",
    "megascale", "nemotron4-340b", "mt-nlg-530b", "mlperf-gpt3", "mlperf-llama405b",
    "mlperf-llama8b", "mlperf-lora70b", "simumax-b200", "simumax-a100pcie", "zero-bubble",
    "kwai-megatron", "vtrain", "bigscience-bloom", "bigscience-v100",
)  # fmt: skip
#: Sources whose products sum up the gradient of their input beside the product of their weight's
#: gradient: Megatron-LM by default since late 2021 (apex pull requests 1183 and 1297 are its code),
#: Transformer Engine's, flash-attn's FusedDenseFunc in InternEvo (internlm/model/utils.py), and
#: nanotron (slurm_launcher.py: tp_linear_async_communication=True). Not Aleph Alpha's scaling
#: (core/nn/linear/utils.py: a plain all-reduce), nor programs older than that.
DGRAD = (
    *(s for s in MEGATRON if s not in NO_SEQUENCE), "internlm-internevo", "huggingface-nanotron",
)  # fmt: skip
#: Sources whose interleaved pipelines send beside compute: Megatron-LM's programs since 2023 (as
#: above; zero-bubble's own script says --no-overlap-p2p-communication), NVIDIA's recipes turn it on
#: wherever there are chunks (Megatron-Bridge, training/comm_overlap.py), Llama 3 2024, 3.3.2.
MESSAGES = (*(s for s in MEGATRON if s not in LATE_REDUCTION), "llama3-paper")
DEEPSPEED = ("bigscience-bloom", "bigscience-v100", "vtrain", "deepspeed-azure-zero3")
#: Programs on NeMo.
NEMO = (
    "nvidia-nemo-docs",
    "nvidia-dgxc-benchmarking",
    "mlperf-gpt3",
    "mlperf-llama405b",
    "mlperf-llama8b",
    "mlperf-lora70b",
)
#: Megatron-Bridge's benchmarks take Transformer Engine's loss (scripts/performance/utils/
#: overrides.py: cross_entropy_fusion_impl = "te", of every recipe).
#: NeMo's models fuse Megatron-Core's (nemo/collections/llm/gpt/model/base.py, GPTConfig:
#: cross_entropy_loss_fusion).
LOSS = {
    **dict.fromkeys(MEGATRON, "vocab_parallel"), "huggingface-nanotron": "vocab_parallel",
    **dict.fromkeys(NEMO, "vocab_parallel_fused"),
    "nvidia-megatron-bridge": "in_place", "simumax-b200": "in_place",
    "pytorch-torchtitan": "compiled", "stas00-ml-engineering": "chunked",
    "mosaicml-llm-foundry": "compiled",
    "internlm-internevo": "flash",
}  # fmt: skip
#: torchtitan's loss is compiled since early 2025 (pull request 1033), and cast to fp32 before.
LOSS_COMPILED = "202502"
DATED = re.compile(r"(?<=_)20\d{4}(?=_)")
#: BLOOM's jobs set CUDA_LAUNCH_BLOCKING=1: "do not remove or the training will hang"
#: (bigscience, train/tr11-176B-ml/setup-test-n2.slurm).
LAUNCH_BLOCKING = ("bigscience-bloom",)
#: What NCCL gets of the network of a node, Gbit/s, where a source measured that apart from its
#: runs. BLOOM's nodes have four Omni-Path adapters of 100, of which a communicator takes one: 40.5
#: from 2.10.3 between 4 nodes of 8 A100 (bigscience, experiments/bandwidth: all_reduce_bench-a100-
#: n4.txt, busbw; "an issue with nccl that doesn't fully utilize Intel OPA full bandwidth").
#: Four groups or more keep all four busy, as tensor ranks' are: each GPU takes the nearest.
NODE_GBIT_PER_S = {"bigscience-bloom": 4 * 40.5}
#: Machines of sources whose rows name them: nanotron's, of Hugging Face's cluster at AWS.
NODES = {"huggingface-nanotron": "p5-aws"}
#: What a source's memory is: the framework's peak of tensors (allocated) or of segments (reserved,
#: torchtitan's metrics.py prints it; stas00 says so), or nvidia-smi's figure. Others do not say:
#: they are taken as the framework's peak of tensors, which Megatron-LM reports.
MEMORY_KEYS = {
    "pytorch-torchtitan": "peak_reserved_bytes", "stas00-ml-engineering": "peak_reserved_bytes",
    "huggingface-nanotron": "peak_reserved_bytes",
    "bigscience-bloom": "peak_shown_bytes", "bigscience-v100": "peak_shown_bytes",
    "internlm-internevo": "peak_shown_bytes",
}  # fmt: skip
#: Sources whose "GB" are 10^9 bytes: zero-bubble's program reports what a micro-batch holds in
#: bytes // 1000000 (its megatron/core/pipeline_parallel/zb_schedules.py, ScheduleTimers).
MEMORY_DECIMAL = ("zero-bubble",)
#: Sources of 2020 to 2022 with CUDA before 11.7, whose libraries load every kernel at start.
LOADS_ALL_KERNELS = ("bigscience-bloom", "bigscience-v100")
#: Sources that train with dropout, Megatron-LM's default of 0.1 (arguments.py): zero-bubble says
#: so, Korthikanti et al. count its masks, the others ran GPT with that program. Aleph Alpha's
#: library trains so by its own example (examples/transformer_example/config.yml: RMSNorm, SwiGLU,
#: no biases, untied, 128,000 tokens, as the rows; dropout 0.1 of embeddings, probabilities and
#: after attention and MLP); the paper does not speak of it.
DROPOUT = (
    "zero-bubble", "korthikanti-recompute", "megatron-sc21-a100", "megatron-jan21-a100",
    "megatron-v2-tables", "megatron-gpt3-example", "mt-nlg-530b", "vtrain", "bigscience-bloom",
    "aleph-alpha",
)  # fmt: skip
#: Sources whose programs are known, from here or from what their rows say.
KNOWN = frozenset({
    *MATERIALISED, *TENSOR_OPERATIONS, *APART, *TRITON_FLASH, *FLASH3, *TRANSFORMER_ENGINE,
    *LATE_REDUCTION, *RECIPES, *INTERLEAVED, *NO_SEQUENCE, *MAIN_GRADS_FP32, *MEGATRON, *DGRAD,
    *DEEPSPEED, *NEMO, *LOSS, *MEMORY_KEYS, "ibm-fms-fsdp", "mlperf-flux1", "nemo-bridge-wan",
})  # fmt: skip
PRECISIONS = {
    "bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "mxfp8": "mxfp8", "fp8-cs": "fp8",
    "fp8-tensorwise": "fp8", "fp8-rowwise": "fp8", "nvfp4": "nvfp4",
}  # fmt: skip
SHARDING = {
    "ddp": "ddp", "zero1": "zero1", "zero2": "zero2", "zero3": "zero3", "fsdp": "zero3",
    "hsdp": "zero3",
}  # fmt: skip
#: GPUs of an NVL72 rack that a job of n takes as one NVLink domain.
RACK_GPUS = (72, 64, 36, 32, 16, 8, 4, 2, 1)
SOURCE = "row"
#: DeepSeek-V2 and V3 (arXiv:2405.04434, 2412.19437) and Kimi-K2, which shares their layer.
LATENT: dict[str, Scalar] = {
    "q_rank": 1536, "kv_rank": 512, "rope_dim": 64, "head_dim": 192, "value_dim": 128,
}  # fmt: skip
DENSE_FIRST = {"deepseek-v2": 1, "deepseek-v3": 3, "kimi-k2": 1}
SHARED_EXPERTS = {"deepseek-v2": 2, "deepseek-v3": 1, "kimi-k2": 1}
#: Qwen3 (arXiv:2505.09388, 2): q and k of each head pass a norm.
QWEN3: dict[str, Scalar] = {"head_dim": 128, "qk_norm": True}
#: gpt-oss (OpenAI 2025; Megatron-Bridge, models/gpt_oss/gpt_oss_provider.py): every second layer
#: sees 128 tokens, sinks, biases of all products of a layer, a clamped activation.
GPT_OSS: dict[str, Scalar] = {
    "head_dim": 64, "window": 128, "window_pattern": "wf", "sinks": True, "qkv_bias": True,
    "out_bias": True, "expert_bias": True, "mlp": "swiglu_clamped",
}  # fmt: skip
#: How Megatron-LM runs its experts (experts.py, TEGroupedMLP; fused_bias_geglu.py), but for the
#: recipes in MXFP8, which set cutedsl_fused_grouped_mlp (Megatron-Bridge, scripts/performance/
#: configs/gpt_oss/gpt_oss_workload_base_configs.py).
GROUPED_EXPERTS: dict[str, Scalar] = {"clamps_apart": True, "expert_bias_apart": True}
#: Adapters of MLPerf's Llama-2-70B LoRA benchmark: rank 16 on the attention's products.
#: Where a row's notes have the base in fp8, its layers' products are; the rest is 16 bit.
LORA: dict[str, Scalar] = {"lora_rank": 16, "lora_targets": "qkv_proj,o_proj"}

#: What its configurations in fp8 keep in 8 bits where the sequence is not cut over ranks: NVIDIA's
#: set FP8_ACT=1 (config_DGXB200_1x8x1xtp1pp1cp1.sh, not config_..cp8.sh), AMD's
#: FP8_ACTIVATION=True (config_MI300X_1x8x1.sh); both are Megatron-Core's
#: activation_func_fp8_input_store (conf/megatron_gpt_peft_tuning_config.yaml).
FP8_ACTIVATION_INPUT: dict[str, Scalar] = {"fp8_activation_input": True}

#: Models of GPT's family whose head has a table of its own: zero-bubble's script says
#: --untie-embeddings-and-output-weights (examples/pretrain_zero_bubble.sh).
UNTIED = ("zero-bubble",)
#: Settings that a source's program gives its models.
#: Aleph Alpha's scaling joins the logits of tensor ranks (core/nn/linear, whose products gather
#: their output unless told not to; lm_head.py does not tell), and its norms gather over the
#: sequence what products then keep (core/nn/norm/rms_norm.py).
#: torchtitan redistributes a module's input over tensor ranks before the module runs, so that its
#: products keep what was gathered (models/llama3/infra/parallelize.py, PrepareModuleInput).
#: nanotron's gate and up are one product (models/llama.py, gate_up_proj; GLUActivation).
#: InternLM as of July 2023, with FlashAttention 1.0.5 (doc/en/install.md): rotary positions are
#: flash-attn's kernel, gate and up products of their own with tensor operations between
#: (model/linear.py, FeedForward), qkv and output have biases (multi_head_attention.py), norms read
#: fp32 and run again in backward (modeling_internlm.py, dropout_selective_checkpoint).
#: Composer updates its train_metrics with every micro-batch (trainer.py, _train_microbatch): of
#: llm-foundry LanguageCrossEntropy and LanguagePerplexity (models/mpt/modeling_mpt.py), each for
#: itself.
#: zero-bubble's rows assume GPT-2's vocabulary; the parameters of its models (1.5, 6.2, 14.6 and
#: 28.3 x 10^9, Qi et al. 2023, table 3) leave 25.5 to 33.6 thousand words of one table. Its
#: examples have a SentencePiece model, whose usual size this is.
OF_SOURCE: dict[str, dict[str, Scalar]] = {
    "aleph-alpha": {"gathered_logits": True, "gathered_inputs": True},
    "pytorch-torchtitan": {"gathered_inputs": True},
    "huggingface-nanotron": {"fused_gate_up": True},
    "internlm-internevo": {
        "attention": "flash1", "norm": "rmsnorm_again", "fused_pointwise": False,
        "fused_rope": True, "fused_gate_up": False, "qkv_bias": True, "out_bias": True,
    },
    "mosaicml-llm-foundry": {"logit_metrics": 2},
    "zero-bubble": {"vocab": 32_000},
}  # fmt: skip
#: InternLM's reduce_bucket_size is 512 x 1024 x 1024 elements (configs/7B_sft.py), its AdamW
#: torch's own, pass by pass over one flat tensor.
INTERNLM_UPDATE: Options = {"bucket_numel": 512 * MIB, "optimizer_impl": "foreach"}
#: llm-foundry's rows that were taken with PyTorch 1.13 (scripts/train/benchmarking:
#: submit_benchmarks.py's first image, mixed_precision PURE); DEFAULT is of 2.1 (sweep.sh).
TORCH_1 = "mixed_precision=PURE"
#: Programs that run with expandable_segments: torchtitan (run_train.sh, run_llama_train.sh) and
#: NVIDIA's benchmark recipes (Megatron-Bridge, scripts/performance/utils/executors.py;
#: Megatron-MoE-ModelZoo, model_configs/benchmarking).
GROWING = (
    "pytorch-torchtitan", "nvidia-megatron-bridge", "bridge-skills", "nvidia-nemo-docs",
    "nvidia-dgxc-benchmarking", "moe-modelzoo",
)  # fmt: skip
#: Recipes that hold weights in 8 bits where they compute in fp8 with a scale a tensor
#: (Megatron-Bridge, mixed_precision.py: fp8_param_gather), on GPUs that need no transposed copy.
FP8_PARAMS = ("nvidia-megatron-bridge", "bridge-skills", "mlperf-llama405b")
NO_TRANSPOSE = ("B200", "B300", "GB200", "GB300")
#: Sources whose selective recompute is a share of whole layers: fms-fsdp wraps every x-th block
#: (pretraining/policies/ac_handler.py; scripts/70b.sh: selective_checkpointing=1, all of them).
SELECTS_LAYERS = ("ibm-fms-fsdp",)
#: Layers whose activations Megatron-Bridge's recipes with its FSDP keep on the host, by model, GPU
#: and precision (scripts/performance/configs/llama/llama3*_workload_base_configs.py,
#: cpu_offloading_num_layers); 8 bits with a scale a tensor are "fp8" or "fp8-cs" in the rows.
OFFLOADED_LAYERS = {
    ("llama3-70b", "GB300", "bf16"): 30, ("llama3-70b", "GB200", "bf16"): 20,
    ("llama3.1-405b", "GB300", "bf16"): 40,
    **{
        (model, gpu, precision): layers
        for precision in ("fp8", "fp8-cs")
        for model, gpu, layers in (
            ("llama3-70b", "GB300", 20), ("llama3-70b", "GB200", 40), ("llama3-70b", "B200", 5),
            ("llama3.1-405b", "GB300", 10), ("llama3.1-405b", "GB200", 95),
        )
    },
}  # fmt: skip
#: Of Megatron-Bridge's benchmarks those in bf16 take the precision-aware optimizer
#: (scripts/performance/utils/overrides.py, set_post_overrides), which its FSDP does without.
REMAINDERS_BF16 = ("nvidia-megatron-bridge",)
#: The libraries of sources, where their own copies are known. NeMo's documents of 2024 are of
#: NeMo 1, whose distributed Adam keeps the lower halves of bf16 weights' masters.
SOFTWARE = {
    "nvidia-megatron-bridge": "precision-aware", "nvidia-nemo-docs": "precision-aware",
    "bigscience-bloom": "deepspeed-2022", "bigscience-v100": "deepspeed", "vtrain": "deepspeed",
    "deepspeed-azure-zero3": "deepspeed", "stas00-ml-engineering": "deepspeed",
    "aleph-alpha": "scaling", "huggingface-nanotron": "nanotron",
    "internlm-internevo": "internevo",
    "pytorch-torchtitan": "fsdp", "mosaicml-llm-foundry": "fsdp", "ibm-fms-fsdp": "fsdp",
}  # fmt: skip
