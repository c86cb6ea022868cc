"""Configs of glm4_moe (GLM-4.5 to 4.7)."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import (
    ROUTING,
    gated_layers,
    rotary_share,
    sizes,
    translated,
)
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated

_LEFT_OUT = "multi-token prediction is left out, as in transformers (next_tokens includes it)"


@ADAPTERS.register("glm4_moe")
def glm4_moe(f: Fields) -> Translated:
    """Dense layers first, then layers with many small experts and a shared one.

    q, k and v have biases and possibly norms over heads; half of each head has rotary positions.
    """
    config, positions = sizes(f)
    layers = int(config["layers"])
    dense = min(f.count("first_k_dense_replace", default=1, low=0), layers)
    width = f.count("moe_intermediate_size", default=1408)
    config |= {
        **gated_layers(f),
        "qkv_bias": f.flag("attention_bias", default=False),
        "out_bias": False,
        "qk_norm": f.flag("use_qk_norm", default=False),
        "rotary_share": rotary_share(f, 0.5),
        "rotary_joined": True,
        "experts": f.count("n_routed_experts", "num_local_experts", default=128),
        "top_k": f.count("num_experts_per_tok", default=8),
        "expert_ffn": width,
        "shared_ffn": width * f.count("n_shared_experts", default=1, low=0),
        "expert_pattern": "d" * dense + "e" * (layers - dense) if dense else "e",
    }
    groups, top = f.count("n_group", default=1), f.count("topk_group", default=1)
    if top < groups:
        config |= {"expert_groups": groups, "top_groups": top}
    return translated(f, config, positions, ROUTING, _LEFT_OUT)
