"""Configs of gpt2."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import PLAIN, tied
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated


@ADAPTERS.register("gpt2")
def gpt2(f: Fields) -> Translated:
    """Learned positions, layer norms, and GELU computed by several tensor operations."""
    hidden = f.count("n_embd", "hidden_size")
    positions = f.count("n_positions", "max_position_embeddings")
    if f.flag("add_cross_attention", default=False):
        raise f.error("add_cross_attention", "gpt2 with cross-attention is not supported")
    return Translated(
        arch="transformer", sample_unit="sequence", positions=positions,
        config={
            "layers": f.layers("n_layer", "num_hidden_layers"),
            "hidden": hidden,
            "heads": f.heads(hidden, "n_head", "num_attention_heads"),
            "ffn": f.count("n_inner", default=4 * hidden),
            "vocab": f.count("vocab_size"),
            "max_positions": positions,
            "mlp": f.word("activation_function", default="gelu_new", among=PLAIN),
            "tied": tied(f, True),
            "dropout": f.number("resid_pdrop", default=0.1, high=1.0),
            "upcast_loss": True,
        },
        notes=("fused attention",),
    )  # fmt: skip
