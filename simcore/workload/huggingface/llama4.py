"""llama4 (Scout, Maverick): chunks of attention, layers without positions, experts in between."""

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

_SCALING = "that layers without positions scale their queries by the place is left out"


@ADAPTERS.register("llama4_text")
def llama4_text(f: Fields) -> Translated:
    """Layers with positions see a chunk, every fourth has none and sees all; one expert a token
    and one that every token passes."""
    config, positions = sizes(f)
    layers = int(config["layers"])
    turned = _turned(f, layers)
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
        "rope_pattern": shortest("".join("r" if t else "n" for t in turned)),
        "qk_norm": f.flag("use_qk_norm", default=True),
        "qk_norm_weight": False,
    }
    missing = "attention_chunk_size" not in f.data
    if size := f.count("attention_chunk_size", default=8192 if missing else 0):
        config |= {
            "window": size,
            "window_pattern": shortest("".join("w" if t else "f" for t in turned)),
            "chunked": True,
        }
    return translated(f, config, positions, ROUTING, _SCALING)


def _turned(f: Fields, layers: int) -> tuple[bool, ...]:
    """Which layers have positions; the key ``no_rope_layers`` lists those that have, as 1."""
    told = f.counts("no_rope_layers")
    if told:
        if len(told) < layers:
            raise f.error("no_rope_layers", f"{len(told)} entries for {layers} layers")
        return tuple(bool(t) for t in told[:layers])
    every = f.count("no_rope_layer_interval", default=4)
    return tuple(bool((i + 1) % every) for i in range(layers))


def _routed(f: Fields, layers: int) -> str:
    """``e`` and ``d`` a layer from ``moe_layers``, else every ``interleave_moe_layer_step``-th."""
    step = f.count("interleave_moe_layer_step", default=1)
    listed = f.counts("moe_layers") or range(step - 1, layers, step)
    return shortest("".join("e" if i in listed else "d" for i in range(layers)))


@ADAPTERS.register("llama4")
def llama4(f: Fields) -> Translated:
    """The language model of the one that also sees images; its vision tower is left out."""
    if not f.has("text_config"):
        return llama4_text(f)
    told = llama4_text(f.inside("text_config"))
    left_out = "the language model only: the vision tower is left out"
    return Translated(
        arch=told.arch, sample_unit=told.sample_unit, config=told.config,
        positions=told.positions, notes=(*told.notes, left_out),
    )  # fmt: skip
