"""Configs of further public families, as their hubs publish them, with the parameters that
transformers counts of each on the meta device (``test_public.py`` counts them again).
"""

from __future__ import annotations

from typing import Any

Entry = tuple[str, dict[str, Any], int]

_LLAMA: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
}  # fmt: skip

_OLMO: dict[str, Any] = {
    "model_type": "olmo", "architectures": ["OlmoForCausalLM"], "vocab_size": 50304,
    "max_position_embeddings": 2048, "hidden_act": "silu",
}  # fmt: skip

_OLMO2: dict[str, Any] = {
    "model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"], "vocab_size": 100352,
    "max_position_embeddings": 4096, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip

_GPT_NEO: dict[str, Any] = {
    "model_type": "gpt_neo", "architectures": ["GPTNeoForCausalLM"], "vocab_size": 50257,
    "max_position_embeddings": 2048, "window_size": 256, "activation_function": "gelu_new",
    "resid_dropout": 0.0,
}  # fmt: skip

_XLM_ROBERTA: dict[str, Any] = {
    "model_type": "xlm-roberta", "architectures": ["XLMRobertaForMaskedLM"], "vocab_size": 250002,
    "max_position_embeddings": 514, "type_vocab_size": 1,
}  # fmt: skip

_BERT: dict[str, Any] = {
    "model_type": "bert", "architectures": ["BertForSequenceClassification"],
    "max_position_embeddings": 512, "type_vocab_size": 2, "num_labels": 2,
}  # fmt: skip

_STABLELM: dict[str, Any] = {
    "model_type": "stablelm", "architectures": ["StableLmForCausalLM"], "num_attention_heads": 32,
    "num_key_value_heads": 32, "max_position_embeddings": 4096, "hidden_act": "silu",
    "tie_word_embeddings": False, "partial_rotary_factor": 0.25,
}  # fmt: skip

_STARCODER2: dict[str, Any] = {
    "model_type": "starcoder2", "architectures": ["Starcoder2ForCausalLM"], "vocab_size": 49152,
    "max_position_embeddings": 16384, "hidden_act": "gelu_pytorch_tanh", "sliding_window": 4096,
}  # fmt: skip

_GRANITE: dict[str, Any] = {
    "model_type": "granite", "architectures": ["GraniteForCausalLM"], "num_hidden_layers": 40,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 49155,
    "max_position_embeddings": 4096, "hidden_act": "silu", "tie_word_embeddings": True,
    "embedding_multiplier": 12.0, "logits_scaling": 16.0, "residual_multiplier": 0.22,
    "attention_multiplier": 0.0078125,
}  # fmt: skip

_MISTRAL: dict[str, Any] = {
    "model_type": "mistral", "architectures": ["MistralForCausalLM"], "hidden_size": 4096,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "max_position_embeddings": 32768, "hidden_act": "silu",
    "tie_word_embeddings": False, "sliding_window": None, "head_dim": 128,
}  # fmt: skip

_QWEN2: dict[str, Any] = {
    "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu",
    "use_sliding_window": False, "sliding_window": None, "max_window_layers": 0,
}  # fmt: skip

_WHISPER: dict[str, Any] = {
    "model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"],
    "max_source_positions": 1500, "max_target_positions": 448,
}  # fmt: skip

MORE: dict[str, Entry] = {
    "smollm2-135m": (
        "HuggingFaceTB/SmolLM2-135M", {**_LLAMA, "hidden_size": 576, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536, "vocab_size":
        49152, "max_position_embeddings": 8192, "tie_word_embeddings": True}, 134_515_008,
    ),
    "smollm2-360m": (
        "HuggingFaceTB/SmolLM2-360M", {**_LLAMA, "hidden_size": 960, "num_hidden_layers": 32,
        "num_attention_heads": 15, "num_key_value_heads": 5, "intermediate_size": 2560,
        "vocab_size": 49152, "max_position_embeddings": 8192, "tie_word_embeddings": True},
        361_821_120,
    ),
    "smollm2-1.7b": (
        "HuggingFaceTB/SmolLM2-1.7B", {**_LLAMA, "hidden_size": 2048, "num_hidden_layers": 24,
        "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 8192,
        "vocab_size": 49152, "max_position_embeddings": 8192, "tie_word_embeddings": True},
        1_711_376_384,
    ),
    "smollm3-3b": (
        "HuggingFaceTB/SmolLM3-3B", {"model_type": "smollm3", "architectures":
        ["SmolLM3ForCausalLM"], "hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads":
        16, "num_key_value_heads": 4, "intermediate_size": 11008, "vocab_size": 128256,
        "max_position_embeddings": 65536, "hidden_act": "silu", "tie_word_embeddings": True,
        "pad_token_id": 0}, 3_075_098_624,
    ),
    "yi-9b": (
        "01-ai/Yi-9B", {**_LLAMA, "hidden_size": 4096, "num_hidden_layers": 48,
        "num_attention_heads": 32, "num_key_value_heads": 4, "intermediate_size": 11008,
        "vocab_size": 64000, "max_position_embeddings": 4096, "tie_word_embeddings": False},
        8_829_407_232,
    ),
    "olmo-1b": (
        "allenai/OLMo-1B-hf", {**_OLMO, "hidden_size": 2048, "num_hidden_layers": 16,
        "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 8192,
        "tie_word_embeddings": True}, 1_176_764_416,
    ),
    "olmo-7b": (
        "allenai/OLMo-7B-hf", {**_OLMO, "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 11008,
        "tie_word_embeddings": False}, 6_888_095_744,
    ),
    "olmo2-1b": (
        "allenai/OLMo-2-0425-1B", {**_OLMO2, "hidden_size": 2048, "num_hidden_layers": 16,
        "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 8192},
        1_484_916_736,
    ),
    "olmo2-7b": (
        "allenai/OLMo-2-1124-7B", {**_OLMO2, "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 11008},
        7_298_617_344,
    ),
    "olmo2-13b": (
        "allenai/OLMo-2-1124-13B", {**_OLMO2, "hidden_size": 5120, "num_hidden_layers": 40,
        "num_attention_heads": 40, "num_key_value_heads": 40, "intermediate_size": 13824},
        13_716_198_400,
    ),
    "olmo2-32b": (
        "allenai/OLMo-2-0325-32B", {**_OLMO2, "hidden_size": 5120, "num_hidden_layers": 64,
        "num_attention_heads": 40, "num_key_value_heads": 8, "intermediate_size": 27648},
        32_234_279_936,
    ),
    "olmoe-1b-7b": (
        "allenai/OLMoE-1B-7B-0924", {"model_type": "olmoe", "architectures": ["OlmoeForCausalLM"],
        "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16,
        "num_key_value_heads": 16, "intermediate_size": 1024, "vocab_size": 50304,
        "max_position_embeddings": 4096, "hidden_act": "silu", "tie_word_embeddings": False,
        "num_experts": 64, "num_experts_per_tok": 8}, 6_919_161_856,
    ),
    "gpt-neo-125m": (
        "EleutherAI/gpt-neo-125m", {**_GPT_NEO, "hidden_size": 768, "num_layers": 12, "num_heads":
        12, "attention_types": [[["global", "local"], 6]]}, 125_198_592,
    ),
    "gpt-neo-1.3b": (
        "EleutherAI/gpt-neo-1.3B", {**_GPT_NEO, "hidden_size": 2048, "num_layers": 24, "num_heads":
        16, "attention_types": [[["global", "local"], 12]]}, 1_315_575_808,
    ),
    "gpt-neo-2.7b": (
        "EleutherAI/gpt-neo-2.7B", {**_GPT_NEO, "hidden_size": 2560, "num_layers": 32, "num_heads":
        20, "attention_types": [[["global", "local"], 16]]}, 2_651_307_520,
    ),
    "distilbert-base": (
        "distilbert/distilbert-base-uncased", {"model_type": "distilbert", "architectures":
        ["DistilBertForSequenceClassification"], "dim": 768, "n_layers": 6, "n_heads": 12,
        "hidden_dim": 3072, "vocab_size": 30522, "max_position_embeddings": 512, "num_labels": 2,
        "dropout": 0.1}, 66_955_010,
    ),
    "distilroberta-base": (
        "distilbert/distilroberta-base", {"model_type": "roberta", "architectures":
        ["RobertaForMaskedLM"], "hidden_size": 768, "num_hidden_layers": 6, "num_attention_heads":
        12, "intermediate_size": 3072, "vocab_size": 50265, "max_position_embeddings": 514,
        "type_vocab_size": 1}, 82_170_201,
    ),
    "xlm-roberta-base": (
        "FacebookAI/xlm-roberta-base", {**_XLM_ROBERTA, "hidden_size": 768, "num_hidden_layers": 12,
        "num_attention_heads": 12, "intermediate_size": 3072}, 278_295_186,
    ),
    "xlm-roberta-large": (
        "FacebookAI/xlm-roberta-large", {**_XLM_ROBERTA, "hidden_size": 1024, "num_hidden_layers":
        24, "num_attention_heads": 16, "intermediate_size": 4096}, 560_142_482,
    ),
    "bert-base-cased": (
        "google-bert/bert-base-cased", {**_BERT, "hidden_size": 768, "num_hidden_layers": 12,
        "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 28996}, 108_311_810,
    ),
    "bert-large-cased": (
        "google-bert/bert-large-cased", {**_BERT, "hidden_size": 1024, "num_hidden_layers": 24,
        "num_attention_heads": 16, "intermediate_size": 4096, "vocab_size": 28996}, 333_581_314,
    ),
    "bert-base-multilingual": (
        "google-bert/bert-base-multilingual-cased", {**_BERT, "hidden_size": 768,
        "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size":
        119547}, 177_854_978,
    ),
    "stablelm-3b": (
        "stabilityai/stablelm-3b-4e1t", {**_STABLELM, "hidden_size": 2560, "num_hidden_layers": 32,
        "intermediate_size": 6912, "vocab_size": 50304}, 2_795_443_200,
    ),
    "stablelm-2-1.6b": (
        "stabilityai/stablelm-2-1_6b", {**_STABLELM, "hidden_size": 2048, "num_hidden_layers": 24,
        "intermediate_size": 5632, "vocab_size": 100352, "use_qkv_bias": True}, 1_644_515_328,
    ),
    "starcoder2-3b": (
        "bigcode/starcoder2-3b", {**_STARCODER2, "hidden_size": 3072, "num_hidden_layers": 30,
        "num_attention_heads": 24, "num_key_value_heads": 2, "intermediate_size": 12288,
        "tie_word_embeddings": True}, 3_030_371_328,
    ),
    "starcoder2-7b": (
        "bigcode/starcoder2-7b", {**_STARCODER2, "hidden_size": 4608, "num_hidden_layers": 32,
        "num_attention_heads": 36, "num_key_value_heads": 4, "intermediate_size": 18432,
        "tie_word_embeddings": True}, 7_173_923_840,
    ),
    "starcoder2-15b": (
        "bigcode/starcoder2-15b", {**_STARCODER2, "hidden_size": 6144, "num_hidden_layers": 40,
        "num_attention_heads": 48, "num_key_value_heads": 4, "intermediate_size": 24576,
        "tie_word_embeddings": False}, 15_957_889_024,
    ),
    "falcon3-1b": (
        "tiiuae/Falcon3-1B-Base", {**_LLAMA, "hidden_size": 2048, "num_hidden_layers": 18,
        "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 8192, "vocab_size":
        131072, "max_position_embeddings": 32768, "tie_word_embeddings": False, "head_dim": 256},
        1_669_408_768,
    ),
    "falcon3-3b": (
        "tiiuae/Falcon3-3B-Base", {**_LLAMA, "hidden_size": 3072, "num_hidden_layers": 22,
        "num_attention_heads": 12, "num_key_value_heads": 4, "intermediate_size": 9216,
        "vocab_size": 131072, "max_position_embeddings": 32768, "tie_word_embeddings": False,
        "head_dim": 256}, 3_227_655_168,
    ),
    "falcon3-7b": (
        "tiiuae/Falcon3-7B-Base", {**_LLAMA, "hidden_size": 3072, "num_hidden_layers": 28,
        "num_attention_heads": 12, "num_key_value_heads": 4, "intermediate_size": 23040,
        "vocab_size": 131072, "max_position_embeddings": 32768, "tie_word_embeddings": False,
        "head_dim": 256}, 7_455_550_464,
    ),
    "falcon3-10b": (
        "tiiuae/Falcon3-10B-Base", {**_LLAMA, "hidden_size": 3072, "num_hidden_layers": 40,
        "num_attention_heads": 12, "num_key_value_heads": 4, "intermediate_size": 23040,
        "vocab_size": 131072, "max_position_embeddings": 32768, "tie_word_embeddings": False,
        "head_dim": 256}, 10_305_653_760,
    ),
    "granite-3-2b": (
        "ibm-granite/granite-3.0-2b-base", {**_GRANITE, "hidden_size": 2048, "intermediate_size":
        8192}, 2_533_531_648,
    ),
    "granite-3-8b": (
        "ibm-granite/granite-3.0-8b-base", {**_GRANITE, "hidden_size": 4096, "intermediate_size":
        12800}, 8_170_848_256,
    ),
    "open-llama-3b": (
        "openlm-research/open_llama_3b", {**_LLAMA, "hidden_size": 3200, "num_hidden_layers": 26,
        "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 8640,
        "vocab_size": 32000, "max_position_embeddings": 2048, "tie_word_embeddings": False},
        3_426_473_600,
    ),
    "codellama-7b": (
        "codellama/CodeLlama-7b-hf", {**_LLAMA, "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 11008,
        "vocab_size": 32016, "max_position_embeddings": 16384, "tie_word_embeddings": False},
        6_738_546_688,
    ),
    "codellama-13b": (
        "codellama/CodeLlama-13b-hf", {**_LLAMA, "hidden_size": 5120, "num_hidden_layers": 40,
        "num_attention_heads": 40, "num_key_value_heads": 40, "intermediate_size": 13824,
        "vocab_size": 32016, "max_position_embeddings": 16384, "tie_word_embeddings": False},
        13_016_028_160,
    ),
    "mistral-7b-v0.2": (
        "mistralai/Mistral-7B-Instruct-v0.2", {**_MISTRAL, "vocab_size": 32000}, 7_241_732_096,
    ),
    "mistral-7b-v0.3": (
        "mistralai/Mistral-7B-v0.3", {**_MISTRAL, "vocab_size": 32768}, 7_248_023_552,
    ),
    "qwen1.5-0.5b": (
        "Qwen/Qwen1.5-0.5B", {**_QWEN2, "hidden_size": 1024, "num_hidden_layers": 24,
        "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 2816,
        "vocab_size": 151936, "max_position_embeddings": 32768, "tie_word_embeddings": True},
        463_987_712,
    ),
    "qwen1.5-4b": (
        "Qwen/Qwen1.5-4B", {**_QWEN2, "hidden_size": 2560, "num_hidden_layers": 40,
        "num_attention_heads": 20, "num_key_value_heads": 20, "intermediate_size": 6912,
        "vocab_size": 151936, "max_position_embeddings": 32768, "tie_word_embeddings": False},
        3_950_369_280,
    ),
    "qwen1.5-32b": (
        "Qwen/Qwen1.5-32B", {**_QWEN2, "hidden_size": 5120, "num_hidden_layers": 64,
        "num_attention_heads": 40, "num_key_value_heads": 8, "intermediate_size": 27392,
        "vocab_size": 152064, "max_position_embeddings": 32768, "tie_word_embeddings": False},
        32_512_218_112,
    ),
    "qwen1.5-110b": (
        "Qwen/Qwen1.5-110B", {**_QWEN2, "hidden_size": 8192, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 49152,
        "vocab_size": 152064, "max_position_embeddings": 32768, "tie_word_embeddings": False},
        111_209_914_368,
    ),
    "deepseek-r1-distill-qwen-1.5b": (
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", {**_QWEN2, "hidden_size": 1536,
        "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2,
        "intermediate_size": 8960, "vocab_size": 151936, "max_position_embeddings": 131072,
        "tie_word_embeddings": False}, 1_777_088_000,
    ),
    "phi-3.5-mini": (
        "microsoft/Phi-3.5-mini-instruct", {"model_type": "phi3", "architectures":
        ["Phi3ForCausalLM"], "hidden_size": 3072, "num_hidden_layers": 32, "num_attention_heads":
        32, "num_key_value_heads": 32, "intermediate_size": 8192, "vocab_size": 32064,
        "max_position_embeddings": 131072, "hidden_act": "silu", "tie_word_embeddings": False,
        "sliding_window": None}, 3_821_079_552,
    ),
    "whisper-tiny": (
        "openai/whisper-tiny", {**_WHISPER, "d_model": 384, "encoder_layers": 4, "decoder_layers":
        4, "encoder_attention_heads": 6, "decoder_attention_heads": 6, "encoder_ffn_dim": 1536,
        "decoder_ffn_dim": 1536, "vocab_size": 51865, "num_mel_bins": 80}, 37_184_640,
    ),
    "whisper-base": (
        "openai/whisper-base", {**_WHISPER, "d_model": 512, "encoder_layers": 6, "decoder_layers":
        6, "encoder_attention_heads": 8, "decoder_attention_heads": 8, "encoder_ffn_dim": 2048,
        "decoder_ffn_dim": 2048, "vocab_size": 51865, "num_mel_bins": 80}, 71_825_920,
    ),
    "whisper-small": (
        "openai/whisper-small", {**_WHISPER, "d_model": 768, "encoder_layers": 12, "decoder_layers":
        12, "encoder_attention_heads": 12, "decoder_attention_heads": 12, "encoder_ffn_dim": 3072,
        "decoder_ffn_dim": 3072, "vocab_size": 51865, "num_mel_bins": 80}, 240_582_912,
    ),
    "whisper-medium": (
        "openai/whisper-medium", {**_WHISPER, "d_model": 1024, "encoder_layers": 24,
        "decoder_layers": 24, "encoder_attention_heads": 16, "decoder_attention_heads": 16,
        "encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096, "vocab_size": 51865, "num_mel_bins": 80},
        762_321_920,
    ),
    "whisper-large-v2": (
        "openai/whisper-large-v2", {**_WHISPER, "d_model": 1280, "encoder_layers": 32,
        "decoder_layers": 32, "encoder_attention_heads": 20, "decoder_attention_heads": 20,
        "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120, "vocab_size": 51865, "num_mel_bins": 80},
        1_541_384_960,
    ),
    "whisper-large-v3-turbo": (
        "openai/whisper-large-v3-turbo", {**_WHISPER, "d_model": 1280, "encoder_layers": 32,
        "decoder_layers": 4, "encoder_attention_heads": 20, "decoder_attention_heads": 20,
        "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120, "vocab_size": 51866, "num_mel_bins": 128},
        806_958_080,
    ),
}  # fmt: skip
