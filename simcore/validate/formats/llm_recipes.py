"""What recipes make of a job beside its row in ``llm.csv``: experts, graphs, dispatch, stages.

Most are NVIDIA's Megatron-Bridge, whose settings lie in scripts/performance/configs by release;
paths below are from there where no other is named.
"""

from __future__ import annotations

from simcore.strategy.cut_rules import modules_cut
from simcore.strategy.cuts import written
from simcore.validate.formats import Row, whole
from simcore.validate.formats.llm_sources import (
    DENSE_FIRST,
    GPT_OSS,
    GROUPED_EXPERTS,
    INTERLEAVED,
    LATENT,
    MEGATRON,
    QWEN3,
    SHARED_EXPERTS,
)
from simcore.workload.models import Scalar

BRIDGE = "nvidia-megatron-bridge"
#: Models that Megatron-Bridge's recipes cut by a list of chunks: all as long but the last, which
#: has the loss (and multi-token prediction) too (recipes/deepseek/deepseek_v3.py, map_pp_vp_to_
#: layout; recipes/kimi/kimi_k2.py): 61 layers in 16 chunks are 15 of 4 and one.
_LONG_CHUNKS = ("deepseek-v3", "kimi-k2")
#: Runs that replay graphs of whole layers or steps and do not say so: Qwen3 30B on Blackwell in
#: the first release (25.09), whose experts have a fixed capacity (qwen3/qwen3_30b_a3b_llm_
#: pretrain.py: cuda_graph_impl "local" of "full_iteration"; its H100 recipes have none).
_GRAPHS = {("25.09", "qwen3-30b-a3b"): ("B200", "GB200")}
#: Plain all-to-alls although a flexible backend is named, which is then not used: "alltoall" is set
#: for these after it (qwen/qwen3_llm_pretrain.py: moe_token_dispatcher_type).
_PLAIN = {"qwen3-235b-a22b": ("H100", "B200", "B300")}
#: Runs whose tensor ranks' exchanges do not hide beside products, from 26.02 on (ibid.:
#: CommOverlapConfig(tp_comm_overlap=False)).
_BARE_TENSOR = {"qwen3-235b-a22b": ("H100",)}
_BARE_SINCE = "26"


def _chip(row: Row) -> str:
    return row["gpu_type"].partition("-")[0]


def next_tokens_of(row: Row) -> int:
    """Modules that predict further tokens: DeepSeek-V3 trained with one (2024, 4.2), and so do
    rows that say so.
    """
    return int(row.get("mtp") == "yes" or row["source"] == "deepseek-v3-report")


def experts_of(row: Row, layers: int) -> dict[str, Scalar]:
    """Settings of a mixture's layers."""
    base = next((m for m in DENSE_FIRST if row["model"].startswith(m)), "")
    width = whole(row, "moe_ffn", whole(row, "ffn"))
    config: dict[str, Scalar] = {
        "experts": whole(row, "moe_experts"),
        "top_k": whole(row, "moe_topk", 1),
        "expert_ffn": width,
        "weighed_early": row["source"] in MEGATRON,
        "padded_rows": _padded_rows(row),
        "fused_experts": _fused_experts(row),
    }
    if base:
        # a model cut down to a few layers keeps one dense one ("first dense", as such rows say)
        dense = 1 if "(first dense)" in row.get("notes", "") else DENSE_FIRST[base]
        dense = min(dense, layers - 1)
        config |= LATENT
        config["shared_ffn"] = SHARED_EXPERTS[base] * width
        config["expert_pattern"] = "d" * dense + "e" * (layers - dense)
        config["fused_qkv"] = False
    elif row["model"].startswith("gpt-oss"):
        config |= GPT_OSS
        if not _fused_experts(row):
            config |= GROUPED_EXPERTS
    elif row["model"].startswith("qwen3"):
        config |= QWEN3
    return config


def _fused_experts(row: Row) -> bool:
    """Whether the experts run as one kernel with their activation and casts.

    Megatron-Bridge's recipes in MXFP8 set cutedsl_fused_grouped_mlp wherever they capture the step
    in one graph (deepseek, qwen and gpt_oss/*_workload_base_configs.py), gpt-oss's everywhere.
    """
    if row["source"] != BRIDGE or row["precision"] != "mxfp8" or _fixed_rows(row):
        return False
    return issuer_of(row) == "graph" or row["model"].startswith("gpt-oss")


def _fixed_rows(row: Row) -> bool:
    """Whether each expert has as many rows in every step, tokens beyond them being dropped."""
    return "token-drop" in row.get("notes", "")


def _padded_rows(row: Row) -> bool:
    """Whether each expert's rows are copied to whole blocks of scales before 8-bit products.

    Megatron-Core does (transformer/moe/experts.py, TEGroupedMLP: quantization_padding) unless the
    router has padded them, which Megatron-Bridge's recipes leave off (recipes/qwen/h100/
    qwen3_moe.py: moe_router_padding_for_fp8 = False). HybridEP brings whole blocks (token_
    dispatcher.py, _HybridEPManager: pad_multiple), and so are rows of a fixed number.
    """
    hybrid = "hybridep" in _named(row) and dispatcher_of(row) != "alltoall"
    blocks = _fixed_rows(row) or hybrid or _fused_experts(row)
    return row["source"] == BRIDGE and row["precision"] != "bf16" and not blocks


def issuer_of(row: Row) -> str:
    """What issues kernels: graphs of the step or of layers, Megatron-LM's modules, or torch's."""
    graph = row.get("cuda_graph", "")
    if graph == "on" or graph.startswith(("full_iteration", "local/full_iteration")):
        return "graph"
    chips = _GRAPHS.get((row.get("variant", ""), row["model"]), ())
    if row["source"] == BRIDGE and _chip(row) in chips:
        return "graph"
    if row["source"] not in MEGATRON:
        return "torch"
    layers = "'attn'" in graph or "cuda graph attn" in row.get("notes", "")
    return "megatron_graphs" if layers else "megatron"


def _named(row: Row) -> str:
    return f"{row.get('mb_dispatcher', '')} {row.get('notes', '')}".lower()


def dispatcher_of(row: Row) -> str:
    """How rows get to their experts."""
    said = _named(row)
    once = "deepep" in said or "hybridep" in said or row["source"] == "deepseek-v3-report"
    plain = row["source"] == BRIDGE and _chip(row) in _PLAIN.get(row["model"], ())
    return "deepep" if once and not plain else "alltoall"


def unhidden_of(row: Row) -> frozenset[str]:
    """Overlaps that the recipe of a row turns off, where others of its source have them."""
    bare = row["source"] == BRIDGE and _chip(row) in _BARE_TENSOR.get(row["model"], ())
    since = row.get("variant", "") >= _BARE_SINCE
    return frozenset({"tensor"}) if bare and since else frozenset()


def chunks_of(row: Row) -> int:
    """Chunks of layers a pipeline rank; a blank of an interleaved source is one layer each."""
    pp = whole(row, "pp", 1)
    if pp == 1:
        return 1
    if not row.get("vpp") and row["source"] in INTERLEAVED:
        return max(1, round(whole(row, "layers") / pp))
    return whole(row, "vpp", 1)


def stages_of(row: Row) -> str | None:
    """Layers of each stage, where the source's recipe has others than even ones."""
    pp, vpp, layers = whole(row, "pp", 1), chunks_of(row), whole(row, "layers")
    if pp > 1 and "embed_partition" in row.get("variant", ""):
        # Megatron-DeepSpeed's type:transformer|embedding: embedding and head as a layer each
        return written(modules_cut(layers, pp, 1, 1))
    if row["source"] != BRIDGE or pp == 1 or layers % pp == 0:
        return None
    if not row["model"].startswith(_LONG_CHUNKS):
        return None
    chunk = -(-layers // (pp * vpp))
    short = chunk * pp * vpp - layers
    last = chunk * vpp - short + next_tokens_of(row)
    return f"{pp - 1}x{chunk * vpp},{last}" if short < chunk else None
