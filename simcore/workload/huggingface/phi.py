"""Configs of phi (1, 1.5 and 2) and phi3 (also Phi-3.5 and 4)."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import (
    PLAIN,
    gated_layers,
    rotary_share,
    sizes,
    tied,
    translated,
)
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated


@ADAPTERS.register("phi")
def phi(f: Fields) -> Translated:
    """Attention parallel to feed-forward after one norm, rotary positions on half of each head."""
    config, positions = sizes(f)
    config |= {
        "ffn": f.count("intermediate_size", default=8192),
        "mlp": f.word("hidden_act", default="gelu_new", among=PLAIN),
        "norm": "layernorm",
        "bias": True,
        "head_bias": True,
        "tied": tied(f, False),
        "residual": "parallel_one_norm",
        "rotary_share": rotary_share(f, 0.5),
        "rotary_joined": True,
        "qk_norm": f.flag("qk_layernorm", default=False),
        "dropout": f.number("resid_pdrop", default=0.0, high=1.0),
    }
    return translated(f, config, positions)


@ADAPTERS.register("phi3")
def phi3(f: Fields) -> Translated:
    """llama with q, k and v in one product, and gate and up in another."""
    config, positions = sizes(f)
    config |= {
        **gated_layers(f),
        "fused_qkv": True,
        "fused_gate_up": True,
        "rotary_share": rotary_share(f, 1.0),
        "rotary_joined": True,
        "dropout": f.number("resid_pdrop", default=0.0, high=1.0),
    }
    if size := f.count("sliding_window", default=0):
        config["window"] = size
    return translated(f, config, positions)
