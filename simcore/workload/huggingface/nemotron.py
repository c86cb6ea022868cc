"""Configs of nemotron (Nemotron-3 8B, Nemotron-4, Minitron)."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import PLAIN, rotary_share, sizes, tied, translated
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated


@ADAPTERS.register("nemotron")
def nemotron(f: Fields) -> Translated:
    """Layer norms, squared ReLU, rotary positions on half of each head, products without biases."""
    config, positions = sizes(f)
    biased = f.flag("attention_bias", default=False)
    config |= {
        "ffn": f.count("intermediate_size", default=24576),
        "mlp": f.word("hidden_act", default="relu2", among=PLAIN),
        "norm": "layernorm",
        "tied": tied(f, False),
        "qkv_bias": biased,
        "out_bias": biased,
        "mlp_bias": f.flag("mlp_bias", default=False),
        "rotary_share": rotary_share(f, 0.5),
        "rotary_joined": True,
    }
    return translated(f, config, positions)
