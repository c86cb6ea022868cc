"""Configs of qwen3_next and qwen3_5, also with experts: gated DeltaNet and gated attention."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import (
    ROUTING,
    gated_layers,
    rotary_share,
    shortest,
    sizes,
    sparse_layers,
    translated,
)
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Setting, Translated

_KERNELS = "gated DeltaNet runs with flash-linear-attention's kernels, not as tensor operations"
_LEFT_OUT = "the language model only: the vision encoder is left out"
_MIXERS = {"linear_attention": "g", "full_attention": "a"}


def _mixers(f: Fields, layers: int) -> str:
    """The pattern of mixers: g (gated DeltaNet) and a (attention). Raises DataError."""
    kinds = f.words("layer_types")
    if not kinds:
        every = f.count("full_attention_interval", default=4)
        return shortest("".join("g" if (i + 1) % every else "a" for i in range(layers)))
    for kind in kinds:
        if kind not in _MIXERS:
            raise f.error("layer_types", f"{kind!r:.40} is none of {', '.join(_MIXERS)}")
    if len(kinds) < layers:
        raise f.error("layer_types", f"{len(kinds)} entries for {layers} layers")
    return shortest("".join(_MIXERS[k] for k in kinds[:layers]))


def _common(f: Fields, products: int) -> tuple[dict[str, Setting], int]:
    """The settings that all types share, and the number of positions.

    ``products``: the matrix products into which DeltaNet's input projection is divided.
    """
    config, positions = sizes(Fields({"head_dim": 256, **f.data}, f.path, f.text, f.prefix))
    biased = f.flag("attention_bias", default=False)
    keys = f.count("linear_num_key_heads", default=16)
    values = f.count("linear_num_value_heads", default=32)
    if values % keys:
        raise f.error("linear_num_value_heads", f"{values} is not a multiple of {keys} key heads")
    config |= {
        "norm": "rmsnorm_gemma",
        "qk_norm": True,
        "qkv_bias": biased,
        "out_bias": biased,
        "rotary_share": rotary_share(f, 0.25),
        "rotary_joined": True,
        "gated_attention": True,
        "mixer_pattern": _mixers(f, int(config["layers"])),
        "delta_key_heads": keys,
        "delta_value_heads": values,
        "delta_key_dim": f.count("linear_key_head_dim", default=128),
        "delta_value_dim": f.count("linear_value_head_dim", default=128),
        "delta_products": products,
        "conv_kernel": f.count("linear_conv_kernel_dim", default=4),
        "conv_bias": False,
    }
    return config, positions


def _experts(f: Fields, experts: int, top_k: int) -> dict[str, Setting]:
    """The settings of experts; ``experts``, ``top_k``: default numbers."""
    return {
        "experts": f.count("num_experts", "num_local_experts", default=experts),
        "top_k": f.count("num_experts_per_tok", default=top_k),
        "expert_ffn": f.count("moe_intermediate_size", default=512),
        "shared_ffn": f.count("shared_expert_intermediate_size", default=512),
        "shared_gate": True,
    }


@ADAPTERS.register("qwen3_next")
def qwen3_next(f: Fields) -> Translated:
    """qwen3_moe with a gated shared expert and DeltaNet, whose input projection is two products."""
    config, positions = _common(f, 2)
    dense = {"intermediate_size": 5632, **f.data}
    config |= gated_layers(Fields(dense, f.path, f.text, f.prefix))
    config["expert_pattern"] = sparse_layers(f, int(config["layers"]))
    if "e" in str(config["expert_pattern"]):
        config |= _experts(f, 512, 10)
    return translated(f, config, positions, _KERNELS, ROUTING)


@ADAPTERS.register("qwen3_5_text")
def qwen3_5_text(f: Fields) -> Translated:
    """qwen3_next without experts; DeltaNet's input projection is four products."""
    config, positions = _common(f, 4)
    dense = {"intermediate_size": 12288, **f.data}
    config |= gated_layers(Fields(dense, f.path, f.text, f.prefix))
    return translated(f, config, positions, _KERNELS)


@ADAPTERS.register("qwen3_5_moe_text")
def qwen3_5_moe_text(f: Fields) -> Translated:
    """qwen3_5_text with experts in every layer."""
    config, positions = _common(f, 4)
    config |= {"mlp": "swiglu", "tied": f.flag("tie_word_embeddings", default=False)}
    config |= _experts(f, 256, 8)
    return translated(f, config, positions, _KERNELS, ROUTING)


def _inside(f: Fields) -> Fields:
    """The fields of a multimodal model's language model.

    ``tie_word_embeddings`` may stand outside of its ``text_config``.
    """
    if not f.has("text_config"):
        return f
    text = f.inside("text_config")
    outer = {k: f.data[k] for k in ("tie_word_embeddings",) if k in f.data}
    return Fields({**outer, **text.data}, text.path, text.text, text.prefix)


def _without_vision(base: Translated) -> Translated:
    """The language model with the note that the vision encoder is left out."""
    return Translated(
        arch=base.arch, sample_unit=base.sample_unit, config=base.config,
        positions=base.positions, notes=(*base.notes, _LEFT_OUT),
    )  # fmt: skip


@ADAPTERS.register("qwen3_5")
def qwen3_5(f: Fields) -> Translated:
    """The language model of the multimodal Qwen3.5."""
    return _without_vision(qwen3_5_text(_inside(f)))


@ADAPTERS.register("qwen3_5_moe")
def qwen3_5_moe(f: Fields) -> Translated:
    """The language model of the multimodal Qwen3.5 with experts."""
    return _without_vision(qwen3_5_moe_text(_inside(f)))
