"""Configs of wav2vec2 and hubert."""

from __future__ import annotations

from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated

#: Defaults of the convolutions: channels, kernel sizes and strides.
_DIM, _KERNEL, _STRIDE = (512,) * 7, (10, 3, 3, 3, 3, 2, 2), (5, 2, 2, 2, 2, 2, 2)
#: Endings of classes with other heads and losses, which are not supported.
_OTHER = ("PreTraining", "Classification", "XVector", "MaskedLM")


def _listed(f: Fields, key: str, default: tuple[int, ...]) -> str:
    """A list of positive numbers, joined by hyphens. Raises DataError."""
    numbers = f.counts(key) or default
    if min(numbers) < 1:
        raise f.error(key, "must be numbers from 1")
    return "-".join(map(str, numbers))


def _check(f: Fields) -> None:
    """Raises DataError for variants that are not supported."""
    for key in ("hidden_act", "feat_extract_activation"):
        f.word(key, default="gelu", among={"gelu": "gelu"})
    for key in ("add_adapter", "conv_pos_batch_norm"):
        if f.flag(key, default=False):
            raise f.error(key, "is not supported")
    if f.has("adapter_attn_dim"):
        raise f.error("adapter_attn_dim", "adapters within layers are not supported")
    if not f.flag("feat_proj_layer_norm", default=True):
        raise f.error("feat_proj_layer_norm", "features without a norm are not supported")
    named = f.words("architectures")
    if named and named[0].endswith(_OTHER):
        raise f.error("architectures", f"{named[0]} is not supported, only the CTC head")


@ADAPTERS.register("wav2vec2")
@ADAPTERS.register("hubert")
def wav2vec2(f: Fields) -> Translated:
    """Speech recognition with CTC on 15.6 s of audio; the feature encoder is trained too."""
    _check(f)
    hidden = f.count("hidden_size", default=768)
    groups = f.count("num_conv_pos_embedding_groups", default=16)
    if hidden % groups:
        raise f.error("num_conv_pos_embedding_groups", f"{groups} does not divide {hidden}")
    augment = f.flag("apply_spec_augment", default=True) and any(
        f.number(key, default=share, high=1.0) > 0
        for key, share in (("mask_time_prob", 0.05), ("mask_feature_prob", 0.0))
    )
    return Translated(
        arch="wav2vec2", sample_unit="clip",
        config={
            "layers": f.layers("num_hidden_layers", default=12),
            "hidden": hidden,
            "heads": f.heads(hidden, "num_attention_heads", default=12),
            "ffn": f.count("intermediate_size", default=3072),
            "vocab": f.count("vocab_size", default=32),
            "conv_dim": _listed(f, "conv_dim", _DIM),
            "conv_kernel": _listed(f, "conv_kernel", _KERNEL),
            "conv_stride": _listed(f, "conv_stride", _STRIDE),
            "conv_bias": f.flag("conv_bias", default=False),
            "conv_norm": f.word(
                "feat_extract_norm", default="group", among={"group": "group", "layer": "layer"}
            ),
            "position_taps": f.count("num_conv_pos_embeddings", default=128),
            "position_groups": groups,
            "norm_first": f.flag("do_stable_layer_norm", default=False),
            "spec_augment": augment,
            "dropout": f.number("hidden_dropout", default=0.1, high=1.0),
            "attention_dropout": f.number("attention_dropout", default=0.1, high=1.0),
            "activation_dropout": f.number("activation_dropout", default=0.1, high=1.0),
            "projection_dropout": f.number("feat_proj_dropout", default=0.0, high=1.0),
            "final_dropout": f.number("final_dropout", default=0.1, high=1.0),
        },
        notes=(
            "clips of 250,000 samples (15.6 s) without padding and 200 letters: samples and "
            "target_len change it",
            "fused attention; every layer runs (layerdrop would skip some)",
            "frozen_features=true is freeze_feature_encoder()",
        ),
    )  # fmt: skip
