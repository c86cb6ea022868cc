"""Configs of olmo, olmo2, olmo3 and olmoe."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import (
    ROUTING,
    gated_layers,
    sizes,
    translated,
    windows,
)
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Setting, Translated


def _common(f: Fields) -> tuple[dict[str, Setting], int]:
    """The settings that all types share, and the number of positions."""
    config, positions = sizes(f)
    biased = f.flag("attention_bias", default=False)
    return config | {**gated_layers(f), "qkv_bias": biased, "out_bias": biased}, positions


@ADAPTERS.register("olmo")
def olmo(f: Fields) -> Translated:
    """llama with layer norms that have neither weight nor bias."""
    config, positions = _common(f)
    config |= {"norm": "layernorm", "norm_weight": False, "qkv_clip": f.has("clip_qkv")}
    return translated(f, config, positions, "casts of 16-bit norms to fp32 are left out")


@ADAPTERS.register("olmo2")
def olmo2(f: Fields) -> Translated:
    """llama with norms after attention and feed-forward, and over q and k as a whole.

    As in Gemma, norms multiply by the weight before they cast back to 16 bit.
    """
    config, positions = _common(f)
    config |= {
        "norm": "rmsnorm_gemma",
        "residual": "after",
        "qk_norm": True,
        "qk_norm_whole": True,
    }
    return translated(f, config, positions)


@ADAPTERS.register("olmo3")
def olmo3(f: Fields) -> Translated:
    """olmo2 in which three of four layers have windowed attention."""
    base = olmo2(f)
    size = f.count("sliding_window", default=4096, low=0)
    return translated(
        f, base.config | windows(f, "wwwf", int(base.config["layers"]), size), base.positions
    )


@ADAPTERS.register("olmoe")
def olmoe(f: Fields) -> Translated:
    """llama with experts in every layer, and norms over q and k as a whole."""
    config, positions = _common(f)
    config |= {
        "qk_norm": True,
        "qk_norm_whole": True,
        "qkv_clip": f.has("clip_qkv"),
        "experts": f.count("num_experts", "num_local_experts", default=64),
        "top_k": f.count("num_experts_per_tok", default=8),
        "expert_ffn": int(config["ffn"]),
    }
    return translated(f, config, positions, ROUTING)
