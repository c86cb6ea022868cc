"""Configs of llama (also Llama 2, 3 and 3.1) and mistral."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import gated_layers, sizes, translated
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated


@ADAPTERS.register("llama")
def llama(f: Fields) -> Translated:
    """RMSNorm, rotary positions, gated layers, grouped-query attention."""
    config, positions = sizes(f)
    biased = f.flag("attention_bias", default=False)
    config |= {
        **gated_layers(f),
        "qkv_bias": biased,
        "out_bias": biased,
        "mlp_bias": f.flag("mlp_bias", default=False),
    }
    return translated(f, config, positions)


@ADAPTERS.register("mistral")
def mistral(f: Fields) -> Translated:
    """llama with windowed attention in every layer, unless ``sliding_window`` is null."""
    config, positions = sizes(f)
    config |= {
        **gated_layers(f),
    }
    missing = "sliding_window" not in f.data
    if size := f.count("sliding_window", default=4096 if missing else 0):
        config["window"] = size
    return translated(f, config, positions)
