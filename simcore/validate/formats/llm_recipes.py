"""What recipes make of a job beside its row in ``llm.csv``: experts, graphs, dispatch, stages.

Most are NVIDIA's Megatron-Bridge, whose settings lie in scripts/performance/configs by release;
paths below are from there where no other is named.
"""

from __future__ import annotations

import re

from simcore.engine.options import Options
from simcore.strategy.cut_rules import modules_cut
from simcore.strategy.cuts import written
from simcore.strategy.programs import Runs
from simcore.validate.formats import Row, whole
from simcore.validate.formats import llm_mlperf as mlperf
from simcore.workload.models import Scalar

BRIDGE = "nvidia-megatron-bridge"
_DGX_CLOUD = "nvidia-dgxc-benchmarking"
#: DeepSeek-V2 and V3 (arXiv:2405.04434, 2412.19437) and Kimi-K2, which shares their layer.
LATENT: dict[str, Scalar] = {
    "q_rank": 1536, "kv_rank": 512, "rope_dim": 64, "head_dim": 192, "value_dim": 128,
}  # fmt: skip
DENSE_FIRST = {"deepseek-v2": 1, "deepseek-v3": 3, "kimi-k2": 1}
SHARED_EXPERTS = {"deepseek-v2": 2, "deepseek-v3": 1, "kimi-k2": 1}
#: Groups of experts, and how many of them a token goes to (their configs: n_group, topk_group).
EXPERT_GROUPS = {"deepseek-v2": (8, 3), "deepseek-v3": (8, 4)}
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
#: Models that Megatron-Bridge's recipes cut by a list of chunks: all as long but the last, which
#: has the loss (and multi-token prediction) too (recipes/deepseek/deepseek_v3.py, map_pp_vp_to_
#: layout; recipes/kimi/kimi_k2.py): 61 layers in 16 chunks are 15 of 4 and one.
_LONG_CHUNKS = ("deepseek-v3", "kimi-k2")
#: Runs that replay graphs of whole layers or steps and do not say so: Qwen3 30B on Blackwell in
#: the first release (25.09), whose experts have a fixed capacity (qwen3/qwen3_30b_a3b_llm_
#: pretrain.py: cuda_graph_impl "local" of "full_iteration"; its H100 recipes have none).
_GRAPHS = {("25.09", "qwen3-30b-a3b"): ("B200", "GB200")}
#: The same of NeMo's recommended configurations, which DGX Cloud's recipes take (NVIDIA/NeMo,
#: scripts/performance/recommended_model_configs/model_configs_gb200.csv: cuda_graphs = 1, none of
#: the H100's).
_NEMO_GRAPHS = {"nemotron4-340b": ("GB200",)}
#: Plain all-to-alls although a flexible backend is named, which is then not used: "alltoall" is set
#: for these after it (qwen/qwen3_llm_pretrain.py: moe_token_dispatcher_type).
_PLAIN = {"qwen3-235b-a22b": ("H100", "B200", "B300")}
#: Runs whose tensor ranks' exchanges do not hide beside products, from 26.02 on (ibid.:
#: CommOverlapConfig(tp_comm_overlap=False)).
_BARE_TENSOR = {"qwen3-235b-a22b": ("H100",)}
_BARE_SINCE = "26"
#: Samples a micro-batch and chunks of layers a rank by a model's width, and those whose gradients
#: torch's DistributedDataParallel reduces under backward (Megatron-LM, examples/sc21/
#: run_table_1.sh: MBS, --num-layers-per-virtual-pipeline-stage, DDP=torch). The chunks and that
#: wrapper are of April 2021's runs, January's were the same jobs without interleaving.
_SC21_SAMPLES = {
    2304: 16, 3072: 16, 4096: 16, 6144: 8, 8192: 4, 10240: 2, 12288: 2, 16384: 1, 20480: 1,
    25600: 1,
}  # fmt: skip
_SC21_CHUNKS = {10240: 3, 12288: 2, 16384: 2, 20480: 3}
_SC21_WRAPPED = (2304, 3072, 4096, 6144)
_SC21, _SC21_BEFORE = "megatron-sc21-a100", "megatron-jan21-a100"


def _chip(row: Row) -> str:
    return row["gpu_type"].partition("-")[0]


def next_tokens_of(row: Row) -> int:
    """Modules that predict further tokens, of rows that say so."""
    return int(row.get("mtp") == "yes")


def experts_of(row: Row, layers: int, runs: Runs) -> dict[str, Scalar]:
    """Settings of a mixture's layers."""
    base = next((m for m in DENSE_FIRST if row["model"].startswith(m)), "")
    width = whole(row, "moe_ffn", whole(row, "ffn"))
    config: dict[str, Scalar] = {
        "experts": whole(row, "moe_experts"),
        "top_k": whole(row, "moe_topk", 1),
        "expert_ffn": width,
        "weighed_early": bool(runs.settings.get("weighed_early")),
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
        if base in EXPERT_GROUPS:
            config["expert_groups"], config["top_groups"] = EXPERT_GROUPS[base]
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
    return _captured(row) or row["model"].startswith("gpt-oss")


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


def issuer_of(row: Row, runs: Runs) -> str:
    """What issues kernels: graphs of the step or of layers, Megatron-LM's modules, or torch's."""
    if _captured(row):
        return "graph"
    graph = row.get("cuda_graph", "")
    layers = "'attn'" in graph or graph.endswith("/mlp")
    layers |= "cuda graph attn" in row.get("notes", "")
    return "megatron_graphs" if layers and runs.issuer == "megatron" else runs.issuer


def _captured(row: Row) -> bool:
    """Whether the step is one graph."""
    graph = row.get("cuda_graph", "")
    if graph == "on" or graph.startswith(("full_iteration", "local/full_iteration")):
        return True
    if mlperf.captured(row):
        return True
    chips = {
        BRIDGE: _GRAPHS.get((row.get("variant", ""), row["model"]), ()),
        _DGX_CLOUD: _NEMO_GRAPHS.get(row["model"], ()),
    }
    return _chip(row) in chips.get(row["source"], ())


def _named(row: Row) -> str:
    return f"{row.get('mb_dispatcher', '')} {row.get('notes', '')}".lower()


def dispatcher_of(row: Row) -> str:
    """How rows get to their experts."""
    said = _named(row)
    if row["source"] == BRIDGE and _chip(row) in _PLAIN.get(row["model"], ()):
        return "alltoall"
    return next((name for name in ("hybridep", "deepep") if name in said), "alltoall")


def unhidden_of(row: Row) -> frozenset[str]:
    """Overlaps that the recipe of a row turns off, where others of its source have them."""
    bare = row["source"] == BRIDGE and _chip(row) in _BARE_TENSOR.get(row["model"], ())
    since = row.get("variant", "") >= _BARE_SINCE
    return frozenset({"tensor"}) if bare and since else mlperf.late_overlaps_of(row)


def micro_batch_of(row: Row) -> int:
    """Samples a micro-batch: the row's, else those of the script that ran it, else one."""
    scripted = row["source"] in (_SC21, _SC21_BEFORE)
    usual = _SC21_SAMPLES.get(whole(row, "hidden"), 1) if scripted else 1
    return whole(row, "micro_batch", usual)


def wrapped_overlaps_of(row: Row) -> frozenset[str]:
    """What torch's DistributedDataParallel hides where the script of a row has it for others."""
    wrapped = row["source"] == _SC21 and whole(row, "hidden") in _SC21_WRAPPED
    return frozenset({"grads"}) if wrapped else frozenset()


def chunks_of(row: Row, *, interleaved: bool = False) -> int:
    """Chunks of layers a pipeline rank; a blank of an interleaved source is one layer each."""
    pp = whole(row, "pp", 1)
    if pp == 1:
        return 1
    if row["source"] == "pytorch-torchtitan" and "Interleaved" in row.get("variant", ""):
        # generate_split_points: two stages a rank of a looped schedule where no split is given
        return whole(row, "vpp", 2)
    if row["source"] == _SC21:
        return whole(row, "vpp", _SC21_CHUNKS.get(whole(row, "hidden"), 1))
    if told := mlperf.chunks_told(row):
        return told
    if not row.get("vpp") and interleaved:
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


def offloaded_of(row: Row) -> Options:
    """What the row, else the recipe of its source, keeps on the host."""
    told = row.get("cpu_offload") == "yes"
    layers = re.search(r"CPU activation offload of (\d+) layers", row.get("notes", ""))
    if told:
        return {"offload_layers": int(layers[1])} if layers else {"offload": "optimizer"}
    if row["source"] != BRIDGE or row["sharding"] != "fsdp":
        return {}
    away = OFFLOADED_LAYERS.get((row["model"], _chip(row), row["precision"]))
    return {"offload_layers": away} if away and not row.get("cpu_offload") else {}


def fp8_params_of(row: Row, runs: Runs) -> Options:
    """Whether weights are held in 8 bits, of a program that can."""
    if mlperf.narrow_params(row):
        return {"fp8_params": True}
    if not runs.fp8_weights:
        return {}
    return {"fp8_params": row["precision"] in ("fp8", "fp8-cs")}
