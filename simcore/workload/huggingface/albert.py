"""Configs of albert."""

from __future__ import annotations

from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated

_ACTIVATIONS = {"gelu_new": "gelu_new", "gelu": "gelu", "relu": "relu"}


@ADAPTERS.register("albert")
def albert(f: Fields) -> Translated:
    """ALBERT with the head that ``architectures`` names (masked tokens, or classes and pooler)."""
    for key in ("num_hidden_groups", "inner_group_num"):
        if f.count(key, default=1) != 1:
            raise f.error(key, "must be 1: only one shared layer is supported")
    hidden = f.count("hidden_size", default=4096)
    positions = f.count("max_position_embeddings", default=512)
    named = f.words("architectures")
    masked = bool(named) and named[0].endswith("ForMaskedLM")
    classes = f.count("num_labels", default=2)
    if f.has("id2label"):
        classes = max(len(f.inside("id2label").data), 1)
    return Translated(
        arch="albert", sample_unit="sequence", positions=positions,
        config={
            "layers": f.layers("num_hidden_layers", default=12),
            "hidden": hidden,
            "heads": f.heads(hidden, "num_attention_heads", default=64),
            "ffn": f.count("intermediate_size", default=16_384),
            "embedding": f.count("embedding_size", default=128),
            "vocab": f.count("vocab_size", default=30_000),
            "max_positions": positions,
            "type_vocab": f.count("type_vocab_size", default=2),
            "classes": classes,
            "mlp": f.word("hidden_act", default="gelu_new", among=_ACTIVATIONS),
            "dropout": f.number("hidden_dropout_prob", default=0.0, high=1.0),
            "classifier_dropout": f.number("classifier_dropout_prob", default=0.1, high=1.0),
            "head": "masked-lm" if masked else "classifier",
        },
        notes=(
            "fused attention",
            f"trained on {'masked tokens' if masked else f'{classes} classes'}",
        ),
    )  # fmt: skip
