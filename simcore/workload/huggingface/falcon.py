"""Configs of falcon: 7b's layout, 40b's and 180b's, and the serial one of the rw models."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import PLAIN, tied, translated
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated


@ADAPTERS.register("falcon")
def falcon(f: Fields) -> Translated:
    """Multi-query or grouped attention, usually parallel to the feed-forward layer."""
    hidden = f.count("hidden_size", "n_embed")
    heads = f.heads(hidden, "num_attention_heads", "n_head")
    newer = f.flag("new_decoder_architecture", default=False)
    if newer:
        kv_heads = f.count("num_kv_heads", "n_head_kv", default=heads)
    else:
        kv_heads = 1 if f.flag("multi_query", default=True) else heads
    two_norms = f.count("num_ln_in_parallel_attn", default=2 if newer else 1) == 2
    if not f.flag("parallel_attn", default=True):
        residual = "serial"
    else:
        residual = "parallel" if two_norms else "parallel_one_norm"
    biased = f.flag("bias", default=False)
    return translated(
        f,
        {
            "layers": f.layers("num_hidden_layers", "n_layer"),
            "hidden": hidden,
            "heads": heads,
            "kv_heads": kv_heads,
            "ffn": f.count("ffn_hidden_size", default=4 * hidden),
            "vocab": f.count("vocab_size"),
            "mlp": f.word("activation", default="gelu", among=PLAIN),
            "positions": "alibi" if f.flag("alibi", default=False) else "rope",
            "bias": biased,
            "residual": residual,
            "tied": tied(f, True),
            "dropout": f.number("hidden_dropout", default=0.0, high=1.0),
            "upcast_loss": True,
        },
        f.count("max_position_embeddings", default=2048),
    )
