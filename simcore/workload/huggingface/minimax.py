"""minimax_m2."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import (
    GATED,
    ROUTING,
    rotary_share,
    sizes,
    tied,
    translated,
)
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated


@ADAPTERS.register("minimax_m2")
def minimax_m2(f: Fields) -> Translated:
    """mixtral of many small experts; norms over all heads of q and of k, a part of each turned."""
    config, positions = sizes(Fields({"head_dim": 128, **f.data}, f.path, f.text, f.prefix))
    width = f.count("intermediate_size", default=1536)
    turned = rotary_share(f, 1.0)
    if f.has("rotary_dim"):  # of files that do not say it as a share
        turned = f.count("rotary_dim", high=int(config["head_dim"])) / int(config["head_dim"])
    config |= {
        "ffn": width,
        "mlp": f.word("hidden_act", default="silu", among=GATED),
        "tied": tied(f, False),
        "qk_norm": True,
        "qk_norm_whole": True,
        "rotary_share": turned,
        "rotary_joined": turned < 1.0,
        "experts": f.count("num_local_experts", "num_experts", default=256),
        "top_k": f.count("num_experts_per_tok", default=8),
        "expert_ffn": width,
        "expert_pattern": "e",
    }
    return translated(f, config, positions, ROUTING)
