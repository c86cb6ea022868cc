"""Configs of modernbert."""

from __future__ import annotations

from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated

_WHOLE, _LOCAL = "full_attention", "sliding_attention"
_DROPOUTS = ("embedding_dropout", "attention_dropout", "mlp_dropout", "classifier_dropout")


def _global_every(f: Fields, layers: int) -> int:
    """The period of layers with full attention; the first layer always has it."""
    every = f.layers("global_attn_every_n_layers", default=3)
    if not (kinds := f.words("layer_types")):
        return every
    if len(kinds) != layers:
        raise f.error("layer_types", f"{len(kinds)} entries for {layers} layers")
    whole = [i for i, kind in enumerate(kinds) if kind == _WHOLE]
    every = whole[1] if len(whole) > 1 else layers
    if kinds != tuple(_LOCAL if i % every else _WHOLE for i in range(layers)):
        raise f.error("layer_types", "full attention must recur at equal distances")
    return every


@ADAPTERS.register("modernbert")
def modernbert(f: Fields) -> Translated:
    """ModernBERT with the head that ``architectures`` names: masked tokens or classes."""
    hidden, layers = f.count("hidden_size", default=768), f.layers("num_hidden_layers", default=22)
    positions = f.count("max_position_embeddings", default=8192)
    for key in ("hidden_activation", "classifier_activation"):
        f.word(key, default="gelu", among={"gelu": "gelu"})
    for key in _DROPOUTS:
        if f.number(key, default=0.0, high=1.0) > 0:
            raise f.error(
                key, "must be 0: dropout is not supported, ModernBERT was trained without"
            )
    named = f.words("architectures")
    head = "classifier" if named and named[0].endswith("Classification") else "masked-lm"
    classes = f.count("num_labels", default=2)
    if f.has("id2label"):
        classes = max(len(f.inside("id2label").data), 1)
    return Translated(
        arch="modernbert", sample_unit="sequence", positions=positions,
        config={
            "layers": layers,
            "hidden": hidden,
            "heads": f.heads(hidden, "num_attention_heads", default=12),
            "ffn": f.count("intermediate_size", default=1152),
            "vocab": f.count("vocab_size", default=50_368),
            "max_positions": positions,
            "global_every": _global_every(f, layers),
            "window": f.count("local_attention", default=128),
            "head": head,
            "classes": classes,
            "pooling": f.word(
                "classifier_pooling", default="cls", among={"cls": "cls", "mean": "mean"}
            ),
            "attention_bias": f.flag("attention_bias", default=False),
            "mlp_bias": f.flag("mlp_bias", default=False),
            "norm_bias": f.flag("norm_bias", default=False),
            "head_bias": f.flag("classifier_bias", default=False),
            "decoder_bias": f.flag("decoder_bias", default=True),
        },
        notes=(
            "torch's attention, which computes all pairs of tokens in local layers too, with a "
            "mask; attention=flash is flash-attn's, which skips pairs outside the window",
            "no padding: every token counts",
            f"trained on {'masked tokens' if head == 'masked-lm' else f'{classes} classes'}",
        ),
    )  # fmt: skip
