"""Configs of public encoders as their hubs publish them (keys that decide sizes), with the
parameters that transformers counts of each on the meta device (``test_public.py``).
"""

from __future__ import annotations

from typing import Any

Entry = tuple[str, dict[str, Any], int]


def _modernbert(hub: str, hidden: int, layers: int, heads: int, ffn: int, count: int) -> Entry:
    return (
        f"answerdotai/{hub}",
        {
            "model_type": "modernbert", "architectures": ["ModernBertForMaskedLM"],
            "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
            "intermediate_size": ffn, "vocab_size": 50368, "max_position_embeddings": 8192,
            "global_attn_every_n_layers": 3, "local_attention": 128, "classifier_pooling": "mean",
            "attention_bias": False, "mlp_bias": False, "norm_bias": False, "decoder_bias": True,
            "classifier_bias": False, "hidden_activation": "gelu", "tie_word_embeddings": True,
        },
        count,
    )  # fmt: skip


def _deberta(
    hub: str, hidden: int, layers: int, heads: int, ffn: int, count: int, vocab: int = 128_100
) -> Entry:
    return (
        f"microsoft/{hub}",
        {
            "model_type": "deberta-v2", "architectures": ["DebertaV2ForSequenceClassification"],
            "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
            "intermediate_size": ffn, "vocab_size": vocab, "max_position_embeddings": 512,
            "relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm",
            "share_att_key": True, "pos_att_type": "p2c|c2p", "position_biased_input": False,
            "max_relative_positions": -1, "type_vocab_size": 0, "hidden_act": "gelu",
            "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "pooler_dropout": 0,
            "pooler_hidden_act": "gelu", "pooler_hidden_size": hidden,
        },
        count,
    )  # fmt: skip


def _bart(
    hub: str, kind: str, hidden: int, layers: int, heads: int, vocab: int, drop: float, count: int
) -> Entry:
    return (
        f"facebook/{hub}",
        {
            "model_type": kind.lower(), "architectures": [f"{kind}ForConditionalGeneration"],
            "d_model": hidden, "encoder_layers": layers, "decoder_layers": layers,
            "encoder_attention_heads": heads, "decoder_attention_heads": heads,
            "encoder_ffn_dim": 4 * hidden, "decoder_ffn_dim": 4 * hidden, "vocab_size": vocab,
            "max_position_embeddings": 1024, "activation_function": "gelu", "dropout": 0.1,
            "attention_dropout": drop, "activation_dropout": drop, "encoder_layerdrop": 0.0,
            "decoder_layerdrop": 0.0, "scale_embedding": kind == "MBart",
        },
        count,
    )  # fmt: skip


def _speech(hub: str, kind: str, count: int, *, large: bool = False, lv60: bool = False) -> Entry:
    sizes: dict[str, Any] = {
        "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
        "intermediate_size": 4096,
    } if large else {
        "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
        "intermediate_size": 3072,
    }  # fmt: skip
    return (
        f"facebook/{hub}",
        {
            "model_type": kind.lower(), "architectures": [f"{kind}ForCTC"], **sizes,
            "vocab_size": 32, "conv_dim": [512] * 7, "conv_kernel": [10, 3, 3, 3, 3, 2, 2],
            "conv_stride": [5, 2, 2, 2, 2, 2, 2], "conv_bias": lv60,
            "feat_extract_norm": "layer" if lv60 else "group", "do_stable_layer_norm": lv60,
            "num_conv_pos_embeddings": 128, "num_conv_pos_embedding_groups": 16,
            "apply_spec_augment": True, "mask_time_prob": 0.05, "hidden_dropout": 0.1,
            "attention_dropout": 0.1, "activation_dropout": 0.1, "feat_proj_dropout": 0.1,
            "final_dropout": 0.1, "layerdrop": 0.1,
        },
        count,
    )  # fmt: skip


def _albert(hub: str, hidden: int, layers: int, heads: int, count: int) -> Entry:
    return (
        f"albert/{hub}",
        {
            "model_type": "albert", "architectures": ["AlbertForSequenceClassification"],
            "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
            "intermediate_size": 4 * hidden, "embedding_size": 128, "vocab_size": 30_000,
            "max_position_embeddings": 512, "type_vocab_size": 2, "num_hidden_groups": 1,
            "inner_group_num": 1, "hidden_act": "gelu_new", "hidden_dropout_prob": 0,
            "attention_probs_dropout_prob": 0, "classifier_dropout_prob": 0.1,
        },
        count,
    )  # fmt: skip


#: models_db name: (hub address, config, parameters)
def _siglip(size: str, hidden: int, layers: int, heads: int, ffn: int, image: int, patch: int,
            count: int) -> Entry:  # fmt: skip
    tower = {
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "intermediate_size": ffn,
    }  # fmt: skip
    keys = {
        "model_type": "siglip", "architectures": ["SiglipModel"], "text_config": tower,
        "vision_config": {**tower, "image_size": image, "patch_size": patch},
    }  # fmt: skip
    return f"google/siglip-{size}", keys, count


ENCODERS: dict[str, Entry] = {
    # "149 million", "395 million" (Warner et al. 2024, table 4, without and with its head alike)
    "modernbert-base": _modernbert("ModernBERT-base", 768, 22, 12, 1152, 149_655_232),
    "modernbert-large": _modernbert("ModernBERT-large", 1024, 28, 16, 2624, 395_881_664),
    # He et al. 2021: 22, 44, 86 and 304 million beside an embedding of 128,000 words
    "deberta-v3-xsmall": _deberta("deberta-v3-xsmall", 384, 12, 6, 1536, 70_830_722),
    "deberta-v3-small": _deberta("deberta-v3-small", 768, 6, 12, 3072, 141_896_450),
    "deberta-v3-base": _deberta("deberta-v3-base", 768, 12, 12, 3072, 184_423_682),
    "deberta-v3-large": _deberta("deberta-v3-large", 1024, 24, 16, 4096, 435_063_810),
    "mdeberta-v3-base": _deberta("mdeberta-v3-base", 768, 12, 12, 3072, 278_810_882, 251_000),
    # Lewis et al. 2019: "about 10 % more parameters than the equivalently sized BERT"
    "bart-base": _bart("bart-base", "Bart", 768, 6, 12, 50_265, 0.1, 139_420_416),
    "bart-large": _bart("bart-large", "Bart", 1024, 12, 16, 50_265, 0.1, 406_291_456),
    "bart-large-cnn": _bart("bart-large-cnn", "Bart", 1024, 12, 16, 50_264, 0.0, 406_290_432),
    # "approximately 680M", of Liu et al. 2020, counts more
    "mbart-large": _bart("mbart-large-cc25", "MBart", 1024, 12, 16, 250_027, 0.0, 610_851_840),
    "mbart-large-50": _bart("mbart-large-50", "MBart", 1024, 12, 16, 250_054, 0.0, 610_879_488),
    # Baevski et al. 2020: "95m", "317m" with what pre-training has beside the letters
    "wav2vec2-base": _speech("wav2vec2-base-960h", "Wav2Vec2", 94_396_320),
    "wav2vec2-large": _speech("wav2vec2-large-960h", "Wav2Vec2", 315_461_792, large=True),
    "wav2vec2-large-lv60": _speech(
        "wav2vec2-large-960h-lv60", "Wav2Vec2", 315_471_520, large=True, lv60=True
    ),
    # Hsu et al. 2021, table 1: "95M", "317M"
    "hubert-base": _speech("hubert-base-ls960", "Hubert", 94_396_320),
    "hubert-large": _speech("hubert-large-ls960-ft", "Hubert", 315_471_520, large=True, lv60=True),
    # Lan et al. 2019, table 1: 12, 18, 60 and 235 million
    "albert-base": _albert("albert-base-v2", 768, 12, 12, 11_685_122),
    "albert-large": _albert("albert-large-v2", 1024, 24, 16, 17_686_018),
    "albert-xlarge": _albert("albert-xlarge-v2", 2048, 24, 16, 58_728_962),
    "albert-xxlarge": _albert("albert-xxlarge-v2", 4096, 12, 64, 222_603_778),
    "siglip-base-patch16-224": _siglip("base-patch16-224", 768, 12, 12, 3072, 224, 16, 203_155_970),
    "siglip-so400m-patch14-384": _siglip(
        "so400m-patch14-384", 1152, 27, 16, 4304, 384, 14, 877_960_498
    ),
}
