"""Configs of llama4 (Scout, Maverick): attention in chunks, layers without positions, experts."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import (
    GATED,
    ROUTING,
    shortest,
    sizes,
    tied,
    translated,
)
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated

_SCALING = "the scaling of queries by position, in layers without rotary positions, is left out"


@ADAPTERS.register("llama4_text")
def llama4_text(f: Fields) -> Translated:
    """Every fourth layer has full attention without positions, the others attention in chunks.

    A token uses one expert and a shared one.
    """
    config, positions = sizes(f)
    layers = int(config["layers"])
    has_rope = _has_rope(f, layers)
    biased = f.flag("attention_bias", default=False)
    width = f.count("intermediate_size", default=8192)
    config |= {
        "ffn": f.count("intermediate_size_mlp", default=16384),
        "mlp": f.word("hidden_act", default="silu", among=GATED),
        "tied": tied(f, False),
        "qkv_bias": biased,
        "out_bias": biased,
        "experts": f.count("num_local_experts", default=16),
        "top_k": f.count("num_experts_per_tok", default=1),
        "expert_ffn": width,
        "shared_ffn": width,
        "expert_pattern": _routed(f, layers),
        "rope_pattern": shortest("".join("r" if rope else "n" for rope in has_rope)),
        "qk_norm": f.flag("use_qk_norm", default=True),
        "qk_norm_weight": False,
    }
    missing = "attention_chunk_size" not in f.data
    if size := f.count("attention_chunk_size", default=8192 if missing else 0):
        config |= {
            "window": size,
            "window_pattern": shortest("".join("w" if rope else "f" for rope in has_rope)),
            "chunked": True,
        }
    return translated(f, config, positions, ROUTING, _SCALING)


def _has_rope(f: Fields, layers: int) -> tuple[bool, ...]:
    """Whether each layer has positions; ``no_rope_layers`` has 1 for these, despite its name."""
    listed = f.counts("no_rope_layers")
    if listed:
        if len(listed) < layers:
            raise f.error("no_rope_layers", f"{len(listed)} entries for {layers} layers")
        return tuple(bool(rope) for rope in listed[:layers])
    every = f.count("no_rope_layer_interval", default=4)
    return tuple(bool((i + 1) % every) for i in range(layers))


def _routed(f: Fields, layers: int) -> str:
    """The pattern of layers with experts (e) and without (d).

    ``moe_layers`` lists those with experts; by default every ``interleave_moe_layer_step``-th has.
    """
    step = f.count("interleave_moe_layer_step", default=1)
    listed = f.counts("moe_layers") or range(step - 1, layers, step)
    return shortest("".join("e" if i in listed else "d" for i in range(layers)))


@ADAPTERS.register("llama4")
def llama4(f: Fields) -> Translated:
    """The language model of the multimodal model; its vision encoder is left out."""
    if not f.has("text_config"):
        return llama4_text(f)
    base = llama4_text(f.inside("text_config"))
    left_out = "the language model only: the vision encoder is left out"
    return Translated(
        arch=base.arch, sample_unit=base.sample_unit, config=base.config,
        positions=base.positions, notes=(*base.notes, left_out),
    )  # fmt: skip
