"""Configs of gptj."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import PLAIN, tied, translated
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated


@ADAPTERS.register("gptj")
def gptj(f: Fields) -> Translated:
    """Attention without biases, parallel to feed-forward with biases; partly rotary heads."""
    hidden = f.count("n_embd", "hidden_size", default=4096)
    heads = f.heads(hidden, "n_head", "num_attention_heads", default=16)
    return translated(
        f,
        {
            "layers": f.layers("n_layer", "num_hidden_layers", default=28),
            "hidden": hidden,
            "heads": heads,
            "ffn": f.count("n_inner", default=4 * hidden),
            "vocab": f.count("vocab_size", default=50400),
            "positions": "rope",
            "rotary_share": min(1.0, f.count("rotary_dim", default=64) * heads / hidden),
            "rotary_joined": True,
            "bias": False,
            "mlp_bias": True,
            "head_bias": True,
            "fused_qkv": False,
            "mlp": f.word("activation_function", default="gelu_new", among=PLAIN),
            "residual": "parallel_one_norm",
            "tied": tied(f, False),
            "dropout": f.number("resid_pdrop", default=0.0, high=1.0),
            "upcast_loss": True,
        },
        f.count("n_positions", "max_position_embeddings", default=2048),
    )
