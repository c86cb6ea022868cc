"""Configs of mixtral: mistral with experts in every layer."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import GATED, ROUTING, sizes, tied, translated
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated


@ADAPTERS.register("mixtral")
def mixtral(f: Fields) -> Translated:
    """mistral with experts; by default eight, of which a token uses two."""
    config, positions = sizes(f)
    config |= {
        "expert_ffn": f.count("intermediate_size"),
        "mlp": f.word("hidden_act", default="silu", among=GATED),
        "tied": tied(f, False),
        "experts": f.count("num_local_experts", default=8),
        "top_k": f.count("num_experts_per_tok", default=2),
    }
    if size := f.count("sliding_window", default=0):
        config["window"] = size
    return translated(f, config, positions, ROUTING)
