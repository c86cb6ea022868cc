"""Configs of falcon_h1, bamba and granitemoehybrid (Granite 4), with Mamba-2 and attention."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import (
    GATED,
    ROUTING,
    gated_layers,
    rotary_share,
    shortest,
    sizes,
    tied,
    translated,
)
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.mamba import KERNELS
from simcore.workload.huggingface.registry import ADAPTERS, Setting, Translated

#: Word in ``layer_types`` (also of older files) -> letter of the mixer.
_MIXERS = {"mamba": "m", "linear_attention": "m", "attention": "a", "full_attention": "a"}


def _mixer(f: Fields, inner: int) -> dict[str, Setting]:
    """Mamba-2's settings, from keys that the three types share; ``inner``: its inner width."""
    heads = f.count("mamba_n_heads", default=128)
    if inner % heads:
        raise f.error("mamba_n_heads", f"{heads} does not divide the inner width {inner}")
    auto = f.data.get("mamba_d_head", "auto") == "auto"
    width = inner // heads if auto else f.count("mamba_d_head")
    if heads * width != inner:
        raise f.error("mamba_d_head", f"{heads} of width {width} are not the inner width {inner}")
    groups = f.count("mamba_n_groups", default=1)
    if heads % groups:
        raise f.error("mamba_n_groups", f"{groups} does not divide {heads} heads")
    return {
        "ssm_heads": heads,
        "ssm_head_dim": width,
        "ssm_state": f.count("mamba_d_state", default=256),
        "ssm_groups": groups,
        "ssm_chunk": f.count("mamba_chunk_size", default=256),
        "conv_kernel": f.count("mamba_d_conv", default=4),
        "conv_bias": f.flag("mamba_conv_bias", default=True),
        "bias": f.flag("mamba_proj_bias", default=False),
    }


def _biases(f: Fields) -> dict[str, Setting]:
    """Which products of attention and feed-forward have biases."""
    biased = f.flag("attention_bias", default=False)
    return {
        "qkv_bias": biased,
        "out_bias": biased,
        "mlp_bias": f.flag("mlp_bias", default=False),
    }


@ADAPTERS.register("falcon_h1")
def falcon_h1(f: Fields) -> Translated:
    """Attention parallel to Mamba-2 in every layer; their inputs and outputs are scaled."""
    config, positions = sizes(f)
    by_expansion = f.data.get("mamba_d_ssm", 0) is None  # With null, as wide as in mamba2.
    inner = (
        f.count("mamba_expand", default=2) * int(config["hidden"])
        if by_expansion
        else f.count("mamba_d_ssm")
    )
    config |= {**gated_layers(f), **_mixer(f, inner), **_biases(f)}
    if config["bias"] != f.flag("projectors_bias", default=False):
        raise f.error("projectors_bias", "must equal mamba_proj_bias")
    config |= {
        "mixer_pattern": "h",
        "ssm_norm": f.flag("mamba_rms_norm", default=False),
        "scaled_embedding": True,
        "scaled_parts": True,
        "scaled_logits": True,
    }
    return translated(f, config, positions, KERNELS)


@ADAPTERS.register("bamba")
def bamba(f: Fields) -> Translated:
    """Mamba-2, and attention in the layers that ``attn_layer_indices`` lists.

    Half of each attention head has rotary positions.
    """
    config, positions = sizes(f)
    layers, hidden = int(config["layers"]), int(config["hidden"])
    attending = f.counts("attn_layer_indices")
    config |= {
        **gated_layers(f),
        **_mixer(f, f.count("mamba_expand", default=2) * hidden),
        **_biases(f),
        "mixer_pattern": shortest("".join("a" if i in attending else "m" for i in range(layers))),
        "rotary_share": rotary_share(f, 0.5),
        "rotary_joined": True,
    }
    given = positions if f.has("max_position_embeddings") else 262_144
    return translated(f, config, given, KERNELS)


def _types(f: Fields, layers: int) -> str:
    """The pattern of mixers. Raises DataError."""
    key = next((k for k in ("layer_types", "layers_block_type") if f.has(k)), "layer_types")
    kinds = f.words(key) or ("mamba",) * layers
    for kind in kinds:
        if kind not in _MIXERS:
            raise f.error(key, f"{kind!r:.40} is none of {', '.join(_MIXERS)}")
    if len(kinds) < layers:
        raise f.error(key, f"{len(kinds)} entries for {layers} layers")
    return shortest("".join(_MIXERS[k] for k in kinds[:layers]))


@ADAPTERS.register("granitemoehybrid")
def granitemoehybrid(f: Fields) -> Translated:
    """granite whose layers are mostly Mamba-2, possibly with experts and a shared expert."""
    config, positions = sizes(f)
    experts = f.count("num_local_experts", default=8, low=0)
    shared = f.count("shared_intermediate_size")
    config |= {
        **_mixer(f, f.count("mamba_expand", default=2) * int(config["hidden"])),
        **_biases(f),
        "mixer_pattern": _types(f, int(config["layers"])),
        "positions": "rope" if f.data.get("position_embedding_type") == "rope" else "none",
        "ffn": shared,
        "mlp": f.word("hidden_act", default="silu", among=GATED),
        "mlp_bias": False,
        "fused_gate_up": True,
        "tied": tied(f, False),
        "scaled_embedding": True,
        "scaled_residual": True,
        "scaled_logits": True,
    }
    if not experts:
        return translated(f, config, positions, KERNELS)
    config |= {
        "experts": experts,
        "top_k": f.count("num_experts_per_tok", default=2),
        "expert_ffn": f.count("intermediate_size", default=11008),
        "shared_ffn": shared,
    }
    return translated(f, config, positions, KERNELS, ROUTING)
