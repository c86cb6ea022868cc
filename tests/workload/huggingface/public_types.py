"""Public models of 2023 to 2026, of types that came later.

Written down from their makers" descriptions, not downloaded: with the parameters that transformers
counts of them, and the billions that their makers publish.
"""

from __future__ import annotations

from typing import Any

from huggingface.public_sizes import Entry

_LFM2 = [{"c": "conv", "a": "full_attention"}[k] for k in "ccaccaccacacacac"]
_LFM2_MOE = ["full_attention" if i in (2, 6, 10, 14, 18, 21) else "conv" for i in range(24)]
_GEMMA_4 = {
    "num_attention_heads": 8, "head_dim": 256, "global_head_dim": 512, "vocab_size": 262144,
    "vocab_size_per_layer_input": 262144, "hidden_size_per_layer_input": 256, "sliding_window": 512,
    "final_logit_softcapping": 30.0, "max_position_embeddings": 131072, "tie_word_embeddings": True,
}  # fmt: skip
_GEMMA_3N = {
    "hidden_size": 2048, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
    "vocab_size": 262400, "vocab_size_per_layer_input": 262144, "hidden_size_per_layer_input": 256,
    "sliding_window": 512, "final_logit_softcapping": 30.0, "max_position_embeddings": 32768,
    "altup_num_inputs": 4, "laurel_rank": 64, "tie_word_embeddings": True,
}  # fmt: skip
#: models_db name: (hub address, config, parameters, published billions)
_PUBLISHED: dict[str, tuple[str, dict[str, Any], int, float]] = {
    "deepseek-v3.2": (
        "deepseek-ai/DeepSeek-V3.2",
        {"model_type": "deepseek_v32", "architectures": ["DeepseekV32ForCausalLM"], "hidden_size":
         7168, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
         "intermediate_size": 18432, "vocab_size": 129280, "moe_intermediate_size": 2048,
         "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1, "n_group": 8,
         "topk_group": 4, "first_k_dense_replace": 3, "index_n_heads": 64, "index_head_dim": 128,
         "index_topk": 2048, "max_position_embeddings": 163840, "tie_word_embeddings": False,
         "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
         "v_head_dim": 128},
        671_877_929_216, 671.9,
    ),
    "glm-5": (
        "zai-org/GLM-5",
        {"model_type": "glm_moe_dsa", "architectures": ["GlmMoeDsaForCausalLM"], "hidden_size":
         6144, "num_hidden_layers": 78, "num_attention_heads": 64, "num_key_value_heads": 64,
         "intermediate_size": 12288, "vocab_size": 154880, "moe_intermediate_size": 2048,
         "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1, "n_group": 1,
         "topk_group": 1, "first_k_dense_replace": 3, "q_lora_rank": 2048, "kv_lora_rank": 512,
         "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256, "index_n_heads": 32,
         "index_head_dim": 128, "index_topk": 2048, "max_position_embeddings": 202752,
         "tie_word_embeddings": False},
        743_911_199_232, 744,
    ),
    "glm-4.7-flash": (
        "zai-org/GLM-4.7-Flash",
        {"model_type": "glm4_moe_lite", "architectures": ["Glm4MoeLiteForCausalLM"], "hidden_size":
         2048, "num_hidden_layers": 47, "num_attention_heads": 20, "num_key_value_heads": 20,
         "intermediate_size": 10240, "vocab_size": 154880, "moe_intermediate_size": 1536,
         "n_routed_experts": 64, "num_experts_per_tok": 4, "n_shared_experts": 1, "n_group": 1,
         "topk_group": 1, "first_k_dense_replace": 1, "q_lora_rank": 768, "kv_lora_rank": 512,
         "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
         "max_position_embeddings": 202752, "tie_word_embeddings": False},
        29_943_390_976, 30,
    ),
    "apertus-8b": (
        "swiss-ai/Apertus-8B-2509",
        {"model_type": "apertus", "architectures": ["ApertusForCausalLM"], "hidden_size": 4096,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
         "intermediate_size": 21504, "vocab_size": 131072, "max_position_embeddings": 65536,
         "hidden_act": "xielu", "tie_word_embeddings": False},
        8_053_338_176, 8.05,
    ),
    "apertus-70b": (
        "swiss-ai/Apertus-70B-2509",
        {"model_type": "apertus", "architectures": ["ApertusForCausalLM"], "hidden_size": 8192,
         "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
         "intermediate_size": 43008, "vocab_size": 131072, "max_position_embeddings": 65536,
         "hidden_act": "xielu", "tie_word_embeddings": False},
        70_599_864_480, 70.6,
    ),
    "command-r": (
        "CohereLabs/c4ai-command-r-v01",
        {"model_type": "cohere", "architectures": ["CohereForCausalLM"], "hidden_size": 8192,
         "num_hidden_layers": 40, "num_attention_heads": 64, "num_key_value_heads": 64,
         "intermediate_size": 22528, "vocab_size": 256000, "max_position_embeddings": 131072,
         "tie_word_embeddings": True},
        34_980_831_232, 35,
    ),
    "command-r-08-2024": (
        "CohereLabs/c4ai-command-r-08-2024",
        {"model_type": "cohere", "architectures": ["CohereForCausalLM"], "hidden_size": 8192,
         "num_hidden_layers": 40, "num_attention_heads": 64, "num_key_value_heads": 8,
         "intermediate_size": 24576, "vocab_size": 256000, "max_position_embeddings": 131072,
         "tie_word_embeddings": True},
        32_296_476_672, 32.3,
    ),
    "aya-expanse-8b": (
        "CohereLabs/aya-expanse-8b",
        {"model_type": "cohere", "architectures": ["CohereForCausalLM"], "hidden_size": 4096,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
         "intermediate_size": 14336, "vocab_size": 256000, "max_position_embeddings": 8192,
         "tie_word_embeddings": True},
        8_028_033_024, 8.03,
    ),
    "command-r7b": (
        "CohereLabs/c4ai-command-r7b-12-2024",
        {"model_type": "cohere2", "architectures": ["Cohere2ForCausalLM"], "hidden_size": 4096,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
         "intermediate_size": 14336, "vocab_size": 256000, "sliding_window": 4096,
         "max_position_embeddings": 131072, "tie_word_embeddings": True},
        8_028_033_024, 8.03,
    ),
    "command-a": (
        "CohereLabs/c4ai-command-a-03-2025",
        {"model_type": "cohere2", "architectures": ["Cohere2ForCausalLM"], "hidden_size": 12288,
         "num_hidden_layers": 64, "num_attention_heads": 96, "num_key_value_heads": 8,
         "intermediate_size": 36864, "vocab_size": 256000, "sliding_window": 4096,
         "max_position_embeddings": 131072, "tie_word_embeddings": True},
        111_057_580_032, 111,
    ),
    "ernie-4.5-21b-a3b": (
        "baidu/ERNIE-4.5-21B-A3B-PT",
        {"model_type": "ernie4_5_moe", "architectures": ["Ernie4_5_MoeForCausalLM"], "hidden_size":
         2560, "num_hidden_layers": 28, "num_attention_heads": 20, "num_key_value_heads": 4,
         "intermediate_size": 12288, "vocab_size": 103424, "moe_intermediate_size": 1536,
         "moe_num_experts": 64, "moe_k": 6, "moe_num_shared_experts": 2, "moe_layer_start_index": 1,
         "moe_layer_interval": 1, "max_position_embeddings": 131072, "use_bias": False,
         "tie_word_embeddings": True},
        21_825_436_160, 21,
    ),
    "ernie-4.5-300b-a47b": (
        "baidu/ERNIE-4.5-300B-A47B-PT",
        {"model_type": "ernie4_5_moe", "architectures": ["Ernie4_5_MoeForCausalLM"], "hidden_size":
         8192, "num_hidden_layers": 54, "num_attention_heads": 64, "num_key_value_heads": 8,
         "intermediate_size": 28672, "vocab_size": 103424, "moe_intermediate_size": 3584,
         "moe_num_experts": 64, "moe_k": 8, "moe_num_shared_experts": 0, "moe_layer_start_index": 3,
         "moe_layer_interval": 1, "max_position_embeddings": 131072, "use_bias": False,
         "tie_word_embeddings": False},
        299_484_160_000, 300,
    ),
    "lfm2-350m": (
        "LiquidAI/LFM2-350M",
        {"model_type": "lfm2", "architectures": ["Lfm2ForCausalLM"], "hidden_size": 1024,
         "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 8,
         "intermediate_size": 6656, "vocab_size": 65536, "layer_types": _LFM2, "conv_L_cache": 3,
         "block_multiple_of": 256, "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier":
         1.0, "max_position_embeddings": 128000, "tie_word_embeddings": True},
        354_483_968, 0.354,
    ),
    "lfm2-700m": (
        "LiquidAI/LFM2-700M",
        {"model_type": "lfm2", "architectures": ["Lfm2ForCausalLM"], "hidden_size": 1536,
         "num_hidden_layers": 16, "num_attention_heads": 24, "num_key_value_heads": 8,
         "intermediate_size": 10240, "vocab_size": 65536, "layer_types": _LFM2, "conv_L_cache": 3,
         "block_multiple_of": 256, "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier":
         1.0, "max_position_embeddings": 128000, "tie_word_embeddings": True},
        742_489_344, 0.742,
    ),
    "lfm2-1.2b": (
        "LiquidAI/LFM2-1.2B",
        {"model_type": "lfm2", "architectures": ["Lfm2ForCausalLM"], "hidden_size": 2048,
         "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
         "intermediate_size": 12288, "vocab_size": 65536, "layer_types": _LFM2, "conv_L_cache": 3,
         "block_multiple_of": 256, "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier":
         1.0, "max_position_embeddings": 128000, "tie_word_embeddings": True},
        1_170_340_608, 1.17,
    ),
    "lfm2-8b-a1b": (
        "LiquidAI/LFM2-8B-A1B",
        {"model_type": "lfm2_moe", "architectures": ["Lfm2MoeForCausalLM"], "hidden_size": 2048,
         "num_hidden_layers": 24, "num_attention_heads": 32, "num_key_value_heads": 8,
         "intermediate_size": 7168, "vocab_size": 65536, "moe_intermediate_size": 1792,
         "num_experts": 32, "num_experts_per_tok": 4, "num_dense_layers": 2, "layer_types":
         _LFM2_MOE, "conv_L_cache": 3, "max_position_embeddings": 128000, "tie_word_embeddings":
         True},
        8_339_929_856, 8.34,
    ),
    "mimo-v2-flash": (
        "XiaomiMiMo/MiMo-V2-Flash",
        {"model_type": "mimo_v2_flash", "architectures": ["MiMoV2FlashForCausalLM"], "hidden_size":
         4096, "num_hidden_layers": 48, "num_attention_heads": 64, "num_key_value_heads": 4,
         "intermediate_size": 16384, "vocab_size": 152576, "head_dim": 192, "v_head_dim": 128,
         "moe_intermediate_size": 2048, "n_routed_experts": 256, "num_experts_per_tok": 8,
         "sliding_window": 128, "max_position_embeddings": 262144, "tie_word_embeddings": False},
        308_778_768_832, 309,
    ),
    "phi-3.5-moe": (
        "microsoft/Phi-3.5-MoE-instruct",
        {"model_type": "phimoe", "architectures": ["PhimoeForCausalLM"], "hidden_size": 4096,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
         "intermediate_size": 6400, "vocab_size": 32064, "num_local_experts": 16,
         "num_experts_per_tok": 2, "attention_bias": True, "lm_head_bias": True,
         "max_position_embeddings": 131072, "sliding_window": 131072, "tie_word_embeddings": False},
        41_873_153_344, 41.9,
    ),
    "hunyuan-a13b": (
        "tencent/Hunyuan-A13B-Instruct",
        {"model_type": "hunyuan_v1_moe", "architectures": ["HunYuanMoEV1ForCausalLM"],
         "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 8, "intermediate_size": 3072, "vocab_size": 128167, "head_dim": 128,
         "num_experts": 64, "moe_topk": 8, "num_shared_expert": 1, "max_position_embeddings": 32768,
         "tie_word_embeddings": True},
        80_393_183_232, 80.4,
    ),
    "ministral-8b": (
        "mistralai/Ministral-8B-Instruct-2410",
        {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "hidden_size": 4096,
         "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
         "intermediate_size": 12288, "vocab_size": 131072, "head_dim": 128, "sliding_window": None,
         "max_position_embeddings": 32768, "tie_word_embeddings": False},
        8_019_808_256, 8.02,
    ),
    "ministral-3-3b": (
        "mistralai/Ministral-3-3B-Base-2512",
        {"model_type": "ministral3", "architectures": ["Ministral3ForCausalLM"], "hidden_size":
         3072, "num_hidden_layers": 26, "num_attention_heads": 32, "num_key_value_heads": 8,
         "intermediate_size": 9216, "vocab_size": 131072, "head_dim": 128,
         "max_position_embeddings": 262144, "tie_word_embeddings": True},
        3_429_006_336, 3.4,
    ),
    "ministral-3-8b": (
        "mistralai/Ministral-3-8B-Base-2512",
        {"model_type": "ministral3", "architectures": ["Ministral3ForCausalLM"], "hidden_size":
         4096, "num_hidden_layers": 34, "num_attention_heads": 32, "num_key_value_heads": 8,
         "intermediate_size": 14336, "vocab_size": 131072, "head_dim": 128,
         "max_position_embeddings": 262144, "tie_word_embeddings": False},
        8_489_553_920, 8.5,
    ),
    "ministral-3-14b": (
        "mistralai/Ministral-3-14B-Base-2512",
        {"model_type": "ministral3", "architectures": ["Ministral3ForCausalLM"], "hidden_size":
         5120, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8,
         "intermediate_size": 16384, "vocab_size": 131072, "head_dim": 128,
         "max_position_embeddings": 262144, "tie_word_embeddings": False},
        13_506_073_600, 13.5,
    ),
    "seed-oss-36b": (
        "ByteDance-Seed/Seed-OSS-36B-Base",
        {"model_type": "seed_oss", "architectures": ["SeedOssForCausalLM"], "hidden_size": 5120,
         "num_hidden_layers": 64, "num_attention_heads": 80, "num_key_value_heads": 8,
         "intermediate_size": 27648, "vocab_size": 155136, "head_dim": 128, "attention_bias": True,
         "attention_out_bias": False, "mlp_bias": False, "max_position_embeddings": 524288,
         "tie_word_embeddings": False},
        36_151_104_512, 36,
    ),
    "qwen3-coder-480b-a35b": (
        "Qwen/Qwen3-Coder-480B-A35B-Instruct",
        {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 6144,
         "num_hidden_layers": 62, "num_attention_heads": 96, "num_key_value_heads": 8,
         "intermediate_size": 8192, "vocab_size": 151936, "head_dim": 128, "moe_intermediate_size":
         2560, "num_experts": 160, "num_experts_per_tok": 8, "decoder_sparse_step": 1,
         "mlp_only_layers": [], "norm_topk_prob": True, "max_position_embeddings": 262144,
         "tie_word_embeddings": False},
        480_154_875_392, 480,
    ),
    "glm-4-9b-0414": (
        "zai-org/GLM-4-9B-0414",
        {"model_type": "glm4", "architectures": ["Glm4ForCausalLM"], "hidden_size": 4096,
         "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 2,
         "intermediate_size": 13696, "vocab_size": 151552, "head_dim": 128, "attention_bias": True,
         "partial_rotary_factor": 0.5, "max_position_embeddings": 32768, "tie_word_embeddings":
         False},
        9_400_279_040, 9.4,
    ),
    "glm-4-32b-0414": (
        "zai-org/GLM-4-32B-0414",
        {"model_type": "glm4", "architectures": ["Glm4ForCausalLM"], "hidden_size": 6144,
         "num_hidden_layers": 61, "num_attention_heads": 48, "num_key_value_heads": 2,
         "intermediate_size": 23040, "vocab_size": 151552, "head_dim": 128, "attention_bias": False,
         "partial_rotary_factor": 0.5, "max_position_embeddings": 32768, "tie_word_embeddings":
         False},
        32_566_081_536, 32.6,
    ),
    "granite-3.3-2b": (
        "ibm-granite/granite-3.3-2b-base",
        {"model_type": "granite", "architectures": ["GraniteForCausalLM"], "hidden_size": 2048,
         "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8,
         "intermediate_size": 8192, "vocab_size": 49159, "max_position_embeddings": 131072,
         "tie_word_embeddings": True, "embedding_multiplier": 12.0, "logits_scaling": 16.0,
         "residual_multiplier": 0.22, "attention_multiplier": 0.0078125},
        2_533_539_840, 2.53,
    ),
    "granite-3.3-8b": (
        "ibm-granite/granite-3.3-8b-base",
        {"model_type": "granite", "architectures": ["GraniteForCausalLM"], "hidden_size": 4096,
         "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8,
         "intermediate_size": 12800, "vocab_size": 49159, "max_position_embeddings": 131072,
         "tie_word_embeddings": True, "embedding_multiplier": 12.0, "logits_scaling": 16.0,
         "residual_multiplier": 0.22, "attention_multiplier": 0.0078125},
        8_170_864_640, 8.17,
    ),
    "starcoderbase-1b": (
        "bigcode/starcoderbase-1b",
        {"model_type": "gpt_bigcode", "architectures": ["GPTBigCodeForCausalLM"], "n_embd": 2048,
         "n_layer": 24, "n_head": 16, "n_inner": 8192, "vocab_size": 49152, "n_positions": 8192,
         "multi_query": True, "activation_function": "gelu_pytorch_tanh", "resid_pdrop": 0.1},
        1_137_207_296, 1.14,
    ),
    "starcoderbase-3b": (
        "bigcode/starcoderbase-3b",
        {"model_type": "gpt_bigcode", "architectures": ["GPTBigCodeForCausalLM"], "n_embd": 2816,
         "n_layer": 36, "n_head": 22, "n_inner": 11264, "vocab_size": 49152, "n_positions": 8192,
         "multi_query": True, "activation_function": "gelu_pytorch_tanh", "resid_pdrop": 0.1},
        3_043_311_104, 3.04,
    ),
    "starcoder-15b": (
        "bigcode/starcoder",
        {"model_type": "gpt_bigcode", "architectures": ["GPTBigCodeForCausalLM"], "n_embd": 6144,
         "n_layer": 40, "n_head": 48, "n_inner": 24576, "vocab_size": 49152, "n_positions": 8192,
         "multi_query": True, "activation_function": "gelu_pytorch_tanh", "resid_pdrop": 0.1},
        15_517_456_384, 15.5,
    ),
    "mamba-130m": (
        "state-spaces/mamba-130m-hf",
        {"model_type": "mamba", "architectures": ["MambaForCausalLM"], "hidden_size": 768,
         "num_hidden_layers": 24, "vocab_size": 50280, "state_size": 16, "conv_kernel": 4, "expand":
         2, "time_step_rank": 48, "use_bias": False, "use_conv_bias": True, "tie_word_embeddings":
         True},
        129_135_360, 0.129,
    ),
    "mamba-370m": (
        "state-spaces/mamba-370m-hf",
        {"model_type": "mamba", "architectures": ["MambaForCausalLM"], "hidden_size": 1024,
         "num_hidden_layers": 48, "vocab_size": 50280, "state_size": 16, "conv_kernel": 4, "expand":
         2, "time_step_rank": 64, "use_bias": False, "use_conv_bias": True, "tie_word_embeddings":
         True},
        371_516_416, 0.372,
    ),
    "mamba-790m": (
        "state-spaces/mamba-790m-hf",
        {"model_type": "mamba", "architectures": ["MambaForCausalLM"], "hidden_size": 1536,
         "num_hidden_layers": 48, "vocab_size": 50280, "state_size": 16, "conv_kernel": 4, "expand":
         2, "time_step_rank": 96, "use_bias": False, "use_conv_bias": True, "tie_word_embeddings":
         True},
        793_204_224, 0.793,
    ),
    "mamba-1.4b": (
        "state-spaces/mamba-1.4b-hf",
        {"model_type": "mamba", "architectures": ["MambaForCausalLM"], "hidden_size": 2048,
         "num_hidden_layers": 48, "vocab_size": 50280, "state_size": 16, "conv_kernel": 4, "expand":
         2, "time_step_rank": 128, "use_bias": False, "use_conv_bias": True, "tie_word_embeddings":
         True},
        1_372_178_432, 1.37,
    ),
    "mamba-2.8b": (
        "state-spaces/mamba-2.8b-hf",
        {"model_type": "mamba", "architectures": ["MambaForCausalLM"], "hidden_size": 2560,
         "num_hidden_layers": 64, "vocab_size": 50280, "state_size": 16, "conv_kernel": 4, "expand":
         2, "time_step_rank": 160, "use_bias": False, "use_conv_bias": True, "tie_word_embeddings":
         True},
        2_768_345_600, 2.77,
    ),
    "falcon-mamba-7b": (
        "tiiuae/falcon-mamba-7b",
        {"model_type": "falcon_mamba", "architectures": ["FalconMambaForCausalLM"], "hidden_size":
         4096, "num_hidden_layers": 64, "vocab_size": 65024, "state_size": 16, "conv_kernel": 4,
         "expand": 2, "intermediate_size": 8192, "time_step_rank": 256, "use_bias": False,
         "use_conv_bias": True, "tie_word_embeddings": False},
        7_272_665_088, 7.27,
    ),
    "nanochat-d20": (
        "karpathy/nanochat-d20",
        {"model_type": "nanochat", "architectures": ["NanoChatForCausalLM"], "hidden_size": 1280,
         "num_hidden_layers": 20, "num_attention_heads": 10, "num_key_value_heads": 10,
         "intermediate_size": 5120, "vocab_size": 65536, "max_position_embeddings": 2048,
         "tie_word_embeddings": False},
        560_988_160, 0.561,
    ),
    "gemma-3n-e2b": (
        "google/gemma-3n-E2B",
        {"model_type": "gemma3n_text", "architectures": ["Gemma3nForCausalLM"], **_GEMMA_3N,
         "num_hidden_layers": 30, "intermediate_size": 8192, "num_kv_shared_layers": 10},
        4_435_182_688, 4.44,  # 5 with the encoders
    ),
    "gemma-3n-e4b": (
        "google/gemma-3n-E4B",
        {"model_type": "gemma3n_text", "architectures": ["Gemma3nForCausalLM"], **_GEMMA_3N,
         "num_hidden_layers": 35, "intermediate_size": 16384, "num_kv_shared_layers": 15},
        6_835_235_568, 6.84,  # 8 with the encoders
    ),
    "gemma-4-e2b": (
        "google/gemma-4-E2B",
        {"model_type": "gemma4_text", "architectures": ["Gemma4ForCausalLM"], **_GEMMA_4,
         "hidden_size": 1536, "num_hidden_layers": 35, "num_key_value_heads": 1,
         "intermediate_size": 6144, "num_kv_shared_layers": 20, "use_double_wide_mlp": True,
         "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7},
        4_628_569_344, 4.63,  # 5.1 with the encoders
    ),
    "gemma-4-e4b": (
        "google/gemma-4-E4B",
        {"model_type": "gemma4_text", "architectures": ["Gemma4ForCausalLM"], **_GEMMA_4,
         "hidden_size": 2560, "num_hidden_layers": 42, "num_key_value_heads": 2,
         "intermediate_size": 10240, "num_kv_shared_layers": 18,
         "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 7},
        7_463_013_376, 7.46,  # 8 with the encoders
    ),
    "gemma-4-31b": (
        "google/gemma-4-31B",
        {"model_type": "gemma4_text", "architectures": ["Gemma4ForCausalLM"], "hidden_size": 5376,
         "num_hidden_layers": 60, "num_attention_heads": 32, "num_key_value_heads": 16,
         "intermediate_size": 21504, "vocab_size": 262144, "head_dim": 256, "global_head_dim": 512,
         "num_global_key_value_heads": 4, "attention_k_eq_v": True, "hidden_size_per_layer_input":
         0, "num_kv_shared_layers": 0, "sliding_window": 1024, "final_logit_softcapping": 30.0,
         "max_position_embeddings": 262144, "tie_word_embeddings": True},
        30_697_345_280, 30.7,
    ),
}  # fmt: skip

TYPES: dict[str, Entry] = {name: entry[:3] for name, entry in _PUBLISHED.items()}
BILLIONS = {name: (entry[2], entry[3]) for name, entry in _PUBLISHED.items()}
