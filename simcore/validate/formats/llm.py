"""Published training steps of language models with their parallel layout (``steps/llm.csv``).

A row describes its model by dimensions. What the sources have in common and the columns do not
say is stated in ``llm_sources``: which of them ran before fused attention existed, and more.
"""

from __future__ import annotations

import re
from functools import lru_cache

from simcore.base.figures import Figure
from simcore.base.units import GIB, GIGA
from simcore.engine.options import Options
from simcore.strategy.software import PLAIN
from simcore.validate.case import Case, Skipped
from simcore.validate.formats import Format, Row, number, present, whole
from simcore.validate.formats import llm_diffusion as diffusion
from simcore.validate.formats.llm_recipes import (
    chunks_of,
    dispatcher_of,
    experts_of,
    issuer_of,
    next_tokens_of,
    stages_of,
    unhidden_of,
)
from simcore.validate.formats.llm_sources import (
    APART,
    DATED,
    DEEPSPEED,
    DGRAD,
    DROPOUT,
    FLASH3,
    FP8_ACTIVATION_INPUT,
    FP8_PARAMS,
    GROWING,
    INTERNLM_UPDATE,
    KNOWN,
    LATE_REDUCTION,
    LATE_SHARDED,
    LAUNCH_BLOCKING,
    LOADS_ALL_KERNELS,
    LORA,
    LOSS,
    LOSS_COMPILED,
    MAIN_GRADS_FP32,
    MATERIALISED,
    MEGATRON,
    MEMORY_DECIMAL,
    MEMORY_KEYS,
    MESSAGES,
    NO_SEQUENCE,
    NO_TRANSPOSE,
    NODE_GBIT_PER_S,
    NODES,
    OF_SOURCE,
    OFFLOADED_LAYERS,
    OVERLAPS,
    PRECISIONS,
    RACK_GPUS,
    RECIPES,
    REMAINDERS_BF16,
    SCORES_A_BLOCK,
    SELECTS_LAYERS,
    SHARDING,
    SOFTWARE,
    SOURCE,
    TENSOR_OPERATIONS,
    TORCH_1,
    TRANSFORMER_ENGINE,
    TRITON_FLASH,
    UNTIED,
)
from simcore.validate.unnamed import unnamed
from simcore.workload.models import ModelRecord, Scalar, Training
from simcore.workload.recompute import DEFAULT_MODULES


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
        "positions": "rope" if llama or "RoPE" in row.get("notes", "") else "learned",
        "bias": not llama and "no bias" not in row.get("notes", ""),
        "tied": _tied(row, llama),
        "attention": _attention(row),
        "fused_pointwise": row["source"] not in TENSOR_OPERATIONS,
        "fused_gate_up": row["source"] not in (*TENSOR_OPERATIONS, *APART),
        "fused_qkv": row["source"] not in APART,
        "dropout": 0.1 if row["source"] in DROPOUT else 0.0,
        "loss": _loss(row),
        "upcast_loss": row["source"] not in LOSS or row["source"] == "pytorch-torchtitan",
    }
    config |= OF_SOURCE.get(row["source"], {})
    if next_tokens_of(row):
        config["next_tokens"] = next_tokens_of(row)
    if row.get("variant") == "MegaScale":
        config["residual"] = "parallel_one_norm"  # parallel transformer block, section 3.1
    if row["arch"] == "moe":
        config |= experts_of(row, layers)
    if row.get("task") == "lora":
        config |= LORA
        if row["precision"] == "fp8" and whole(row, "cp", 1) == 1:
            config |= FP8_ACTIVATION_INPUT
        if re.search(r"base in (fp4/)?fp8", row.get("notes", "")):
            config["quantised_base"] = "fp8"
    return config


def _tied(row: Row, llama: bool) -> bool:
    """Whether the head is the embedding: what the row says, else what its family does."""
    told = re.search(r"\b(un)?tied\b", row.get("notes", ""))
    return not told[1] if told else not llama and row["source"] not in UNTIED


def _attention(row: Row) -> str:
    """The attention kernel: what the row's variant says, else that of its source's software."""
    found = _attention_named(row)
    heads = whole(row, "heads") // whole(row, "tp", 1) * whole(row, "micro_batch", SCORES_A_BLOCK)
    return "math" if found == "fused_softmax" and heads % SCORES_A_BLOCK else found


def _attention_named(row: Row) -> str:
    variant = row.get("variant", "")
    for word, kernel in _VARIANT_ATTENTION.items():
        if row["source"] == "aleph-alpha" and variant.startswith(word):
            return kernel
    if row["source"] in MATERIALISED:
        return "fused_softmax"
    if row["source"] in TRITON_FLASH:
        return "flash_triton"
    if row["source"] in TRANSFORMER_ENGINE:
        return "cudnn"
    return "flash3" if row["source"] in FLASH3 else "flash"


#: Aleph Alpha's names of kernels (Hagemann et al. 2023, section 3): "fused" is Megatron-LM's
#: softmax kernel, "torch" tensor operations.
_VARIANT_ATTENTION = {
    "flash_attention2": "flash", "flash_attentionv1": "flash1", "fused": "fused_softmax",
    "torch": "math",
}  # fmt: skip


def _norm(row: Row) -> str:
    eager = row["source"] == "aleph-alpha" and "RMS kernel" not in row.get("variant", "")
    return "rmsnorm_eager" if eager else "rmsnorm"


def _overlap(row: Row) -> str:
    """What the row states, else what its source's recipes turn on."""
    told = row.get("overlaps", "")
    late = row["source"] in LATE_REDUCTION or "no DP/TP/PP overlap" in row.get("notes", "")
    late = late or (row["source"] in LATE_SHARDED and row["sharding"] == "zero1")
    words = set() if late else {"grads"}
    if row["source"] in DGRAD:
        words.add("dgrad")
    if row["source"] in MESSAGES:
        words.add("pipeline")
    if row["source"].startswith("mlperf") or told:
        words |= {found for word, found in OVERLAPS.items() if word in told}
    elif row["source"] in RECIPES:
        words |= {"grads", "params", "tensor"}
    if row.get("variant") == "MegaScale":  # Jiang et al. 2024, section 3.2
        words |= {"grads", "params", "tensor"}
    text = f"{row.get('variant', '')} {row.get('notes', '')}".lower()
    if "async tp" in text or "asynctp" in text:
        words.add("tensor")
    if "a2a overlap" in text or row["source"] == "deepseek-v3-report":
        words.add("experts")
    return ",".join(sorted(words - unhidden_of(row))) or "none"


#: What selective recompute means where modules are not named: by operator in torchtitan's
#: benchmarks; DeepSeek-V3 2024, 3.2.3; else attention's core, Megatron-LM's default.
_SELECTIVE = {
    "pytorch-torchtitan": "operators", "deepseek-v3-report": "layernorm,mla_up_proj,moe_act",
}  # fmt: skip


def _modules(row: Row) -> str:
    notes = row.get("notes", "")
    told = re.search(r"selective recompute ([a-z_+]+)", notes)
    told = told or re.search(r"\b((?:mlp|core_attn|layernorm)(?:\+[a-z_]+)*) recompute", notes)
    if "recompute=selective:norm,act" in notes:  # words of Megatron-MoE-ModelZoo's table
        return "layernorm+moe_act"
    return row.get("recompute_modules") or (
        told[1] if told else _SELECTIVE.get(row["source"], DEFAULT_MODULES)
    )


def _layers_again(row: Row) -> int | None:
    """Of a full recompute that is of some layers only, how many; None is of all."""
    told = re.search(r"PARTIAL: full/block on (\d+) of", row.get("notes", ""))
    if told:
        return int(told[1])
    counted = re.search(r"HFU/MFU=([\d.]+)", row.get("notes", ""))
    if row["source"] not in SELECTS_LAYERS or not counted:
        return None
    # both counts of FLOP are over one time: 3 passes of each layer, and one more of some
    layers = whole(row, "layers")
    again = round(3.0 * (float(counted[1]) - 1.0) * layers)
    return again if 0 < again < layers else None


def _recompute(row: Row) -> str:
    """In the words of ``--recompute``: what some programs call selective is of whole layers."""
    told = row.get("recompute") or "none"
    return "full" if told == "selective" and row["source"] in SELECTS_LAYERS else told


def _offload(row: Row) -> Options:
    """What the row, else the recipe of its source, keeps on the host."""
    told = row.get("cpu_offload") == "yes"
    layers = re.search(r"CPU activation offload of (\d+) layers", row.get("notes", ""))
    if told:
        return {"offload_layers": int(layers[1])} if layers else {"offload": "optimizer"}
    if row["source"] != "nvidia-megatron-bridge" or row["sharding"] != "fsdp":
        return {}
    chip = row["gpu_type"].partition("-")[0]
    away = OFFLOADED_LAYERS.get((row["model"], chip, row["precision"]))
    return {"offload_layers": away} if away and not row.get("cpu_offload") else {}


def _early_zero3(row: Row) -> Options:
    """ZeRO-3 as DeepSpeed had it in 2021: each tensor gathered when it is needed, none ahead."""
    if row["sharding"] != "zero3" or row["source"] not in LATE_REDUCTION:
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


def _sequence_parallel(row: Row) -> bool:
    told = row.get("sequence_parallel", "")
    if told:
        return told != "False"
    return not (
        row["source"] in NO_SEQUENCE or "WITHOUT sequence parallelism" in row.get("notes", "")
    )


def _main_grads(row: Row) -> str:
    """Of the source's framework, or what the row's own notes say."""
    notes, source = row.get("notes", ""), row["source"]
    wide = source in MAIN_GRADS_FP32 or any(w in notes for w in _WIDE_WORDS)
    if wide and row["precision"] != "fp16":
        return "fp32"
    return "fused" if source in MEGATRON and source not in DEEPSPEED else "weights"


#: Notes that say gradients are reduced in fp32: BLOOM's, and llm-foundry's FSDP in DEFAULT mode.
_WIDE_WORDS = ("fp32 grad acc", "grad reduce fp32")


def _software(row: Row) -> str | None:
    plain = row["precision"] != "bf16" or row["sharding"] == "fsdp"
    if plain and row["source"] in REMAINDERS_BF16:
        return None
    if row["source"] == "mosaicml-llm-foundry" and TORCH_1 in row.get("notes", ""):
        return "fsdp-2022"
    return SOFTWARE.get(row["source"])


def _loss(row: Row) -> str:
    """The program's loss; stas00's one row without its fused kernel says what it would be with."""
    loss = LOSS.get(row["source"], "eager")
    dated = DATED.search(row.get("source_ref", ""))
    if loss == "compiled" and dated and dated[0] < LOSS_COMPILED:
        # cut over tensor ranks unless that is turned off
        loss = "parallel" if whole(row, "tp", 1) > 1 else "eager"
    return "eager" if loss == "chunked" and "with Liger" in row.get("notes", "") else loss


def _precision(row: Row) -> str:
    """torchtitan's fp8 is torchao's, which keeps the inputs of products in 16 bit."""
    found = PRECISIONS[row["precision"]]
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
        params=Figure(value=billions, source=SOURCE, note="10^9, as the row has it"),
        training=Training(
            micro_batch=1, precision="bf16", optimizer="adamw", strategy="zero1",
            optimizer_impl="fused", grad_clip=True,
            source="mixed-precision training with Adam, as the sources run it",
        ),
        sources={SOURCE: "dimensions of the table's row"},
        as_run=True,
    )  # fmt: skip


def _language_model(row: Row) -> ModelRecord:
    """A model of the row's dimensions."""
    config = tuple(sorted(_config(row).items()))
    return _record(row["model"], config, number(row, "params_b") or 0.0)


def _definition(key: str) -> str:
    return key.removeprefix("peak_").removesuffix("_bytes")


def _cluster(row: Row) -> tuple[str, Options]:
    gpus = whole(row, "gpus")
    a_node = min(gpus, whole(row, "gpus_per_node", 8))
    kind = row["gpu_type"]
    if "NVL72" in kind:
        a_node = next(n for n in RACK_GPUS if n <= gpus and gpus % n == 0)
    if gpus % a_node:
        raise KeyError(f"{gpus} GPUs are no whole number of nodes of {a_node}")
    options: Options = {}
    rate = number(row, "inter_node_gbps_per_gpu")
    node_rate = NODE_GBIT_PER_S.get(row["source"]) or (rate * a_node if rate else None)
    if node := NODES.get(row["source"]):
        options["node"] = node
    elif gpus > a_node and node_rate:
        options["network"] = f"{node_rate:g} Gbit/s"
    return f"{gpus // a_node}x{a_node}x{kind}", options


def _read(name: str, row: Row) -> Case | Skipped:
    if row.get("quality") == "C":
        return Skipped(name, "quality C: digitised, rounded, ambiguous or noisy")
    for column in ("layers", "hidden", "heads", "seq_len", "gpus", "global_batch"):
        if not row.get(column):
            return Skipped(name, f"{column} is blank")
    if row["precision"] not in PRECISIONS:
        return Skipped(name, f"precision {row['precision']!r} is not modelled")
    try:
        cluster, options = _cluster(row)
    except KeyError as err:
        return Skipped(name, str(err.args[0]))
    record = diffusion.record_of(row) if row["arch"] == "dit" else _language_model(row)
    if isinstance(record, str):
        return Skipped(name, record)
    recompute = _recompute(row)
    sharding = SHARDING[row["sharding"] or "ddp"]
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
        "vpp": chunks_of(row),
        "stages": stages_of(row),
        "cp": whole(row, "cp", 1),
        "ep": whole(row, "ep", 1) if row["arch"] == "moe" else 1,
        "sequence_parallel": _sequence_parallel(row),
        "overlap": _overlap(row),
        "issuer": issuer_of(row),
        "launch_blocking": row["source"] in LAUNCH_BLOCKING,
        "dispatcher": dispatcher_of(row),
        "software": _software(row) or PLAIN.name,
        "shard_ranks": _shard_ranks(row),
        **_early_zero3(row),
        "schedule": _schedule(row),
    }
    if row["source"] == "internlm-internevo":
        options |= INTERNLM_UPDATE
    if row["source"] in GROWING:
        options["growing_segments"] = True
    if row["source"] in LOADS_ALL_KERNELS:
        options["eager_kernels"] = True
    options |= _offload(row)
    if row["arch"] == "dit":
        options |= diffusion.options_of(row)
    if row["source"] in FP8_PARAMS and row["gpu_type"].startswith(NO_TRANSPOSE):
        options["fp8_params"] = row["precision"] in ("fp8", "fp8-cs")
    memory = number(row, "peak_mem_gib")
    memory_key = MEMORY_KEYS.get(row["source"], "peak_allocated_bytes")
    if "mem=rank-0" in row.get("notes", ""):
        memory_key = "peak_rank0_allocated_bytes"
    unit = GIGA if row["source"] in MEMORY_DECIMAL else GIB
    case = Case(
        id=name,
        table="llm",
        model=row["model"],
        record=record,
        gpus=cluster,
        options=options,
        measured=present(
            step_time_s=number(row, "step_time_s"),
            **{memory_key: memory * unit if memory is not None else None},
        ),
        columns={**row, "memory_definition": _definition(memory_key) if memory else ""},
        flag="the source's row is anomalous" if row.get("flagged_anomaly") == "yes" else "",
        notes=row.get("notes", "")[:200],
    )
    return case if row["source"] in KNOWN else unnamed(case, _told(row))


def _told(row: Row) -> list[str]:
    """Options of a program that a row tells itself, whoever its source is."""
    columns = {"sequence_parallel": "sequence_parallel", "overlaps": "overlap",
               "cuda_graph": "issuer"}  # fmt: skip
    return [option for column, option in columns.items() if row.get(column)]


FORMAT = Format("llm", frozenset({"arch", "tp", "pp", "sharding", "step_time_s"}), _read)
