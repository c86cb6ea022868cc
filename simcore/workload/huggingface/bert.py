"""bert and roberta."""

from __future__ import annotations

from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated

_HEADS = {
    "ForMaskedLM": "masked-lm", "ForPreTraining": "masked-lm",
    "ForSequenceClassification": "classifier", "Model": "classifier",
}  # fmt: skip


def _translate(f: Fields, types: int, rows_of_padding: int) -> Translated:
    hidden = f.count("hidden_size")
    table = f.count("max_position_embeddings", default=512)
    positions = table - rows_of_padding
    if positions < 1:
        raise f.error("max_position_embeddings", f"{table} leaves no position for a token")
    head = "classifier"
    named = f.words("architectures")
    for ending, kind in _HEADS.items():
        if named and named[0].endswith(ending):
            head = kind
    f.word("hidden_act", default="gelu", among={"gelu": "gelu"})
    if f.flag("is_decoder", default=False):
        raise f.error("is_decoder", "an encoder as a decoder is not supported")
    classes = max(len(f.inside("id2label").data), f.count("num_labels", default=2), 1)
    if f.has("id2label"):
        classes = max(len(f.inside("id2label").data), 1)
    shown = "masked tokens" if head == "masked-lm" else f"{classes} classes"
    return Translated(
        arch="bert", sample_unit="sequence", positions=positions,
        config={
            "layers": f.layers("num_hidden_layers"),
            "hidden": hidden,
            "heads": f.heads(hidden, "num_attention_heads"),
            "ffn": f.count("intermediate_size"),
            "vocab": f.count("vocab_size"),
            "max_positions": table,
            "type_vocab": f.count("type_vocab_size", default=types),
            "classes": classes,
            "dropout": f.number("hidden_dropout_prob", default=0.1, high=1.0),
            "attention": "sdpa",
            "head": head,
        },
        notes=("fused attention", f"trained on {shown}"),
    )  # fmt: skip


@ADAPTERS.register("bert")
def bert(f: Fields) -> Translated:
    """With the head that ``architectures`` names: masked tokens, or classes behind a pooler."""
    return _translate(f, 2, 0)


@ADAPTERS.register("roberta")
def roberta(f: Fields) -> Translated:
    """bert without token types; its positions begin behind the padding's number."""
    pad = f.count("pad_token_id", default=1, low=0)
    return _translate(f, 2, pad + 1)
