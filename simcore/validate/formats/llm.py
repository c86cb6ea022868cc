"""Published training steps of language models with their parallel layout (``steps/llm.csv``).

A row describes its model by dimensions. What the sources have in common and the columns do not
say is stated in ``llm_sources``: which of them ran before fused attention existed, and more.
"""

from __future__ import annotations

import re
from typing import cast

from simcore.engine.options import Options
from simcore.strategy.software.megatron import SCORES_A_BLOCK
from simcore.validate.case import Case, Skipped
from simcore.validate.formats import Format, Row, number, present, settled, whole
from simcore.validate.formats import llm_diffusion as diffusion
from simcore.validate.formats import llm_mlperf as mlperf
from simcore.validate.formats.llm_recipes import (
    chunks_of,
    dispatcher_of,
    experts_of,
    fp8_params_of,
    issuer_of,
    micro_batch_of,
    next_tokens_of,
    offloaded_of,
    stages_of,
    unhidden_of,
    wrapped_overlaps_of,
)
from simcore.validate.formats.llm_sources import SOURCES, Source, cluster_state_of, source_of
from simcore.validate.unnamed import unnamed
from simcore.workload.models import Scalar
from simcore.workload.settings import PREFIX

PRECISIONS = {
    "bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "mxfp8": "mxfp8", "fp8-cs": "fp8",
    "fp8-tensorwise": "fp8", "fp8-rowwise": "fp8-rowwise", "nvfp4": "nvfp4",
}  # fmt: skip
SHARDING = {
    "ddp": "ddp", "zero1": "zero1", "zero2": "zero2", "zero3": "zero3", "fsdp": "zero3",
    "hsdp": "zero3",
}  # fmt: skip
#: MLPerf's words for overlaps.
OVERLAPS = {
    "TP_COMM_OVERLAP": "tensor", "OVERLAP_GRAD_REDUCE": "grads", "OVERLAP_PARAM_GATHER": "params",
}  # fmt: skip
#: GPUs of an NVL72 rack that a job of n takes as one NVLink domain.
RACK_GPUS = (72, 64, 36, 32, 16, 8, 4, 2, 1)
ARCH = "transformer"
#: What is taken of a model's layers where a source's program is not known to have others.
_LAYERS: dict[str, Scalar] = {
    "attention": "flash", "fused_pointwise": True, "fused_gate_up": True, "fused_qkv": True,
    "loss": "eager", "upcast_loss": True,
}  # fmt: skip


def _config(row: Row, source: Source) -> dict[str, Scalar]:
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
        "norm": "rmsnorm",
        "mlp": "swiglu" if llama else "gelu",
        "positions": "rope" if llama or "RoPE" in row.get("notes", "") else "learned",
        "bias": not llama and "no bias" not in row.get("notes", ""),
        "tied": _tied(row, source, llama),
    }
    config |= {**_LAYERS, "dropout": source.program.dropout, **source.program.settings}
    config |= source.settings
    config.pop("weighed_early", None)  # of mixtures
    config["norm"] = _norm(row, str(config["norm"])) if llama else "layernorm"
    config["attention"] = _attention(row, str(config["attention"]))
    config["loss"] = _loss(row, source, str(config["loss"]))
    if next_tokens_of(row):
        config["next_tokens"] = next_tokens_of(row)
    if row["arch"] == "moe":
        config |= experts_of(row, layers, source.program)
    return config | mlperf.layers_of(row)


def _tied(row: Row, source: Source, llama: bool) -> bool:
    """Whether the head is the embedding: what the row says, else what its family does."""
    told = re.search(r"\b(un)?tied\b", row.get("notes", ""))
    return not told[1] if told else not llama and not source.untied


#: Aleph Alpha's names of kernels (Hagemann et al. 2023, section 3): "fused" is Megatron-LM's
#: softmax kernel, "torch" tensor operations.
_VARIANT_ATTENTION = {
    "flash_attention2": "flash", "flash_attentionv1": "flash1", "fused": "fused_softmax",
    "torch": "math",
}  # fmt: skip


def _attention(row: Row, usual: str) -> str:
    """The attention kernel: what the row's variant says, else that of its source's software."""
    named = row.get("variant", "") if row["source"] == "aleph-alpha" else ""
    found = next((k for word, k in _VARIANT_ATTENTION.items() if named.startswith(word)), usual)
    heads = whole(row, "heads") // whole(row, "tp", 1) * whole(row, "micro_batch", SCORES_A_BLOCK)
    return "math" if found == "fused_softmax" and heads % SCORES_A_BLOCK else found


def _norm(row: Row, usual: str) -> str:
    """Aleph Alpha's variants say where a norm is one kernel."""
    return usual.removesuffix("_eager") if "RMS kernel" in row.get("variant", "") else usual


def _loss(row: Row, source: Source, usual: str) -> str:
    """The program's loss; stas00's one row without its fused kernel says what it would be with."""
    if usual == "chunked" and "with Liger" in row.get("notes", ""):
        return "eager"
    of_cut = source.program.loss_of_cut
    return of_cut if of_cut and whole(row, "tp", 1) > 1 else usual


def _overlap(row: Row, source: Source) -> str:
    """What the row states, else what its source's recipes turn on."""
    told, program = row.get("overlaps", ""), source.program
    words = set(program.overlap)
    if "no DP/TP/PP overlap" in row.get("notes", ""):
        words.discard("grads")
    if program.late_shards and row["sharding"] == "zero1":
        words.discard("grads")
    if told or source.states_switches:
        words |= {found for word, found in OVERLAPS.items() if word in told}
    else:
        words |= program.switched
    text = f"{row.get('variant', '')} {row.get('notes', '')}".lower()
    if "async tp" in text or "asynctp" in text:
        words.add("tensor")
    if "a2a overlap" in text:
        words.add("experts")
    words |= wrapped_overlaps_of(row) | mlperf.common_overlaps_of(row)
    return ",".join(sorted(words - unhidden_of(row))) or "none"


def _modules(row: Row, source: Source) -> str:
    notes = row.get("notes", "")
    told = re.search(r"selective recompute ([a-z_+]+)", notes)
    told = told or re.search(r"\b((?:mlp|core_attn|layernorm)(?:\+[a-z_]+)*) recompute", notes)
    if "recompute=selective:norm,act" in notes:  # words of Megatron-MoE-ModelZoo's table
        return "layernorm+moe_act"
    return row.get("recompute_modules") or (told[1] if told else source.program.selective)


def _layers_again(row: Row, source: Source) -> int | None:
    """Of a full recompute that is of some layers only, how many; None is of all."""
    told = re.search(r"PARTIAL: full/block on (\d+) of", row.get("notes", ""))
    if told:
        return int(told[1])
    counted = re.search(r"HFU/MFU=([\d.]+)", row.get("notes", ""))
    if not source.program.selects_layers or not counted:
        return None
    # both counts of FLOP are over one time: 3 passes of each layer, and one more of some
    layers = whole(row, "layers")
    again = round(3.0 * (float(counted[1]) - 1.0) * layers)
    return again if 0 < again < layers else None


def _recompute(row: Row, source: Source) -> str:
    """In the words of ``--recompute``: what some programs call selective is of whole layers."""
    told = mlperf.recompute_of(row)
    return "full" if told == "selective" and source.program.selects_layers else told


def _shard_ranks(row: Row) -> int | None:
    """Hybrid sharding: HSDP shards over a node, InternEvo's notes give the group."""
    told = re.search(r"shard group=(\d+)", row.get("notes", ""))
    if told:
        return int(told[1])
    return whole(row, "gpus_per_node", 8) if row["sharding"] == "hsdp" else None


def _schedule(row: Row) -> str:
    """1F1B, but for the zero-bubble paper's own."""
    variant = row.get("variant", "").lower()
    return variant if variant in ("zb-1p", "zb-2p") else "1f1b"


def _sequence_parallel(row: Row, source: Source) -> bool:
    told = row.get("sequence_parallel", "")
    if told:
        return told != "False"
    without = "WITHOUT sequence parallelism" in row.get("notes", "")
    return source.program.sequence_parallel and not without


def _main_grads(row: Row, source: Source) -> str:
    """Of the source's program, or what the row's own notes say."""
    notes = row.get("notes", "")
    wide = source.program.wide_grads or any(w in notes for w in _WIDE_WORDS)
    return "fp32" if wide and row["precision"] != "fp16" else source.program.grads


#: Notes that say gradients are reduced in fp32: BLOOM's, and llm-foundry's FSDP in DEFAULT mode.
_WIDE_WORDS = ("fp32 grad acc", "grad reduce fp32")


def _precision(row: Row, source: Source) -> str:
    found = PRECISIONS[mlperf.precision_of(row)]
    return source.program.fp8 if found == "fp8" else found


#: Mixed-precision training with Adam, as the sources run it.
_LOOP: Options = {"optimizer": "adamw", "optimizer_impl": "fused", "grad_clip": True}


def _language_model(row: Row, source: Source) -> Options:
    """The words of a model of the row's dimensions."""
    settings = settled(ARCH, _config(row, source), source.program.software.name)
    return _LOOP | {"settings": settings}


def _cluster(row: Row, source: Source) -> tuple[str, Options]:
    gpus = whole(row, "gpus")
    a_node = min(gpus, whole(row, "gpus_per_node", 8))
    kind = row["gpu_type"]
    if "NVL72" in kind:
        a_node = next(n for n in RACK_GPUS if n <= gpus and gpus % n == 0)
    if gpus % a_node:
        raise KeyError(f"{gpus} GPUs are no whole number of nodes of {a_node}")
    options: Options = {}
    rate = number(row, "inter_node_gbps_per_gpu")
    node_rate = source.node_gbit_per_s or (rate * a_node if rate else None)
    if source.node:
        options["node"] = source.node
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
    source = source_of(row)
    program = source.program
    try:
        cluster, options = _cluster(row, source)
    except KeyError as err:
        return Skipped(name, str(err.args[0]))
    words = diffusion.words_of(row) if row["arch"] == "dit" else _language_model(row, source)
    if isinstance(words, str):
        return Skipped(name, words)
    options |= words
    recompute = _recompute(row, source)
    sharding = SHARDING[row["sharding"] or "ddp"]
    micro_batch = micro_batch_of(row)
    if program.whole_stages and whole(row, "pp", 1) > 1:
        sharding = "zero1"
        if not row.get("micro_batch"):
            parts = whole(row, "dp") * whole(row, "pp")
            micro_batch = max(1, whole(row, "global_batch") // parts)
    options |= {
        "strategy": sharding,
        "precision": _precision(row, source),
        "recompute": recompute,
        "recompute_modules": _modules(row, source) if recompute == "selective" else None,
        "recompute_layers": _layers_again(row, source) if recompute == "full" else None,
        "main_grads": _main_grads(row, source),
        "micro_batch": micro_batch,
        "global_batch": whole(row, "global_batch"),
        "tp": whole(row, "tp", 1),
        "pp": whole(row, "pp", 1),
        "vpp": chunks_of(row, interleaved=source.interleaved),
        "stages": stages_of(row),
        "cp": whole(row, "cp", 1),
        "cp_comm": mlperf.context_of(row),
        "ep": whole(row, "ep", 1) if row["arch"] == "moe" else 1,
        "sequence_parallel": _sequence_parallel(row, source),
        "overlap": _overlap(row, source),
        "issuer": issuer_of(row, program),
        "launch_blocking": False,
        "dispatcher": dispatcher_of(row),
        "software": program.software.name,
        "shard_ranks": _shard_ranks(row),
        "schedule": _schedule(row),
    }
    options |= cast("Options", program.options)
    options |= source.options
    options |= offloaded_of(row)
    options |= fp8_params_of(row, program)
    if row["arch"] == "dit":
        options |= diffusion.options_of(row)
    memory = number(row, "peak_mem_gib")
    counted = "rank0_allocated" if "mem=rank-0" in row.get("notes", "") else source.memory
    case = Case(
        id=name,
        table="llm",
        model=row["model"] if row["arch"] == "dit" else PREFIX + ARCH,
        label=row["model"],
        settings_of_program=row["arch"] != "dit",
        gpus=cluster,
        options=options,
        measured=present(
            step_time_s=number(row, "step_time_s"),
            **{f"peak_{counted}_bytes": None if memory is None else memory * source.memory_bytes},
        ),
        columns={
            **row,
            "memory_definition": counted if memory else "",
            "cluster_state": cluster_state_of(row),
        },
        flag="the source's row is anomalous" if row.get("flagged_anomaly") == "yes" else "",
        notes=row.get("notes", "")[:200],
    )
    return case if row["source"] in SOURCES else unnamed(case, _told(row))


def _told(row: Row) -> list[str]:
    """Options of a program that a row tells itself, whoever its source is."""
    columns = {"sequence_parallel": "sequence_parallel", "overlaps": "overlap",
               "cuda_graph": "issuer"}  # fmt: skip
    return [option for column, option in columns.items() if row.get(column)]


FORMAT = Format("llm", frozenset({"arch", "tp", "pp", "sharding", "step_time_s"}), _read)
