"""phi3 (also Phi-3.5 and 4): llama with packed products."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import GATED, rotary_share, sizes, tied, translated
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated


@ADAPTERS.register("phi3")
def phi3(f: Fields) -> Translated:
    """q, k and v in one product, gate and up in another."""
    config, positions = sizes(f)
    config |= {
        "ffn": f.count("intermediate_size"),
        "mlp": f.word("hidden_act", default="silu", among=GATED),
        "tied": tied(f, False),
        "fused_qkv": True,
        "fused_gate_up": True,
        "rotary_share": rotary_share(f, 1.0),
        "rotary_joined": True,
        "dropout": f.number("resid_pdrop", default=0.0, high=1.0),
    }
    if size := f.count("sliding_window", default=0):
        config["window"] = size
    return translated(f, config, positions)
