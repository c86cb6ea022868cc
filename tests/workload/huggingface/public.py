"""Configs of well-known models as their hubs publish them (keys that decide sizes), with the
parameters that follow; counted by others too where a comment says so.
"""

from __future__ import annotations

from typing import Any

_LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_act": "silu", "tie_word_embeddings": False,
    "architectures": ["LlamaForCausalLM"],
}  # fmt: skip


def _llama(hidden: int, layers: int, heads: int, kv: int, ffn: int, vocab: int,
           positions: int, **more: Any) -> dict[str, Any]:  # fmt: skip
    return {
        **_LLAMA, "hidden_size": hidden, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv, "intermediate_size": ffn,
        "vocab_size": vocab, "max_position_embeddings": positions, **more,
    }  # fmt: skip


def _kind(model_type: str, model: str, base: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**base, "model_type": model_type, "architectures": [model], **more}


_QWEN = {"use_sliding_window": False, "sliding_window": None, "max_window_layers": 0}

#: models_db name: (hub address, config, parameters)
PUBLIC: dict[str, tuple[str, dict[str, Any], int]] = {
    "llama2-7b": (
        "meta-llama/Llama-2-7b-hf",
        _llama(4096, 32, 32, 32, 11008, 32000, 4096), 6_738_415_616,
    ),
    "llama2-13b": (
        "meta-llama/Llama-2-13b-hf",
        _llama(5120, 40, 40, 40, 13824, 32000, 4096), 13_015_864_320,
    ),
    "llama2-70b": (
        "meta-llama/Llama-2-70b-hf",
        _llama(8192, 80, 64, 8, 28672, 32000, 4096), 68_976_648_192,
    ),
    "llama3-8b": (
        "meta-llama/Meta-Llama-3-8B",
        _llama(4096, 32, 32, 8, 14336, 128256, 8192), 8_030_261_248,
    ),
    "llama3-70b": (
        "meta-llama/Meta-Llama-3-70B",
        _llama(8192, 80, 64, 8, 28672, 128256, 8192), 70_553_706_496,
    ),
    "llama3.1-405b": (
        "meta-llama/Llama-3.1-405B",
        _llama(16384, 126, 128, 8, 53248, 128256, 131072), 405_853_388_800,
    ),
    "llama3.2-1b": (
        "meta-llama/Llama-3.2-1B",
        _llama(2048, 16, 32, 8, 8192, 128256, 131072, head_dim=64, tie_word_embeddings=True),
        1_235_814_400,
    ),
    "mistral-7b": (
        "mistralai/Mistral-7B-v0.1",
        _kind("mistral", "MistralForCausalLM",
              _llama(4096, 32, 32, 8, 14336, 32000, 32768), sliding_window=4096),
        7_241_732_096,
    ),
    "mixtral-8x7b": (
        "mistralai/Mixtral-8x7B-v0.1",
        _kind("mixtral", "MixtralForCausalLM",
              _llama(4096, 32, 32, 8, 14336, 32000, 32768), sliding_window=None,
              num_local_experts=8, num_experts_per_tok=2),
        46_702_792_704,
    ),
    "mixtral-8x22b": (
        "mistralai/Mixtral-8x22B-v0.1",
        _kind("mixtral", "MixtralForCausalLM",
              _llama(6144, 56, 48, 8, 16384, 32000, 65536), sliding_window=None,
              num_local_experts=8, num_experts_per_tok=2),
        140_620_634_112,
    ),
    "qwen2-7b": (
        "Qwen/Qwen2-7B",
        _kind("qwen2", "Qwen2ForCausalLM",
              _llama(3584, 28, 28, 4, 18944, 152064, 131072), **_QWEN),
        7_615_616_512,
    ),
    "qwen2-72b": (
        "Qwen/Qwen2-72B",
        _kind("qwen2", "Qwen2ForCausalLM",
              _llama(8192, 80, 64, 8, 29568, 152064, 131072), **_QWEN),
        72_706_203_648,
    ),
    "qwen3-8b": (
        "Qwen/Qwen3-8B",
        _kind("qwen3", "Qwen3ForCausalLM",
              _llama(4096, 36, 32, 8, 12288, 151936, 40960, head_dim=128), **_QWEN),
        8_190_735_360,
    ),
    "qwen3-32b": (
        "Qwen/Qwen3-32B",
        _kind("qwen3", "Qwen3ForCausalLM",
              _llama(5120, 64, 64, 8, 25600, 151936, 40960, head_dim=128), **_QWEN),
        32_762_123_264,
    ),
    "qwen3-30b-a3b": (
        "Qwen/Qwen3-30B-A3B",
        _kind("qwen3_moe", "Qwen3MoeForCausalLM",
              _llama(2048, 48, 32, 4, 6144, 151936, 40960, head_dim=128), num_experts=128,
              num_experts_per_tok=8, moe_intermediate_size=768, decoder_sparse_step=1,
              mlp_only_layers=[], use_sliding_window=False),
        30_532_122_624,
    ),
    "qwen3-235b-a22b": (
        "Qwen/Qwen3-235B-A22B",
        _kind("qwen3_moe", "Qwen3MoeForCausalLM",
              _llama(4096, 94, 64, 4, 12288, 151936, 40960, head_dim=128), num_experts=128,
              num_experts_per_tok=8, moe_intermediate_size=1536, decoder_sparse_step=1,
              mlp_only_layers=[], use_sliding_window=False),
        235_093_634_560,
    ),
    "gemma-2-9b": (
        "google/gemma-2-9b",
        {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "hidden_size": 3584,
         "num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8,
         "head_dim": 256, "intermediate_size": 14336, "vocab_size": 256000,
         "max_position_embeddings": 8192, "sliding_window": 4096,
         "hidden_activation": "gelu_pytorch_tanh", "attn_logit_softcapping": 50.0,
         "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 256},
        9_241_705_984,
    ),
    "deepseek-v3": (
        "deepseek-ai/DeepSeek-V3",
        {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"],
         "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
         "num_key_value_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048,
         "vocab_size": 129280, "max_position_embeddings": 163840, "n_routed_experts": 256,
         "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
         "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
         "qk_rope_head_dim": 64, "v_head_dim": 128, "n_group": 8, "topk_group": 4,
         "num_nextn_predict_layers": 1, "hidden_act": "silu", "tie_word_embeddings": False},
        671_026_404_352,
    ),
    "deepseek-v2-lite": (
        "deepseek-ai/DeepSeek-V2-Lite",
        {"model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"],
         "hidden_size": 2048, "num_hidden_layers": 27, "num_attention_heads": 16,
         "num_key_value_heads": 16, "intermediate_size": 10944, "moe_intermediate_size": 1408,
         "vocab_size": 102400, "max_position_embeddings": 163840, "n_routed_experts": 64,
         "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1,
         "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
         "qk_rope_head_dim": 64, "v_head_dim": 128, "n_group": 1, "topk_group": 1,
         "hidden_act": "silu", "tie_word_embeddings": False},
        15_706_484_224,
    ),
    "gpt-oss-20b": (
        "openai/gpt-oss-20b",
        {"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "hidden_size": 2880,
         "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8,
         "head_dim": 64, "intermediate_size": 2880, "vocab_size": 201088,
         "max_position_embeddings": 131072, "num_local_experts": 32, "num_experts_per_tok": 4,
         "sliding_window": 128, "attention_bias": True, "hidden_act": "silu",
         "tie_word_embeddings": False},
        20_914_757_184,
    ),
    "bloom-176b": (
        "bigscience/bloom",
        {"model_type": "bloom", "architectures": ["BloomForCausalLM"], "n_embed": 14336,
         "hidden_size": 14336, "n_layer": 70, "num_attention_heads": 112, "n_head": 112,
         "vocab_size": 250880, "seq_length": 2048, "hidden_dropout": 0.0},
        176_247_271_424,
    ),
    "falcon-40b": (
        "tiiuae/falcon-40b",
        {"model_type": "falcon", "architectures": ["FalconForCausalLM"], "hidden_size": 8192,
         "num_hidden_layers": 60, "num_attention_heads": 128, "num_kv_heads": 8,
         "vocab_size": 65024, "new_decoder_architecture": True, "parallel_attn": True,
         "alibi": False, "bias": False, "multi_query": True},
        41_303_293_952,
    ),
    "gpt-neox-20b": (
        "EleutherAI/gpt-neox-20b",
        {"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "hidden_size": 6144,
         "num_hidden_layers": 44, "num_attention_heads": 64, "intermediate_size": 24576,
         "vocab_size": 50432, "max_position_embeddings": 2048, "rotary_pct": 0.25,
         "hidden_act": "gelu_fast", "tie_word_embeddings": False},
        20_554_567_680,
    ),
    "opt-13b": (
        "facebook/opt-13b",
        {"model_type": "opt", "architectures": ["OPTForCausalLM"], "hidden_size": 5120,
         "num_hidden_layers": 40, "num_attention_heads": 40, "ffn_dim": 20480,
         "vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": 5120,
         "do_layer_norm_before": True, "activation_function": "relu", "dropout": 0.1},
        12_853_473_280,
    ),
    "phi-3-mini": (
        "microsoft/Phi-3-mini-4k-instruct",
        {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "hidden_size": 3072,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
         "intermediate_size": 8192, "vocab_size": 32064, "max_position_embeddings": 4096,
         "sliding_window": 2047, "hidden_act": "silu", "tie_word_embeddings": False},
        3_821_079_552,
    ),
    "t5-large": (
        "google-t5/t5-large",
        {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 1024,
         "d_kv": 64, "d_ff": 4096, "num_layers": 24, "num_heads": 16, "vocab_size": 32128,
         "relative_attention_num_buckets": 32, "n_positions": 512, "dropout_rate": 0.1},
        737_668_096,
    ),
    "whisper-large-v3": (
        "openai/whisper-large-v3",
        {"model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"],
         "d_model": 1280, "encoder_layers": 32, "decoder_layers": 32,
         "encoder_attention_heads": 20, "decoder_attention_heads": 20, "encoder_ffn_dim": 5120,
         "decoder_ffn_dim": 5120, "vocab_size": 51866, "num_mel_bins": 128,
         "max_source_positions": 1500, "max_target_positions": 448},
        1_541_570_560,
    ),
    "clip-vit-l-14": (
        "openai/clip-vit-large-patch14",
        {"model_type": "clip", "architectures": ["CLIPModel"], "projection_dim": 768,
         "text_config": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
                         "intermediate_size": 3072, "vocab_size": 49408,
                         "max_position_embeddings": 77, "hidden_act": "quick_gelu"},
         "vision_config": {"hidden_size": 1024, "num_hidden_layers": 24,
                           "num_attention_heads": 16, "intermediate_size": 4096,
                           "image_size": 224, "patch_size": 14, "hidden_act": "quick_gelu"}},
        427_616_513,
    ),
}  # fmt: skip
