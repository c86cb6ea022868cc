"""Configs of gpt_oss."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import ROUTING, sizes, tied, translated, windows
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated


@ADAPTERS.register("gpt_oss")
def gpt_oss(f: Fields) -> Translated:
    """Attention sinks, biases, experts with a clamped gate, windows in every second layer."""
    config, positions = sizes(f)
    biased = f.flag("attention_bias", default=True)
    window = f.count("sliding_window", default=128, low=0)
    config |= {
        "head_dim": f.count("head_dim", default=64),
        "mlp": f.word("hidden_act", default="silu", among={"silu": "swiglu_clamped"}),
        "expert_ffn": f.count("intermediate_size"),
        "experts": f.count("num_local_experts", "num_experts", default=128),
        "top_k": f.count("num_experts_per_tok", "experts_per_token", default=4),
        "expert_bias": True,
        "qkv_bias": biased,
        "out_bias": biased,
        "sinks": True,
        "tied": tied(f, False),
        **windows(f, "wf", int(config["layers"]), window),
    }
    return translated(f, config, positions, ROUTING, "weights in the job's precision, not in MXFP4")
