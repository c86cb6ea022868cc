"""Configs of bart and mbart."""

from __future__ import annotations

from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated

#: Defaults of transformers' BartConfig, which are the sizes of the large model.
_LAYERS, _HEADS, _FFN = 12, 16, 4096


@ADAPTERS.register("bart")
@ADAPTERS.register("mbart")
def bart(f: Fields) -> Translated:
    """Encoder and decoder on sequences of equal length; the head is tied to their embedding."""
    hidden = f.count("d_model")
    positions = f.count("max_position_embeddings")
    for key in ("encoder_layerdrop", "decoder_layerdrop"):
        if f.number(key, default=0.0, high=1.0) > 0:
            raise f.error(key, "must be 0: skipping layers at random is not supported")
    named = f.words("architectures")
    if named and named[0].endswith(("Classification", "Answering", "CausalLM")):
        raise f.error(
            "architectures", f"{named[0]} is not supported, only the model that generates text"
        )
    return Translated(
        arch="bart", sample_unit="sequence pair", positions=positions,
        config={
            "layers": f.layers("encoder_layers", default=_LAYERS),
            "decoder_layers": f.layers("decoder_layers", default=_LAYERS),
            "hidden": hidden,
            "heads": f.heads(hidden, "encoder_attention_heads", default=_HEADS),
            "decoder_heads": f.heads(hidden, "decoder_attention_heads", default=_HEADS),
            "ffn": f.count("encoder_ffn_dim", default=_FFN),
            "decoder_ffn": f.count("decoder_ffn_dim", default=_FFN),
            "vocab": f.count("vocab_size", default=50_265),
            "max_positions": positions,
            "mlp": f.word(
                "activation_function", default="gelu", among={"gelu": "gelu", "relu": "relu"}
            ),
            "norm_first": f.data.get("model_type") == "mbart",
            "dropout": f.number("dropout", default=0.1, high=1.0),
            "attention_dropout": f.number("attention_dropout", default=0.0, high=1.0),
            "activation_dropout": f.number("activation_dropout", default=0.0, high=1.0),
        },
        notes=(
            "fused attention; pairs of texts without padding",
            "source and target have the same length unless target_len is set",
        ),
    )  # fmt: skip
