"""Configs of kimi_linear: Kimi Delta Attention, some layers with latent attention, experts."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import ROUTING, gated_layers, shortest, sizes, translated
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Setting, Translated

_KERNELS = "Kimi Delta Attention and its gate run with flash-linear-attention's kernels"
_MIXERS = {"linear_attention": "k", "full_attention": "a"}
_FEED_FORWARD = {"dense": "d", "sparse": "e"}


def _mixers(f: Fields, linear: Fields, layers: int) -> str:
    """The mixer of each layer as a letter: k (Kimi Delta Attention) or a (attention).

    ``full_attn_layers`` counts layers from 1. By default every fourth layer after the first has
    attention, as in KimiLinearConfig.
    """
    if attending := linear.counts("full_attn_layers"):
        return "".join("a" if i + 1 in attending else "k" for i in range(layers))
    kinds = f.words("layer_types")
    if not kinds:
        return "".join("a" if i and i % 4 == 0 else "k" for i in range(layers))
    return _letters(f, "layer_types", kinds, _MIXERS, layers)


def _letters(
    f: Fields, key: str, kinds: tuple[str, ...], among: dict[str, str], layers: int
) -> str:
    """A letter per layer for the words of ``key``. Raises DataError."""
    for kind in kinds:
        if kind not in among:
            raise f.error(key, f"{kind!r:.40} is none of {', '.join(among)}")
    if len(kinds) < layers:
        raise f.error(key, f"{len(kinds)} entries for {layers} layers")
    return "".join(among[k] for k in kinds[:layers])


def _feed_forward(f: Fields, layers: int) -> str:
    """The feed-forward part of each layer as a letter: d (dense) or e (experts)."""
    if kinds := f.words("mlp_layer_types"):
        return _letters(f, "mlp_layer_types", kinds, _FEED_FORWARD, layers)
    dense = min(f.count("first_k_dense_replace", default=1, low=0), layers)
    return "d" * dense + "e" * (layers - dense)


@ADAPTERS.register("kimi_linear")
def kimi_linear(f: Fields) -> Translated:
    """Kimi Delta Attention and latent attention.

    As with rotary positions, a part of each key is shared by all heads, but it is not rotated.
    """
    defaults = {"max_position_embeddings": f.data.get("model_max_length"), "head_dim": 64}
    given = {key: value for key, value in f.data.items() if value is not None}
    config, positions = sizes(Fields({**defaults, **given}, f.path, f.text, f.prefix))
    linear = f.inside("linear_attn_config")
    layers = int(config["layers"])
    shared = f.count("qk_rope_head_dim", default=64)
    heads = linear.count("num_heads", default=f.count("linear_num_heads", default=32))
    width = linear.count("head_dim", default=f.count("linear_head_dim", default=128))
    taps = f.count("linear_conv_kernel_dim", default=4)
    experts = f.count("moe_intermediate_size")
    biased = f.flag("attention_bias", default=False)
    config |= {
        **gated_layers(f),
        "tied": False,  # KimiLinearForCausalLM has no tied weights.
        "positions": "none",
        "mixer_pattern": shortest(_mixers(f, linear, layers)),
        "expert_pattern": shortest(_feed_forward(f, layers)),
        "kv_heads": config["heads"],
        "head_dim": f.count("qk_nope_head_dim", default=128) + shared,
        "value_dim": f.count("v_head_dim", default=128),
        "rope_dim": shared,
        "q_rank": f.count("q_lora_rank", default=0),
        "kv_rank": f.count("kv_lora_rank", default=512),
        "qkv_bias": biased,
        "out_bias": biased,
        "delta_key_heads": heads,
        "delta_value_heads": heads,
        "delta_key_dim": width,
        "delta_value_dim": width,
        "conv_kernel": linear.count("short_conv_kernel_size", default=taps),
        "conv_bias": False,
    }
    moe: dict[str, Setting] = {
        "experts": f.count("num_experts", "num_local_experts", default=256),
        "top_k": f.count("num_experts_per_token", "num_experts_per_tok", default=8),
        "expert_ffn": experts,
        "shared_ffn": experts * f.count("num_shared_experts", "n_shared_experts", default=1, low=0),
    }
    groups = f.count("num_expert_group", "n_group", default=1)
    if (top := f.count("topk_group", default=1)) < groups:
        moe |= {"expert_groups": groups, "top_groups": top}
    if "e" in str(config["expert_pattern"]):
        config |= moe
    return translated(f, config, positions, _KERNELS, ROUTING)
