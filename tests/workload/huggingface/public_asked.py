"""Configs of models that people ask for by name, as their hubs publish them (keys that decide
sizes), with the parameters that transformers counts of each on the meta device.
"""

from __future__ import annotations

from typing import Any

Entry = tuple[str, dict[str, Any], int]

_DENSE = {"hidden_act": "silu", "tie_word_embeddings": True}


def _qwen3_embedding(
    size: str, hidden: int, layers: int, heads: int, ffn: int, vocab: int, count: int, *,
    tied: bool = True,
) -> Entry:  # fmt: skip
    return (
        f"Qwen/Qwen3-Embedding-{size}",
        {
            # as AutoModel loads it, without the head that the larger one's config names
            **_DENSE, "model_type": "qwen3", "architectures": ["Qwen3Model"],
            "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": ffn,
            "vocab_size": vocab, "max_position_embeddings": 32768, "tie_word_embeddings": tied,
        },
        count,
    )  # fmt: skip


def _qwen3_5(
    size: str, hidden: int, layers: int, heads: int, kv: int, value_heads: int, ffn: int, count: int
) -> Entry:
    return (
        f"Qwen/Qwen3.5-{size}",
        {
            **_DENSE, "model_type": "qwen3_5_text", "architectures": ["Qwen3_5ForCausalLM"],
            "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": kv, "head_dim": 256, "intermediate_size": ffn,
            "vocab_size": 248_320, "max_position_embeddings": 262_144,
            "linear_num_key_heads": 16, "linear_num_value_heads": value_heads,
            "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        },
        count,
    )  # fmt: skip


def _granite(
    hub: str, hidden: int, layers: int, heads: int, ffn: int, count: int, vocab: int = 100_352
) -> Entry:
    return (
        f"ibm-granite/{hub}",
        {
            **_DENSE, "model_type": "granite", "architectures": ["GraniteForCausalLM"],
            "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": 8, "intermediate_size": ffn, "vocab_size": vocab,
            "max_position_embeddings": 131_072, "attention_multiplier": 0.0078125,
            "embedding_multiplier": 12.0, "logits_scaling": 16.0, "residual_multiplier": 0.22,
        },
        count,
    )  # fmt: skip


def _paligemma2(
    size: str, hidden: int, layers: int, heads: int, kv: int, head: int, ffn: int, count: int
) -> Entry:
    return (
        f"google/paligemma2-{size}-pt-224",
        {
            "model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "hidden_size": hidden,
            "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
            "head_dim": head, "intermediate_size": ffn, "vocab_size": 257_152,
            "max_position_embeddings": 8192, "sliding_window": 4096,
            "hidden_activation": "gelu_pytorch_tanh", "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0, "tie_word_embeddings": True,
        },
        count,
    )  # fmt: skip


def _texts(
    hub: str, kind: str, hidden: int, layers: int, heads: int, vocab: int, count: int, *,
    positions: int = 512,
) -> Entry:  # fmt: skip
    """An encoder whose embeddings of texts are trained: BERT, or XLM-RoBERTa."""
    plain = kind == "Bert"
    return (
        hub,
        {
            "model_type": "bert" if plain else "xlm-roberta", "architectures": [f"{kind}Model"],
            "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
            "intermediate_size": 4 * hidden, "vocab_size": vocab, "pad_token_id": 0 if plain else 1,
            "max_position_embeddings": positions, "type_vocab_size": 2 if plain else 1,
            "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
        },
        count,
    )  # fmt: skip


def _electra(size: str, embedding: int, hidden: int, layers: int, count: int) -> Entry:
    return (
        f"google/electra-{size}-discriminator",
        {
            "model_type": "electra", "architectures": ["ElectraForSequenceClassification"],
            "embedding_size": embedding, "hidden_size": hidden, "num_hidden_layers": layers,
            "num_attention_heads": hidden // 64, "intermediate_size": 4 * hidden,
            "vocab_size": 30_522, "max_position_embeddings": 512, "type_vocab_size": 2,
            "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
        },
        count,
    )  # fmt: skip


def _dinov2(size: str, hidden: int, layers: int, count: int, *, gated: bool = False) -> Entry:
    return (
        f"facebook/dinov2-{size}",
        {
            "model_type": "dinov2", "architectures": ["Dinov2ForImageClassification"],
            "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": hidden // 64,
            "image_size": 518, "patch_size": 14, "mlp_ratio": 4, "use_swiglu_ffn": gated,
            "num_labels": 1000, "hidden_act": "gelu", "qkv_bias": True,
        },
        count,
    )  # fmt: skip


def _siglip2(
    name: str, hidden: int, layers: int, heads: int, ffn: int, image: int, patch: int, count: int
) -> Entry:
    tower = {
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "intermediate_size": ffn,
    }  # fmt: skip
    return (
        f"google/siglip2-{name}",
        {
            "model_type": "siglip", "architectures": ["SiglipModel"],
            "text_config": {**tower, "vocab_size": 256_000, "projection_size": hidden},
            "vision_config": {**tower, "image_size": image, "patch_size": patch},
        },
        count,
    )  # fmt: skip


def _m2m(hub: str, hidden: int, layers: int, ffn: int, vocab: int, count: int) -> Entry:
    return (
        f"facebook/{hub}",
        {
            "model_type": "m2m_100", "architectures": ["M2M100ForConditionalGeneration"],
            "d_model": hidden, "encoder_layers": layers, "decoder_layers": layers,
            "encoder_attention_heads": 16, "decoder_attention_heads": 16,
            "encoder_ffn_dim": ffn, "decoder_ffn_dim": ffn, "vocab_size": vocab,
            "max_position_embeddings": 1024, "activation_function": "relu", "dropout": 0.1,
            "attention_dropout": 0.1, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0,
            "scale_embedding": True,
        },
        count,
    )  # fmt: skip


#: models_db name: (hub address, config, parameters)
ASKED: dict[str, Entry] = {
    "qwen3-embedding-0.6b": _qwen3_embedding("0.6B", 1024, 28, 16, 3072, 151_669, 595_776_512),
    "qwen3-embedding-4b": _qwen3_embedding("4B", 2560, 36, 32, 9728, 151_665, 4_021_774_336),
    "qwen3-embedding-8b": _qwen3_embedding(
        "8B", 4096, 36, 32, 12288, 151_665, 7_567_295_488, tied=False,
    ),
    "qwen3.5-0.8b": _qwen3_5("0.8B", 1024, 24, 8, 2, 16, 3584, 752_393_024),
    "qwen3.5-2b": _qwen3_5("2B", 2048, 24, 8, 2, 16, 6144, 1_881_825_088),
    "qwen3.5-4b": _qwen3_5("4B", 2560, 32, 16, 4, 32, 9216, 4_205_751_296),
    "granite-4.1-3b": _granite("granite-4.1-3b", 2560, 40, 40, 8192, 3_402_836_480),
    "granite-4.1-8b": _granite("granite-4.1-8b", 4096, 40, 32, 12800, 8_380_551_168),
    "granite-4.1-30b": _granite("granite-4.1-30b", 4096, 64, 32, 32768, 28_865_728_512),
    "paligemma2-3b": _paligemma2("3b", 2304, 26, 8, 4, 256, 9216, 2_616_996_096),
    "paligemma2-10b": _paligemma2("10b", 3584, 42, 16, 8, 256, 14336, 9_245_834_752),
    "paligemma2-28b": _paligemma2("28b", 4608, 46, 32, 16, 128, 36864, 27_232_436_736),
    "solar-10.7b": (
        "upstage/SOLAR-10.7B-v1.0",
        {
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
            "hidden_size": 4096, "num_hidden_layers": 48, "num_attention_heads": 32,
            "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000,
            "max_position_embeddings": 4096, "tie_word_embeddings": False,
        },
        10_731_524_096,
    ),
    "minilm-l6": _texts(
        "sentence-transformers/all-MiniLM-L6-v2", "Bert", 384, 6, 12, 30_522, 22_713_216,
    ),
    "bge-small-en": _texts("BAAI/bge-small-en-v1.5", "Bert", 384, 12, 12, 30_522, 33_360_000),
    "bge-base-en": _texts("BAAI/bge-base-en-v1.5", "Bert", 768, 12, 12, 30_522, 109_482_240),
    "bge-large-en": _texts("BAAI/bge-large-en-v1.5", "Bert", 1024, 24, 16, 30_522, 335_141_888),
    "bge-m3": _texts(
        "BAAI/bge-m3", "XLMRoberta", 1024, 24, 16, 250_002, 567_754_752, positions=8194,
    ),
    "multilingual-e5-small": _texts(
        "intfloat/multilingual-e5-small", "Bert", 384, 12, 12, 250_037, 117_653_760
    ),
    "multilingual-e5-base": _texts(
        "intfloat/multilingual-e5-base", "XLMRoberta", 768, 12, 12, 250_002, 278_043_648,
        positions=514,
    ),
    "multilingual-e5-large": _texts(
        "intfloat/multilingual-e5-large", "XLMRoberta", 1024, 24, 16, 250_002, 559_890_432,
        positions=514,
    ),
    # "109M params" of its page
    "all-mpnet-base-v2": (
        "sentence-transformers/all-mpnet-base-v2",
        {
            "model_type": "mpnet", "architectures": ["MPNetModel"], "hidden_size": 768,
            "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
            "vocab_size": 30_527, "max_position_embeddings": 514, "hidden_act": "gelu",
            "relative_attention_num_buckets": 32, "pad_token_id": 1,
        },
        109_486_464,
    ),
    # Clark et al. 2020: "14M", "110M", "335M"
    "electra-small": _electra("small", 128, 256, 12, 13_549_314),
    "electra-base": _electra("base", 768, 768, 12, 109_483_778),
    "electra-large": _electra("large", 1024, 1024, 24, 335_143_938),
    # Oquab et al. 2023: "21 M", "86 M", "300 M", "1,100 M" without the classifier
    "dinov2-small": _dinov2("small", 384, 12, 22_825_576),
    "dinov2-base": _dinov2("base", 768, 12, 88_117_480),
    "dinov2-large": _dinov2("large", 1024, 24, 306_417_640),
    "dinov2-giant": _dinov2("giant", 1536, 40, 1_139_553_768, gated=True),
    "siglip2-base": _siglip2("base-patch16-224", 768, 12, 12, 3072, 224, 16, 375_187_970),
    "siglip2-large": _siglip2("large-patch16-256", 1024, 24, 16, 4096, 256, 16, 881_526_786),
    "siglip2-so400m": _siglip2("so400m-patch14-384", 1152, 27, 16, 4304, 384, 14, 1_136_008_498),
    "m2m100-418m": _m2m("m2m100_418M", 1024, 12, 4096, 128_112, 483_905_536),
    "m2m100-1.2b": _m2m("m2m100_1.2B", 1024, 24, 8192, 128_112, 1_239_470_080),
    "nllb-200-600m": _m2m("nllb-200-distilled-600M", 1024, 12, 4096, 256_206, 615_073_792),
    "nllb-200-1.3b": _m2m("nllb-200-1.3B", 1024, 24, 8192, 256_206, 1_370_638_336),
    "nllb-200-3.3b": _m2m("nllb-200-3.3B", 2048, 24, 8192, 256_206, 3_344_863_232),
}  # fmt: skip
