"""Configs of bloom."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import tied
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated

#: The sequence length of BLOOM's training. ALiBi itself does not limit the length.
_TRAINED_AT = 2048


@ADAPTERS.register("bloom")
def bloom(f: Fields) -> Translated:
    """ALiBi, layer norms, and a norm after the embedding."""
    hidden = f.count("hidden_size", "n_embed")
    return Translated(
        arch="transformer", sample_unit="sequence",
        positions=f.count("seq_length", default=_TRAINED_AT),
        config={
            "layers": f.layers("n_layer", "num_hidden_layers"),
            "hidden": hidden,
            "heads": f.heads(hidden, "n_head", "num_attention_heads"),
            "vocab": f.count("vocab_size"),
            "positions": "alibi",
            "embedding_norm": True,
            "tied": tied(f, True),
            "dropout": f.number("hidden_dropout", default=0.0, high=1.0),
            "upcast_loss": True,
        },
        notes=(
            "ALiBi as a mask of fused attention; transformers computes scores explicitly (eager)",
        ),
    )  # fmt: skip
