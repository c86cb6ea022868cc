"""Configs of t5 (also v1.1 and Flan-T5) and mt5."""

from __future__ import annotations

from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated

_LAYERS = {
    "relu": "relu", "gelu": "gelu", "gelu_new": "gelu_new", "gated-gelu": "geglu_new",
    "gated-silu": "swiglu",
}  # fmt: skip
#: Tokens per sequence in T5's training. Relative positions do not limit the length.
TRAINED_AT = 512


@ADAPTERS.register("t5")
@ADAPTERS.register("mt5")
def t5(f: Fields) -> Translated:
    """Encoder and decoder on sequences of equal length, relative positions, RMSNorm."""
    layers = f.layers("num_layers")
    return Translated(
        arch="t5", sample_unit="sequence pair",
        positions=f.count("n_positions", default=TRAINED_AT),
        config={
            "layers": layers,
            "decoder_layers": f.layers("num_decoder_layers", default=layers),
            "hidden": f.count("d_model"),
            "heads": f.count("num_heads"),
            "head_dim": f.count("d_kv"),
            "ffn": f.count("d_ff"),
            "vocab": f.count("vocab_size"),
            "buckets": f.count("relative_attention_num_buckets", default=32),
            "mlp": f.word("feed_forward_proj", default="relu", among=_LAYERS),
            "dropout": f.number("dropout_rate", default=0.1, high=1.0),
        },
        notes=(
            "source and target of the same length; attention as explicit products (position bias)",
            "the head is tied to the embedding, as in transformers 5 (v1.1 was released untied)",
        ),
    )  # fmt: skip
