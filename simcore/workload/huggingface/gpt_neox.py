"""Configs of gpt_neox (also Pythia)."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import PLAIN, rotary_share, sizes, tied, translated
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated


@ADAPTERS.register("gpt_neox")
def gpt_neox(f: Fields) -> Translated:
    """Layer norms, attention parallel to feed-forward, rotary positions on a quarter of a head."""
    config, positions = sizes(f, kv_heads=False)
    biased = f.flag("attention_bias", default=True)
    parallel = f.flag("use_parallel_residual", default=True)
    config |= {
        "ffn": f.count("intermediate_size"),
        "mlp": f.word("hidden_act", default="gelu", among=PLAIN),
        "norm": "layernorm",
        "bias": True,
        "qkv_bias": biased,
        "out_bias": biased,
        "fused_qkv": True,
        "tied": tied(f, False),
        "residual": "parallel" if parallel else "serial",
        "rotary_share": rotary_share(f, 0.25, "rotary_pct"),
        "rotary_joined": True,
        "dropout": f.number("hidden_dropout", default=0.0, high=1.0),
    }
    return translated(f, config, positions)
