"""Configs of bert, roberta (also xlm-roberta and camembert) and distilbert."""

from __future__ import annotations

from dataclasses import replace

from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated

_HEADS = {
    "ForMaskedLM": "masked-lm", "ForPreTraining": "masked-lm",
    "ForSequenceClassification": "classifier", "Model": "classifier",
}  # fmt: skip


def _translate(f: Fields, types: int, rows_of_padding: int) -> Translated:
    """BERT; ``types``: default number of token types, ``rows_of_padding``: of position rows."""
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
    """BERT with the head that ``architectures`` names: masked tokens, or classes with a pooler."""
    return _translate(f, 2, 0)


@ADAPTERS.register("roberta")
@ADAPTERS.register("xlm-roberta")
@ADAPTERS.register("camembert")
def roberta(f: Fields) -> Translated:
    """BERT whose positions begin after the index of the padding token."""
    pad = f.count("pad_token_id", default=1, low=0)
    return _translate(f, 2, pad + 1)


@ADAPTERS.register("distilbert")
def distilbert(f: Fields) -> Translated:
    """BERT without token types, with a linear layer and ReLU instead of the pooler."""
    names = {
        "dim": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads",
        "hidden_dim": "intermediate_size", "activation": "hidden_act",
        "dropout": "hidden_dropout_prob",
    }  # fmt: skip
    defaults = {
        "hidden_size": 768, "num_hidden_layers": 6, "num_attention_heads": 12,
        "intermediate_size": 3072, "vocab_size": 30522,
    }  # fmt: skip
    known = {names.get(key, key): value for key, value in f.data.items()}
    base = _translate(Fields({**defaults, **known}, f.path, f.text, f.prefix), 2, 0)
    return replace(base, config=base.config | {"token_types": False, "pooler": "relu"})
