"""Configs of minimax (MiniMax-Text-01, M1) and minimax_m2."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import (
    GATED,
    ROUTING,
    rotary_share,
    shortest,
    sizes,
    tied,
    translated,
)
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated

_KERNELS = "lightning attention in blocks of tokens; the speed of its kernels is assumed"
_MIXERS = {"linear_attention": "l", "full_attention": "a"}


@ADAPTERS.register("minimax")
@ADAPTERS.register("minimax_text_01")
@ADAPTERS.register("minimax_m1")
def minimax(f: Fields) -> Translated:
    """mixtral with lightning attention in most layers.

    The residual stream takes the norms' outputs, and its sums have constant factors.
    """
    config, positions = sizes(f)
    layers, width = int(config["layers"]), f.count("intermediate_size", default=14336)
    kinds = f.words("layer_types")
    for kind in kinds:
        if kind not in _MIXERS:
            raise f.error("layer_types", f"{kind!r:.40} is none of {', '.join(_MIXERS)}")
    if kinds and len(kinds) < layers:
        raise f.error("layer_types", f"{len(kinds)} entries for {layers} layers")
    given = "".join(_MIXERS[k] for k in kinds[:layers])
    if listed := f.counts("attn_type_list"):  # of MiniMax's own code: 1 is full attention
        given = "".join("a" if kind else "l" for kind in listed)
    if given and len(given) != layers:
        raise f.error("attn_type_list", f"{len(given)} entries for {layers} layers")
    stated = f.count("rotary_dim", default=0) / int(config["head_dim"])
    share = rotary_share(f, min(stated or 1.0, 1.0))
    config |= {
        "ffn": width,
        "mlp": f.word("hidden_act", default="silu", among=GATED),
        "tied": tied(f, False),
        "rotary_share": share,
        "rotary_joined": share < 1.0,
        "mixer_pattern": shortest(given or "al" * layers),
        "scaled_residual": True,
        "experts": f.count("num_local_experts", "num_experts", default=8),
        "top_k": f.count("num_experts_per_tok", default=2),
        "expert_ffn": width,
        "expert_pattern": "e",
    }
    return translated(f, config, positions, _KERNELS, ROUTING)


@ADAPTERS.register("minimax_m2")
def minimax_m2(f: Fields) -> Translated:
    """mixtral with many small experts, norms over q and k as a whole, and partly rotary heads."""
    config, positions = sizes(Fields({"head_dim": 128, **f.data}, f.path, f.text, f.prefix))
    width = f.count("intermediate_size", default=1536)
    share = rotary_share(f, 1.0)
    if f.has("rotary_dim"):  # Some files state elements instead of a fraction.
        share = f.count("rotary_dim", high=int(config["head_dim"])) / int(config["head_dim"])
    config |= {
        "ffn": width,
        "mlp": f.word("hidden_act", default="silu", among=GATED),
        "tied": tied(f, False),
        "qk_norm": True,
        "qk_norm_whole": True,
        "rotary_share": share,
        "rotary_joined": share < 1.0,
        "experts": f.count("num_local_experts", "num_experts", default=256),
        "top_k": f.count("num_experts_per_tok", default=8),
        "expert_ffn": width,
        "expert_pattern": "e",
    }
    return translated(f, config, positions, ROUTING)
