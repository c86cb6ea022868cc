"""Published training steps of language models with their parallel layout (``steps/llm.csv``).

A row describes its model by dimensions. What the sources have in common and the columns do not
say is stated here once: which of them ran before fused attention existed, and what a blank means.
"""

from __future__ import annotations

import re
from functools import lru_cache

from simcore.base.figures import Figure
from simcore.base.units import GIB
from simcore.engine.request import Options
from simcore.validate.case import Case, Skipped
from simcore.validate.formats import Format, Row, number, present, whole
from simcore.workload.models import ModelRecord, Scalar, Training
from simcore.workload.recompute import DEFAULT_MODULES

#: Sources whose software (2020 to early 2023) materialises attention scores: FlashAttention came
#: in mid-2022 and into Megatron-LM in 2023. zero-bubble: its Table 1 counts sb(34h + 5as) bytes of
#: activations a layer (Qi et al. 2023), scores and dropout masks in them.
_MATERIALISED = (
    "vtrain", "bigscience-bloom", "bigscience-v100", "megatron-sc21-a100", "megatron-jan21-a100",
    "megatron-v2-tables", "megatron-gpt3-example", "korthikanti-recompute", "mt-nlg-530b",
    "deepspeed-azure-zero3", "zero-bubble",
)  # fmt: skip
#: Sources whose framework runs rotary positions, norms and gated layers as tensor operations:
#: Aleph Alpha (Hagemann et al. 2023 time a fused RMSNorm against that), nanotron.
_TENSOR_OPERATIONS = ("aleph-alpha", "huggingface-nanotron")
#: Sources whose models have q, k, v, gate and up as products of their own.
_APART = ("pytorch-torchtitan", "stas00-ml-engineering")
#: llm-foundry's recipes of 2023 set attn_impl: triton, a Triton port of the first FlashAttention.
_TRITON_FLASH = ("mosaicml-llm-foundry",)
#: Sources on Transformer Engine, which takes cuDNN's attention from Hopper on and
#: FlashAttention-2 before (NVIDIA/NeMo pull 9188 says so). MLPerf's on AMD run their own kernels,
#: for which nothing else than the device's own figure is known.
_TRANSFORMER_ENGINE = (
    "nvidia-megatron-bridge", "bridge-skills", "nvidia-nemo-docs", "nvidia-dgxc-benchmarking",
    "moe-modelzoo", "megatron-lm-llama-fp8", "megatron-lm-h100", "nemotron4-340b", "mlperf-gpt3",
    "mlperf-llama405b", "mlperf-llama8b", "mlperf-lora70b", "simumax-b200", "kwai-megatron",
)  # fmt: skip
#: stas00 says FlashAttention-3 of its H200. Of DeepSeek-V3's and Llama 3's own kernels nothing is
#: said: both run Hopper's asynchronous products (Meta's engineers are among the third's authors).
_FLASH3 = ("stas00-ml-engineering", "deepseek-v3-report", "llama3-paper")
#: Sources whose gradients are reduced after backward, in one piece: Megatron-LM before 2023 had no
#: --overlap-grad-reduce; DeepSpeed's pipeline engine reduces after the last micro-batch, and Aleph
#: Alpha's library after accumulation.
_LATE_REDUCTION = (
    "vtrain", "bigscience-bloom", "bigscience-v100", "megatron-sc21-a100", "megatron-jan21-a100",
    "megatron-v2-tables", "megatron-gpt3-example", "korthikanti-recompute", "mt-nlg-530b",
    "zero-bubble", "aleph-alpha", "deepspeed-azure-zero3",
)  # fmt: skip
#: Sources whose recipes overlap all they can: NVIDIA's (NeMo, Megatron-Bridge, DGX Cloud: their
#: communication settings turn tensor, gradient and parameter overlap on) and Megatron-Core's table.
_RECIPES = (
    "nvidia-megatron-bridge", "bridge-skills", "nvidia-nemo-docs", "nvidia-dgxc-benchmarking",
    "moe-modelzoo", "megatron-lm-h100", "megatron-lm-llama-fp8",
)  # fmt: skip
#: MLPerf's words for overlaps.
_OVERLAPS = {
    "TP_COMM_OVERLAP": "tensor", "OVERLAP_GRAD_REDUCE": "grads", "OVERLAP_PARAM_GATHER": "params",
}  # fmt: skip
#: Sources that say their pipeline is interleaved and not by how much: one layer a chunk, as
#: Megatron-LM's and Meta's largest runs have (Narayanan et al. 2021 2.2; Llama 3 2024, 3.3.2).
_INTERLEAVED = ("llama3-paper", "megatron-lm-h100", "nemotron4-340b")
#: Sources without sequence parallelism where the row does not state it: it came in May 2022
#: (Korthikanti et al.), these programs are older or, with Aleph Alpha's, say where it is on.
_NO_SEQUENCE = (
    "aleph-alpha", "vtrain", "bigscience-bloom", "bigscience-v100", "deepspeed-azure-zero3",
    "megatron-sc21-a100", "megatron-jan21-a100", "megatron-v2-tables", "megatron-gpt3-example",
    "mt-nlg-530b",
)  # fmt: skip
#: Sources whose gradients accumulate and are reduced in fp32: Megatron-LM does with bf16 unless
#: told --grad-reduce-in-bf16 (arguments.py), and two that say so. NVIDIA's benchmark recipes
#: (NeMo, Megatron-Bridge, MLPerf) set grad_reduce_in_fp32=False; fp16 keeps the weights' width.
_MAIN_GRADS_FP32 = (
    "huggingface-nanotron", "simumax-b200", "megatron-lm-h100", "megatron-lm-llama-fp8",
    "kwai-megatron", "pytorch-torchtitan",
)  # fmt: skip
#: Sources on Megatron-LM: gradients are one buffer that is also what is reduced, the loss is its
#: vocab-parallel one. Of nanotron's own program the loss alone is alike (fp32 copy, in place).
_MEGATRON = (
    "nvidia-megatron-bridge", "bridge-skills", "nvidia-nemo-docs", "nvidia-dgxc-benchmarking",
    "moe-modelzoo", "megatron-lm-llama-fp8", "megatron-lm-h100", "megatron-sc21-a100",
    "megatron-jan21-a100", "megatron-gpt3-example", "megatron-v2-tables", "korthikanti-recompute",
    "megascale", "nemotron4-340b", "mt-nlg-530b", "mlperf-gpt3", "mlperf-llama405b",
    "mlperf-llama8b", "mlperf-lora70b", "simumax-b200", "simumax-a100pcie", "zero-bubble",
    "kwai-megatron", "vtrain", "bigscience-bloom", "bigscience-v100",
)  # fmt: skip
_DEEPSPEED = ("bigscience-bloom", "bigscience-v100", "vtrain", "deepspeed-azure-zero3")
_LOSS = {
    **dict.fromkeys(_MEGATRON, "vocab_parallel"), "huggingface-nanotron": "vocab_parallel",
    "pytorch-torchtitan": "compiled", "stas00-ml-engineering": "chunked",
    "mosaicml-llm-foundry": "compiled",
}  # fmt: skip
#: torchtitan's loss is compiled since early 2025 (pull request 1033), and cast to fp32 before.
_LOSS_COMPILED = "202502"
_DATED = re.compile(r"(?<=_)20\d{4}(?=_)")
#: BLOOM's jobs set CUDA_LAUNCH_BLOCKING=1: "do not remove or the training will hang"
#: (bigscience, train/tr11-176B-ml/setup-test-n2.slurm).
_LAUNCH_BLOCKING = ("bigscience-bloom",)
#: What a source's memory is: the framework's peak of tensors (allocated) or of segments (reserved,
#: torchtitan's metrics.py prints it; stas00 says so), or nvidia-smi's figure. Others do not say:
#: they are taken as the framework's peak of tensors, which Megatron-LM reports.
_MEMORY_KEYS = {
    "pytorch-torchtitan": "peak_reserved_bytes", "stas00-ml-engineering": "peak_reserved_bytes",
    "huggingface-nanotron": "peak_reserved_bytes",
    "bigscience-bloom": "peak_shown_bytes", "bigscience-v100": "peak_shown_bytes",
    "internlm-internevo": "peak_shown_bytes",
}  # fmt: skip
#: Sources of 2020 to 2022 with CUDA before 11.7, whose libraries load every kernel at start.
_LOADS_ALL_KERNELS = ("bigscience-bloom", "bigscience-v100")
#: Sources that train with dropout, Megatron-LM's default of 0.1 (arguments.py): zero-bubble says
#: so, Korthikanti et al. count its masks, the others ran GPT with that program.
_DROPOUT = (
    "zero-bubble", "korthikanti-recompute", "megatron-sc21-a100", "megatron-jan21-a100",
    "megatron-v2-tables", "megatron-gpt3-example", "mt-nlg-530b", "vtrain", "bigscience-bloom",
)  # fmt: skip
_PRECISIONS = {
    "bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "mxfp8": "fp8", "fp8-cs": "fp8",
    "fp8-tensorwise": "fp8", "fp8-rowwise": "fp8", "nvfp4": "nvfp4",
}  # fmt: skip
_SHARDING = {
    "ddp": "ddp", "zero1": "zero1", "zero2": "zero2", "zero3": "zero3", "fsdp": "zero3",
    "hsdp": "zero3",
}  # fmt: skip
#: GPUs of an NVL72 rack that a job of n takes as one NVLink domain.
_RACK_GPUS = (72, 64, 36, 32, 16, 8, 4, 2, 1)
_SOURCE = "row"
#: DeepSeek-V2 and V3 (arXiv:2405.04434, 2412.19437) and Kimi-K2, which shares their layer.
_LATENT: dict[str, Scalar] = {
    "q_rank": 1536, "kv_rank": 512, "rope_dim": 64, "head_dim": 192, "value_dim": 128,
}  # fmt: skip
_DENSE_FIRST = {"deepseek-v2": 1, "deepseek-v3": 3, "kimi-k2": 1}
_SHARED_EXPERTS = {"deepseek-v2": 2, "deepseek-v3": 1, "kimi-k2": 1}
#: Adapters of MLPerf's Llama-2-70B LoRA benchmark: rank 16 on the attention's products.
#: Where a row's notes have the base in fp8, its layers' products are; the rest is 16 bit.
_LORA: dict[str, Scalar] = {"lora_rank": 16, "lora_targets": "qkv_proj,o_proj"}


#: Aleph Alpha's scaling joins the logits of tensor ranks (core/nn/linear, whose products gather
#: their output unless told not to; lm_head.py does not tell), and its norms gather over the
#: sequence what products then keep (core/nn/norm/rms_norm.py).
_SCALING: dict[str, Scalar] = {"gathered_logits": True, "gathered_inputs": True}
#: Programs that run with expandable_segments: torchtitan (run_train.sh, run_llama_train.sh) and
#: NVIDIA's benchmark recipes (Megatron-Bridge, scripts/performance/utils/executors.py;
#: Megatron-MoE-ModelZoo, model_configs/benchmarking).
_GROWING = (
    "pytorch-torchtitan", "nvidia-megatron-bridge", "bridge-skills", "nvidia-nemo-docs",
    "nvidia-dgxc-benchmarking", "moe-modelzoo",
)  # fmt: skip
#: Recipes that hold weights in 8 bits where they compute in fp8 with a scale a tensor
#: (Megatron-Bridge, mixed_precision.py: fp8_param_gather), on GPUs that need no transposed copy.
_FP8_PARAMS = ("nvidia-megatron-bridge", "bridge-skills", "mlperf-llama405b")
_NO_TRANSPOSE = ("B200", "B300", "GB200", "GB300")
#: The libraries of sources, where their own copies are known.
_SOFTWARE = {
    "bigscience-bloom": "deepspeed-2022", "bigscience-v100": "deepspeed", "vtrain": "deepspeed",
    "deepspeed-azure-zero3": "deepspeed", "stas00-ml-engineering": "deepspeed",
    "aleph-alpha": "scaling", "huggingface-nanotron": "nanotron",
}  # fmt: skip


def _config(row: Row) -> dict[str, Scalar]:
    llama = row["arch"] in ("llama", "moe")
    layers, hidden = whole(row, "layers"), whole(row, "hidden")
    heads = whole(row, "heads")
    config: dict[str, Scalar] = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": whole(row, "kv_heads", heads),
        "ffn": whole(row, "ffn", 4 * hidden),
        "vocab": whole(row, "vocab", 51200),
        "seq_len": whole(row, "seq_len"),
        "norm": _norm(row) if llama else "layernorm",
        "mlp": "swiglu" if llama else "gelu",
        "positions": "rope" if llama else "learned",
        "bias": not llama,
        "tied": not llama,
        "attention": _attention(row),
        "fused_pointwise": row["source"] not in _TENSOR_OPERATIONS,
        "fused_gate_up": row["source"] not in (*_TENSOR_OPERATIONS, *_APART),
        "fused_qkv": row["source"] not in _APART,
        "dropout": 0.1 if row["source"] in _DROPOUT else 0.0,
        "loss": _loss(row),
        "upcast_loss": row["source"] not in _LOSS or row["source"] == "pytorch-torchtitan",
    }
    if row["source"] == "aleph-alpha":
        config |= _SCALING
    if row.get("variant") == "MegaScale":
        config["residual"] = "parallel_one_norm"  # parallel transformer block, section 3.1
    if row["arch"] == "moe":
        config |= _experts(row, layers)
    if row.get("task") == "lora":
        config |= _LORA
        if re.search(r"base in (fp4/)?fp8", row.get("notes", "")):
            config["quantised_base"] = "fp8"
    return config


def _experts(row: Row, layers: int) -> dict[str, Scalar]:
    base = next((m for m in _DENSE_FIRST if row["model"].startswith(m)), "")
    width = whole(row, "moe_ffn", whole(row, "ffn"))
    config: dict[str, Scalar] = {
        "experts": whole(row, "moe_experts"),
        "top_k": whole(row, "moe_topk", 1),
        "expert_ffn": width,
    }
    if base:
        # a model cut down to a few layers keeps one dense one ("first dense", as such rows say)
        dense = 1 if "(first dense)" in row.get("notes", "") else _DENSE_FIRST[base]
        dense = min(dense, layers - 1)
        config |= _LATENT
        config["shared_ffn"] = _SHARED_EXPERTS[base] * width
        config["expert_pattern"] = "d" * dense + "e" * (layers - dense)
        config["fused_qkv"] = False
    elif row["model"].startswith(("qwen3", "gpt-oss")):
        config["head_dim"] = 64 if row["model"].startswith("gpt-oss") else 128
    return config


def _attention(row: Row) -> str:
    """The attention kernel: what the row's variant says, else that of its source's software."""
    variant = row.get("variant", "")
    for word, kernel in _VARIANT_ATTENTION.items():
        if row["source"] == "aleph-alpha" and variant.startswith(word):
            return kernel
    if row["source"] in _MATERIALISED:
        return "fused_softmax"
    if row["source"] in _TRITON_FLASH:
        return "flash_triton"
    if row["source"] in _TRANSFORMER_ENGINE:
        return "cudnn"
    return "flash3" if row["source"] in _FLASH3 else "flash"


#: Aleph Alpha's names of kernels (Hagemann et al. 2023, section 3): "fused" is Megatron-LM's
#: softmax kernel, "torch" tensor operations.
_VARIANT_ATTENTION = {
    "flash_attention2": "flash", "flash_attentionv1": "flash1", "fused": "fused_softmax",
    "torch": "math",
}  # fmt: skip


def _issuer(row: Row) -> str:
    """What issues kernels: graphs of the step or of layers, Megatron-LM's modules, or torch's."""
    graph = row.get("cuda_graph", "")
    if graph == "on" or graph.startswith("full_iteration"):
        return "graph"
    if row["source"] not in _MEGATRON:
        return "torch"
    layers = "'attn'" in graph or "cuda graph attn" in row.get("notes", "")
    return "megatron_graphs" if layers else "megatron"


def _norm(row: Row) -> str:
    eager = row["source"] == "aleph-alpha" and "RMS kernel" not in row.get("variant", "")
    return "rmsnorm_eager" if eager else "rmsnorm"


def _overlap(row: Row) -> str:
    """What the row states, else what its source's recipes turn on."""
    told = row.get("overlaps", "")
    late = row["source"] in _LATE_REDUCTION or "no DP/TP/PP overlap" in row.get("notes", "")
    words = set() if late else {"grads"}
    if row["source"].startswith("mlperf") or told:
        words |= {found for word, found in _OVERLAPS.items() if word in told}
    elif row["source"] in _RECIPES:
        words |= {"grads", "params", "tensor"}
    if row.get("variant") == "MegaScale":  # Jiang et al. 2024, section 3.2
        words |= {"grads", "params", "tensor"}
    text = f"{row.get('variant', '')} {row.get('notes', '')}".lower()
    if "async tp" in text or "asynctp" in text:
        words.add("tensor")
    if "ep a2a overlap" in text or row["source"] == "deepseek-v3-report":
        words.add("experts")
    return ",".join(sorted(words)) or "none"


#: What selective recompute means where modules are not named: by operator in torchtitan's
#: benchmarks; DeepSeek-V3 2024, 3.2.3; else attention's core, Megatron-LM's default.
_SELECTIVE = {
    "pytorch-torchtitan": "operators", "ibm-fms-fsdp": "operators",
    "deepseek-v3-report": "layernorm,mla_up_proj,moe_act",
}  # fmt: skip


def _modules(row: Row) -> str:
    notes = row.get("notes", "")
    told = re.search(r"selective recompute ([a-z_+]+)", notes)
    told = told or re.search(r"\b((?:mlp|core_attn|layernorm)(?:\+[a-z_]+)*) recompute", notes)
    return row.get("recompute_modules") or (
        told[1] if told else _SELECTIVE.get(row["source"], DEFAULT_MODULES)
    )


def _layers_again(row: Row) -> int | None:
    """Of a full recompute that is of some layers only, how many; None is of all."""
    told = re.search(r"PARTIAL: full/block on (\d+) of", row.get("notes", ""))
    return int(told[1]) if told else None


def _early_zero3(row: Row) -> Options:
    """ZeRO-3 as DeepSpeed had it in 2021: each tensor gathered when it is needed, none ahead."""
    if row["sharding"] != "zero3" or row["source"] not in _LATE_REDUCTION:
        return {}
    return {"gather_tensors": True, "prefetch_blocks": 0}


def _shard_ranks(row: Row) -> int | None:
    """Hybrid sharding: HSDP shards over a node, InternEvo's notes give the group."""
    told = re.search(r"shard group=(\d+)", row.get("notes", ""))
    if told:
        return int(told[1])
    return whole(row, "gpus_per_node", 8) if row["sharding"] == "hsdp" else None


def _schedule(row: Row) -> str:
    """1F1B, but for the zero-bubble paper's own and for DeepSeek-V3, whose report names it."""
    if row["source"] == "deepseek-v3-report":
        return "dualpipe"
    variant = row.get("variant", "").lower()
    return variant if variant in ("zb-1p", "zb-2p") else "1f1b"


def _dispatcher(row: Row) -> str:
    said = f"{row.get('mb_dispatcher', '')} {row.get('notes', '')}".lower()
    once = "deepep" in said or "hybridep" in said or row["source"] == "deepseek-v3-report"
    return "deepep" if once else "alltoall"


def _chunks(row: Row) -> int:
    """Chunks of layers a pipeline rank; a blank of an interleaved source is one layer each."""
    pp = whole(row, "pp", 1)
    if pp == 1:
        return 1
    if not row.get("vpp") and row["source"] in _INTERLEAVED:
        return max(1, round(whole(row, "layers") / pp))
    return whole(row, "vpp", 1)


#: Models that Megatron-Bridge's recipes cut by a list of chunks: all as long but the last, which
#: has the loss (and multi-token prediction) too (recipes/deepseek/deepseek_v3.py, map_pp_vp_to_
#: layout; recipes/kimi/kimi_k2.py): 61 layers in 16 chunks are 15 of 4 and one.
_LONG_CHUNKS = ("deepseek-v3", "kimi-k2")


def _stages(row: Row) -> str | None:
    """Layers of each stage, where the source's recipe has others than even ones."""
    pp, vpp, layers = whole(row, "pp", 1), _chunks(row), whole(row, "layers")
    if row["source"] != "nvidia-megatron-bridge" or pp == 1 or layers % pp == 0:
        return None
    if not row["model"].startswith(_LONG_CHUNKS):
        return None
    chunk = -(-layers // (pp * vpp))
    short = chunk * pp * vpp - layers
    return f"{pp - 1}x{chunk * vpp},{chunk * vpp - short}" if short < chunk else None


def _sequence_parallel(row: Row) -> bool:
    told = row.get("sequence_parallel", "")
    if told:
        return told != "False"
    return not (
        row["source"] in _NO_SEQUENCE or "WITHOUT sequence parallelism" in row.get("notes", "")
    )


def _main_grads(row: Row) -> str:
    """Of the source's framework, or what the row's own notes say."""
    notes, source = row.get("notes", ""), row["source"]
    wide = source in _MAIN_GRADS_FP32 or any(w in notes for w in _WIDE_WORDS)
    if wide and row["precision"] != "fp16":
        return "fp32"
    return "fused" if source in _MEGATRON and source not in _DEEPSPEED else "weights"


#: Notes that say gradients are reduced in fp32: BLOOM's, and llm-foundry's FSDP in DEFAULT mode.
_WIDE_WORDS = ("fp32 grad acc", "grad reduce fp32")


def _loss(row: Row) -> str:
    """The program's loss; stas00's one row without its fused kernel says what it would be with."""
    loss = _LOSS.get(row["source"], "eager")
    if loss == "compiled" and (dated := _DATED.search(row.get("source_ref", ""))):
        loss = "compiled" if dated[0] >= _LOSS_COMPILED else "eager"
    return "eager" if loss == "chunked" and "with Liger" in row.get("notes", "") else loss


def _precision(row: Row) -> str:
    """torchtitan's fp8 is torchao's, which keeps the inputs of products in 16 bit."""
    found = _PRECISIONS[row["precision"]]
    torchao = row["source"] == "pytorch-torchtitan" and found == "fp8"
    return "fp8-dynamic" if torchao else found


@lru_cache(maxsize=2048)
def _record(name: str, config: tuple[tuple[str, Scalar], ...], billions: float) -> ModelRecord:
    return ModelRecord(
        name=name,
        full_name=name,
        arch="transformer",
        sample_unit="sequence",
        config=dict(config),
        params=Figure(value=billions, source=_SOURCE, note="10^9, as the row has it"),
        training=Training(
            micro_batch=1, precision="bf16", optimizer="adamw", strategy="zero1",
            optimizer_impl="fused", grad_clip=True,
            source="mixed-precision training with Adam, as the sources run it",
        ),
        sources={_SOURCE: "dimensions of the table's row"},
    )  # fmt: skip


def _definition(key: str) -> str:
    return key.removeprefix("peak_").removesuffix("_bytes")


def _cluster(row: Row) -> tuple[str, Options]:
    gpus = whole(row, "gpus")
    a_node = min(gpus, whole(row, "gpus_per_node", 8))
    kind = row["gpu_type"]
    if "NVL72" in kind:
        a_node = next(n for n in _RACK_GPUS if n <= gpus and gpus % n == 0)
    if gpus % a_node:
        raise KeyError(f"{gpus} GPUs are no whole number of nodes of {a_node}")
    options: Options = {}
    rate = number(row, "inter_node_gbps_per_gpu")
    if gpus > a_node and rate:
        options["network"] = f"{rate * a_node:g} Gbit/s"
    return f"{gpus // a_node}x{a_node}x{kind}", options


def _read(name: str, row: Row) -> Case | Skipped:
    if row.get("quality") == "C":
        return Skipped(name, "quality C: digitised, rounded, ambiguous or noisy")
    if row["arch"] == "dit":
        return Skipped(name, "diffusion transformers of this table are not described yet")
    for column in ("layers", "hidden", "heads", "seq_len", "gpus", "global_batch"):
        if not row.get(column):
            return Skipped(name, f"{column} is blank")
    if row["precision"] not in _PRECISIONS:
        return Skipped(name, f"precision {row['precision']!r} is not modelled")
    try:
        cluster, options = _cluster(row)
    except KeyError as err:
        return Skipped(name, str(err.args[0]))
    recompute = row.get("recompute") or "none"
    sharding = _SHARDING[row["sharding"] or "ddp"]
    micro_batch = whole(row, "micro_batch", 1)
    if row["source"] == "pytorch-torchtitan" and whole(row, "pp", 1) > 1:
        # Parameters and accumulated gradients stay whole over the micro-batches of a pipeline
        # (FSDP2 without reshard_after_forward); as many micro-batches as stages by default.
        sharding = "zero1"
        if not row.get("micro_batch"):
            parts = whole(row, "dp") * whole(row, "pp")
            micro_batch = max(1, whole(row, "global_batch") // parts)
    options |= {
        "strategy": sharding,
        "precision": _precision(row),
        "recompute": recompute,
        "recompute_modules": _modules(row) if recompute == "selective" else None,
        "recompute_layers": _layers_again(row) if recompute == "full" else None,
        "main_grads": _main_grads(row),
        "micro_batch": micro_batch,
        "global_batch": whole(row, "global_batch"),
        "tp": whole(row, "tp", 1),
        "pp": whole(row, "pp", 1),
        "vpp": _chunks(row),
        "stages": _stages(row),
        "cp": whole(row, "cp", 1),
        "ep": whole(row, "ep", 1) if row["arch"] == "moe" else 1,
        "sequence_parallel": _sequence_parallel(row),
        "overlap": _overlap(row),
        "issuer": _issuer(row),
        "launch_blocking": row["source"] in _LAUNCH_BLOCKING,
        "dispatcher": _dispatcher(row),
        "software": _SOFTWARE.get(row["source"]),
        "shard_ranks": _shard_ranks(row),
        **_early_zero3(row),
        "schedule": _schedule(row),
    }
    if row["source"] in _GROWING:
        options["growing_segments"] = True
    if row["source"] in _LOADS_ALL_KERNELS:
        options["eager_kernels"] = True
    if row.get("cpu_offload") == "yes":
        layers = re.search(r"CPU activation offload of (\d+) layers", row.get("notes", ""))
        options |= {"offload_layers": int(layers[1])} if layers else {"offload": "optimizer"}
    if row["source"] in _FP8_PARAMS and row["gpu_type"].startswith(_NO_TRANSPOSE):
        options["fp8_params"] = row["precision"] in ("fp8", "fp8-cs")
    memory = number(row, "peak_mem_gib")
    memory_key = _MEMORY_KEYS.get(row["source"], "peak_allocated_bytes")
    return Case(
        id=name,
        table="llm",
        model=row["model"],
        record=_record(
            row["model"], tuple(sorted(_config(row).items())), number(row, "params_b") or 0.0
        ),
        gpus=cluster,
        options=options,
        measured=present(
            step_time_s=number(row, "step_time_s"),
            **{memory_key: memory * GIB if memory is not None else None},
        ),
        columns={**row, "memory_definition": _definition(memory_key) if memory else ""},
        flag="the source's row is anomalous" if row.get("flagged_anomaly") == "yes" else "",
        notes=row.get("notes", "")[:200],
    )


FORMAT = Format("llm", frozenset({"arch", "tp", "pp", "sharding", "step_time_s"}), _read)
