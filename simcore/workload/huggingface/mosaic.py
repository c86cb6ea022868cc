"""Configs of mpt and dbrx, which have no biases, also not in norms."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import GATED, ROUTING, tied, translated
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Setting, Translated


def _common(f: Fields) -> dict[str, Setting]:
    """The settings that both types share."""
    hidden = f.count("d_model", default=2048)
    return {
        "layers": f.layers("n_layers", default=24),
        "hidden": hidden,
        "heads": f.heads(hidden, "n_heads", default=16),
        "bias": False,
        "norm_bias": False,
        "qkv_clip": f.inside("attn_config").number("clip_qkv", default=0.0) > 0,
        "dropout": f.number("resid_pdrop", default=0.0, high=1.0),
        "upcast_loss": True,
    }


@ADAPTERS.register("mpt")
def mpt(f: Fields) -> Translated:
    """ALiBi, q, k and v in one product, GELU, feed-forward of four times the hidden size.

    As in transformers, it has ALiBi and no biases whatever the file states (both are options in
    Mosaic's own code).
    """
    config = _common(f) | {
        "vocab": f.count("vocab_size", default=50368),
        "positions": "alibi",
        "tied": tied(f, True),
    }
    return translated(f, config, f.count("max_seq_len", default=2048))


@ADAPTERS.register("dbrx")
def dbrx(f: Fields) -> Translated:
    """Experts (DBRX: 16, of which a token uses 4) and clamped q, k and v."""
    config, experts = _common(f), f.inside("ffn_config")
    heads = int(config["heads"])
    kv_heads = f.inside("attn_config").count("kv_n_heads", default=1)
    if heads % kv_heads:
        raise f.error("kv_n_heads", f"{kv_heads} does not divide {heads} attention heads")
    activation = experts.inside("ffn_act_fn")
    config |= {
        "kv_heads": kv_heads,
        "vocab": f.count("vocab_size", default=32000),
        "positions": "rope",
        "mlp": activation.word("name", default="silu", among=GATED),
        "tied": tied(f, False),
        "experts": experts.count("moe_num_experts", default=4),
        "top_k": experts.count("moe_top_k", default=1),
        "expert_ffn": experts.count("ffn_hidden_size", default=3584),
        "expert_apart": True,
    }
    return translated(f, config, f.count("max_seq_len", default=2048), ROUTING)
