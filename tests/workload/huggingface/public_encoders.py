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


#: models_db name: (hub address, config, parameters)
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
}
