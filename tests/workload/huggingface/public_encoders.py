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


#: models_db name: (hub address, config, parameters)
ENCODERS: dict[str, Entry] = {
    # "149 million", "395 million" (Warner et al. 2024, table 4, without and with its head alike)
    "modernbert-base": _modernbert("ModernBERT-base", 768, 22, 12, 1152, 149_655_232),
    "modernbert-large": _modernbert("ModernBERT-large", 1024, 28, 16, 2624, 395_881_664),
}
