"""Configs of deberta-v2, the type of DeBERTa v2 and v3."""

from __future__ import annotations

from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated

_KINDS = {"c2p", "p2c"}


def _check_attention(f: Fields) -> None:
    """Raises DataError for variants that no published size has.

    Supported are both products with relative positions (c2p and p2c), and no convolution.
    """
    if not f.flag("relative_attention", default=False):
        raise f.error("relative_attention", "attention without relative positions is not supported")
    given = f.data.get("pos_att_type")
    words = given.lower().split("|") if isinstance(given, str) else f.words("pos_att_type")
    if {word.strip() for word in words} != _KINDS:
        raise f.error("pos_att_type", f"must be both of {', '.join(sorted(_KINDS))}")
    if f.count("conv_kernel_size", default=0, low=0):
        raise f.error("conv_kernel_size", "a convolution after the first layer is not supported")
    if f.count("type_vocab_size", default=0, low=0):
        raise f.error("type_vocab_size", "token types are not supported")
    hidden = f.count("hidden_size", default=1536)
    for key in ("embedding_size", "pooler_hidden_size"):
        if f.count(key, default=hidden) != hidden:
            raise f.error(key, f"must equal hidden_size, {hidden}")


@ADAPTERS.register("deberta-v2")
def deberta(f: Fields) -> Translated:
    """DeBERTa with the head that ``architectures`` names.

    Published configs name none; they get the classifier.
    """
    _check_attention(f)
    hidden = f.count("hidden_size", default=1536)
    positions = f.count("max_position_embeddings", default=512)
    for key in ("hidden_act", "pooler_hidden_act"):
        f.word(key, default="gelu", among={"gelu": "gelu"})
    spans = [f.count(key, default=-1, low=-1) for key in ("position_buckets",
                                                          "max_relative_positions")]  # fmt: skip
    named = f.words("architectures")
    masked = bool(named) and named[0].endswith("ForMaskedLM")
    if masked and not f.flag("legacy", default=True):
        raise f.error("legacy", "must be true: only the legacy masked-token head is supported")
    classes = f.count("num_labels", default=2)
    if f.has("id2label"):
        classes = max(len(f.inside("id2label").data), 1)
    return Translated(
        arch="deberta", sample_unit="sequence", positions=positions,
        config={
            "layers": f.layers("num_hidden_layers", default=24),
            "hidden": hidden,
            "heads": f.heads(hidden, "num_attention_heads", default=24),
            "ffn": f.count("intermediate_size", default=6144),
            "vocab": f.count("vocab_size", default=128_100),
            "max_positions": positions,
            "buckets": next((n for n in spans if n > 0), positions),
            "share_keys": f.flag("share_att_key", default=False),
            "table_norm": f.word(
                "norm_rel_ebd", default="none", among={"none": "", "layer_norm": "layer_norm"}
            ) != "",
            "absolute": f.flag("position_biased_input", default=True),
            "classes": classes,
            "dropout": f.number("hidden_dropout_prob", default=0.1, high=1.0),
            "head": "masked-lm" if masked else "classifier",
        },
        notes=(
            "attention as explicit products: transformers has no fused attention for it",
            "products and storages of the position table, one for the whole batch, are left out: "
            "as much as one sequence's projections of queries and keys",
            f"trained on {'masked tokens' if masked else f'{classes} classes'}",
        ),
    )  # fmt: skip
