"""Configs of gpt_neo."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import PLAIN, shortest, tied
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated

#: Kind of attention -> letter of the layer: full or windowed.
_LETTERS = {"global": "f", "local": "w"}


@ADAPTERS.register("gpt_neo")
def gpt_neo(f: Fields) -> Translated:
    """gpt2 without biases on q, k and v, with windowed attention in every second layer.

    The only fused attention that transformers has for it is FlashAttention; by default it computes
    scores explicitly.
    """
    hidden = f.count("hidden_size")
    positions = f.count("max_position_embeddings")
    layers = f.layers("num_layers", "num_hidden_layers")
    pattern = "".join(_attention_letters(f)) or "fw"
    return Translated(
        arch="transformer", sample_unit="sequence", positions=positions,
        config={
            "layers": layers,
            "hidden": hidden,
            "heads": f.heads(hidden, "num_heads", "num_attention_heads"),
            "ffn": f.count("intermediate_size", default=4 * hidden),
            "vocab": f.count("vocab_size"),
            "max_positions": positions,
            "mlp": f.word("activation_function", default="gelu_new", among=PLAIN),
            "tied": tied(f, True),
            "fused_qkv": False,
            "qkv_bias": False,
            "dropout": f.number("resid_dropout", default=0.0, high=1.0),
            "upcast_loss": True,
            "attention": "math",
            "window": f.count("window_size", default=256),
            "window_pattern": shortest((pattern * layers)[:layers]),
        },
        notes=("attention as explicit products (--attention flash: flash_attention_2)",),
    )  # fmt: skip


def _attention_letters(f: Fields) -> list[str]:
    """A letter per layer from ``attention_types``, such as ``[[["global", "local"], 12]]``.

    Empty if the key is missing. Raises DataError.
    """
    listed = f.data.get("attention_types")
    if listed is None:
        return []
    try:
        return [_LETTERS[kind] for kinds, times in listed for _ in range(times) for kind in kinds]
    except (KeyError, TypeError, ValueError):
        raise f.error(
            "attention_types", f"{str(listed)[:60]} is no list such as [[['global', 'local'], 12]]"
        ) from None
