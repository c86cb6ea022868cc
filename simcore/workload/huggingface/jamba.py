"""Configs of jamba (Jamba 1.5 and 1.6)."""

from __future__ import annotations

from math import ceil

from simcore.workload.huggingface.decoder import (
    ROUTING,
    gated_layers,
    shortest,
    sizes,
    translated,
)
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Setting, Translated

_KERNELS = "Mamba-1 layers run with mamba_ssm's kernels, not as tensor operations"
#: Hidden size over the rank of the time step if that rank is "auto" (JambaConfig).
_AUTO_RANK = 16


def _every(f: Fields, kind: str, period: int, offset: int, layers: int) -> list[bool]:
    """Whether each layer has a part that comes once in a period; ``kind``: prefix of its keys."""
    period = f.count(f"{kind}_layer_period", default=period)
    offset = f.count(f"{kind}_layer_offset", default=offset, low=0)
    if offset >= period:
        raise f.error(f"{kind}_layer_offset", f"{offset} is not below the period of {period}")
    return [i % period == offset for i in range(layers)]


@ADAPTERS.register("jamba")
def jamba(f: Fields) -> Translated:
    """Mamba-1, attention in one layer in eight, experts in every second layer; no positions."""
    config, positions = sizes(f)
    layers, hidden = int(config["layers"]), int(config["hidden"])
    auto = f.data.get("mamba_dt_rank", "auto") == "auto"
    experts = f.count("num_experts", "num_local_experts", default=16)
    routed = _every(f, "expert", 2, 1, layers) if experts > 1 else [False] * layers
    attending = _every(f, "attn", 8, 4, layers)
    config |= {
        **gated_layers(f),
        "positions": "none",
        "mixer_pattern": shortest("".join("a" if x else "s" for x in attending)),
        "expert_pattern": shortest("".join("e" if x else "d" for x in routed)),
        "ssm_inner": f.count("mamba_expand", default=2) * hidden,
        "ssm_rank": ceil(hidden / _AUTO_RANK) if auto else f.count("mamba_dt_rank"),
        "ssm_state": f.count("mamba_d_state", default=16),
        "conv_kernel": f.count("mamba_d_conv", default=4),
        "conv_bias": f.flag("mamba_conv_bias", default=True),
        "bias": f.flag("mamba_proj_bias", default=False),
        "qkv_bias": False,
        "out_bias": False,
        "mlp_bias": False,
    }
    if not any(routed):
        return translated(f, config, positions, _KERNELS)
    moe: dict[str, Setting] = {
        "experts": experts,
        "top_k": f.count("num_experts_per_tok", default=2),
        "expert_ffn": config["ffn"],
    }
    return translated(f, config | moe, positions, _KERNELS, ROUTING)
