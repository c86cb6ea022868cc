"""Configs of qwen2_moe and qwen3_moe."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import (
    ROUTING,
    gated_layers,
    sizes,
    sparse_layers,
    translated,
)
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.qwen import windowed
from simcore.workload.huggingface.registry import ADAPTERS, Setting, Translated


def _experts(f: Fields, config: dict[str, Setting], experts: int, top_k: int) -> None:
    """Add the settings of experts to ``config``; ``experts``, ``top_k``: default numbers."""
    config |= {
        **gated_layers(f),
        "expert_pattern": sparse_layers(f, int(config["layers"])),
        "experts": f.count("num_experts", "num_local_experts", default=experts),
        "top_k": f.count("num_experts_per_tok", default=top_k),
    }


@ADAPTERS.register("qwen2_moe")
def qwen2_moe(f: Fields) -> Translated:
    """qwen2 with experts, and a shared expert with a gate."""
    config, positions = sizes(f)
    _experts(f, config, 60, 4)
    config |= {
        "expert_ffn": f.count("moe_intermediate_size", default=1408),
        "shared_ffn": f.count("shared_expert_intermediate_size", default=5632),
        "shared_gate": True,
        "qkv_bias": f.flag("qkv_bias", default=True),
        **windowed(f, int(config["layers"])),
    }
    return translated(f, config, positions, ROUTING)


@ADAPTERS.register("qwen3_moe")
def qwen3_moe(f: Fields) -> Translated:
    """qwen3 with experts, of which none is shared."""
    config, positions = sizes(f)
    _experts(f, config, 128, 8)
    biased = f.flag("attention_bias", default=False)
    config |= {
        "expert_ffn": f.count("moe_intermediate_size", default=768),
        "qk_norm": True,
        "qkv_bias": biased,
        "out_bias": biased,
    }
    if f.flag("use_sliding_window", default=False):
        config["window"] = f.count("sliding_window", default=4096)
    return translated(f, config, positions, ROUTING)
