"""Configs of qwen (the first), qwen2 (also 1.5 and 2.5) and qwen3."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import gated_layers, sizes, tied, translated, windows
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Setting, Translated


def windowed(f: Fields, layers: int) -> dict[str, Setting]:
    """Settings of windowed attention in layers from ``max_window_layers`` on.

    None unless ``use_sliding_window``.
    """
    if not f.flag("use_sliding_window", default=False):
        return {}
    full = min(f.count("max_window_layers", default=28, low=0), layers)
    size = f.count("sliding_window", default=4096, low=0)
    return windows(f, "f" * full + "w" * (layers - full), layers, size)


@ADAPTERS.register("qwen")
def qwen(f: Fields) -> Translated:
    """The model in modeling_qwen.py, whose q, k and v are one product with biases.

    ``no_bias`` concerns the other products. ``intermediate_size`` is the width of gate and up
    together (QWenMLP).
    """
    config, positions = sizes(f, kv_heads=False)
    both = f.count("intermediate_size", default=22016, low=2)
    if both % 2:
        raise f.error("intermediate_size", f"must be even, not {both}")
    config |= {
        "head_dim": f.count("kv_channels", default=int(config["head_dim"])),
        "ffn": both // 2,
        "mlp": "swiglu",
        "fused_qkv": True,
        "tied": tied(f, False),
        "qkv_bias": True,
        "bias": not f.flag("no_bias", default=True),
    }
    return translated(f, config, positions)


@ADAPTERS.register("qwen2")
def qwen2(f: Fields) -> Translated:
    """llama with biases on q, k and v."""
    config, positions = sizes(f)
    config |= {
        **gated_layers(f),
        "qkv_bias": True,
        **windowed(f, int(config["layers"])),
    }
    return translated(f, config, positions)


@ADAPTERS.register("qwen3")
def qwen3(f: Fields) -> Translated:
    """llama with a norm over each head of q and k."""
    config, positions = sizes(f)
    biased = f.flag("attention_bias", default=False)
    config |= {
        "head_dim": f.count("head_dim", default=128),
        **gated_layers(f),
        "qkv_bias": biased,
        "out_bias": biased,
        "qk_norm": True,
        **windowed(f, int(config["layers"])),
    }
    return translated(f, config, positions)
