"""Configs of opt."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import PLAIN, tied
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated

#: Unused rows at the start of the position table, which padding once needed.
_PADDING_ROWS = 2


@ADAPTERS.register("opt")
def opt(f: Fields) -> Translated:
    """Learned positions, layer norms, ReLU.

    The 350m size has an embedding of half its width, and norms after each half of a layer.
    """
    hidden = f.count("hidden_size")
    positions = f.count("max_position_embeddings", default=2048)
    before = f.flag("do_layer_norm_before", default=True)
    if not f.flag("layer_norm_elementwise_affine", default=True):
        raise f.error("layer_norm_elementwise_affine", "norms without weights are not supported")
    notes = () if before else ("norms are counted before each half, not after it",)
    return Translated(
        arch="transformer", sample_unit="sequence", positions=positions,
        config={
            "layers": f.layers("num_hidden_layers"),
            "hidden": hidden,
            "heads": f.heads(hidden, "num_attention_heads"),
            "ffn": f.count("ffn_dim"),
            "vocab": f.count("vocab_size"),
            "max_positions": positions,
            "extra_positions": _PADDING_ROWS,
            "embedding_width": f.count("word_embed_proj_dim", default=hidden),
            "mlp": f.word("activation_function", default="relu", among=PLAIN),
            "bias": f.flag("enable_bias", default=True),
            "fused_qkv": False,
            "final_norm": before and not f.flag("_remove_final_layer_norm", default=False),
            "tied": tied(f, True),
            "dropout": f.number("dropout", default=0.1, high=1.0),
            "upcast_loss": True,
        },
        notes=("fused attention", *notes),
    )  # fmt: skip
