"""Models of 2025 similar to llama (seed_oss, ernie4_5, hunyuan_v1_dense, glm4, exaone4, arcee), and
dots1, which is similar to glm4_moe."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import (
    PLAIN,
    ROUTING,
    gated_layers,
    rotary_share,
    sizes,
    tied,
    translated,
    windows,
)
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.glm_moe import glm4_moe
from simcore.workload.huggingface.registry import ADAPTERS, Translated


@ADAPTERS.register("seed_oss")
def seed_oss(f: Fields) -> Translated:
    """llama with biases on q, k and v, and on attention's output if ``attention_out_bias``."""
    config, positions = sizes(f)
    config |= {
        "head_dim": f.count("head_dim", default=128),
        **gated_layers(f),
        "qkv_bias": f.flag("attention_bias", default=True),
        "out_bias": f.flag("attention_out_bias", default=False),
        "mlp_bias": f.flag("mlp_bias", default=False),
    }
    dropout = f.number("residual_dropout", default=0.1, high=1.0)
    notes = ("dropout after attention and feed-forward is left out",) if dropout else ()
    return translated(f, config, positions, *notes)


@ADAPTERS.register("ernie4_5")
def ernie(f: Fields) -> Translated:
    """llama with all biases or none, and with a head tied to the embedding by default."""
    config, positions = sizes(f)
    biased = f.flag("use_bias", default=False)
    config |= {
        "head_dim": f.count("head_dim", default=128),
        **gated_layers(f),
        **dict.fromkeys(("qkv_bias", "out_bias", "mlp_bias"), biased),
        "tied": tied(f, True),
        "rotary_joined": True,
    }
    return translated(f, config, positions)


@ADAPTERS.register("hunyuan_v1_dense")
def hunyuan(f: Fields) -> Translated:
    """llama with norms over each head of q and k, after the rotation."""
    config, positions = sizes(f)
    biased = f.flag("attention_bias", default=False)
    config |= {**gated_layers(f), "qkv_bias": biased, "out_bias": biased, "qk_norm": True}
    return translated(f, config, positions)


@ADAPTERS.register("glm4")
def glm4(f: Fields) -> Translated:
    """glm with norms before and after attention and feed-forward (GLM-4 of April 2025 and Z1)."""
    config, positions = sizes(f)
    config |= {
        "head_dim": f.count("head_dim", default=128),
        **gated_layers(f),
        "qkv_bias": f.flag("attention_bias", default=False),
        "fused_gate_up": True,
        "rotary_share": rotary_share(f, 0.5),
        "rotary_joined": True,
        "residual": "sandwich",
    }
    return translated(f, config, positions)


@ADAPTERS.register("exaone4")
def exaone4(f: Fields) -> Translated:
    """olmo2 with norms over each head.

    If some layers are windowed, the other layers have no positions.
    """
    config, positions = sizes(f)
    layers, size = int(config["layers"]), f.count("sliding_window", default=0, low=0)
    config |= {**gated_layers(f), "residual": "after", "qk_norm": True}
    if not size:
        return translated(f, config, positions)
    every = f.data.get("sliding_window_pattern") or 4
    period = len(every) if isinstance(every, str) else f.count("sliding_window_pattern", default=4)
    windowed = windows(f, "w" * (period - 1) + "f", layers, size)
    if pattern := str(windowed.get("window_pattern", "")):
        windowed["rope_pattern"] = pattern.replace("w", "r").replace("f", "n")
    return translated(f, config | windowed, positions)


@ADAPTERS.register("arcee")
def arcee(f: Fields) -> Translated:
    """llama whose feed-forward layers have no gate."""
    config, positions = sizes(f)
    biased = f.flag("attention_bias", default=False)
    config |= {
        "ffn": f.count("intermediate_size"),
        "mlp": f.word("hidden_act", default="relu2", among=PLAIN),
        "qkv_bias": biased,
        "out_bias": biased,
        "mlp_bias": f.flag("mlp_bias", default=False),
        "tied": tied(f, False),
    }
    return translated(f, config, positions)


@ADAPTERS.register("dots1")
def dots1(f: Fields) -> Translated:
    """glm4_moe with norms over each head of q and k, and rotary positions on whole heads."""
    base = glm4_moe(f)
    biased = f.flag("attention_bias", default=False)
    layers, config = int(base.config["layers"]), dict(base.config)
    del config["rotary_joined"], config["rotary_share"]
    config |= {
        "out_bias": biased,
        "qk_norm": True,
        "shared_ffn": int(config["expert_ffn"]) * f.count("n_shared_experts", default=0, low=0),
        "experts": f.count("n_routed_experts", "num_local_experts"),
    }
    if f.words("layer_types"):
        size = f.count("sliding_window", default=4096, low=0)
        config |= windows(f, "f", layers, size)
    return translated(f, config, base.positions, ROUTING)
