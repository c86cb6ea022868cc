"""Public models of 2025 and 2026 that are mostly mixtures or have mixers beside attention.

Shapes of the hub's files, as aiconfigurator ships them, or the defaults of the class in
transformers that are those of the checkpoint (``sources`` of each record). Parameters are those
that transformers counts on the meta device.
"""

from __future__ import annotations

from huggingface.public_sizes import Entry

_KINDS = {"M": "mamba", "E": "moe", "*": "attention"}
RECENT: dict[str, Entry] = {
    "longcat-flash": (
        "meituan-longcat/LongCat-Flash-Chat",
        {
            "architectures": ["LongcatFlashForCausalLM"],
            "vocab_size": 131072,
            "hidden_size": 6144,
            "num_layers": 28,
            "num_attention_heads": 64,
            "num_key_value_heads": 64,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": False,
            "model_type": "longcat_flash",
        },
        560_664_958_976,
    ),
    "minicpm3-4b": (
        "openbmb/MiniCPM3-4B",
        {
            "architectures": ["MiniCPM3ForCausalLM"],
            "vocab_size": 73448,
            "hidden_size": 2560,
            "intermediate_size": 6400,
            "num_hidden_layers": 62,
            "num_attention_heads": 40,
            "num_key_value_heads": 40,
            "max_position_embeddings": 32768,
            "tie_word_embeddings": True,
            "model_type": "minicpm3",
        },
        4_073_875_968,
    ),
    "olmo-hybrid-7b": (
        "allenai/Olmo-Hybrid-7B",
        {
            "architectures": ["OlmoHybridForCausalLM"],
            "vocab_size": 100352,
            "hidden_size": 3840,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 30,
            "num_key_value_heads": 30,
            "max_position_embeddings": 65536,
            "tie_word_embeddings": False,
            "model_type": "olmo_hybrid",
        },
        7_430_870_688,
    ),
    "ax-k1": (
        "skt/A.X-K1",
        {
            "architectures": ["AXK1ForCausalLM"],
            "vocab_size": 163840,
            "hidden_size": 7168,
            "intermediate_size": 18432,
            "num_hidden_layers": 61,
            "num_attention_heads": 64,
            "num_key_value_heads": 64,
            "max_position_embeddings": 32768,
            "tie_word_embeddings": False,
            "model_type": "axk1",
        },
        518_983_052_288,
    ),
    "kolibri-1": (
        "Aleph-Alpha/Kolibri-1",
        {
            "architectures": ["Kolibri1ForCausalLM"],
            "vocab_size": 128000,
            "hidden_size": 2560,
            "num_hidden_layers": 50,
            "num_attention_heads": 48,
            "num_key_value_heads": 4,
            "max_position_embeddings": 262144,
            "tie_word_embeddings": False,
            "model_type": "kolibri1",
        },
        78_103_055_360,
    ),
    "lfm3-1.7b": (
        "LiquidAI/LFM3-1.7B",
        {
            "architectures": ["Lfm3ForCausalLM"],
            "vocab_size": 128000,
            "hidden_size": 2048,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "tie_word_embeddings": True,
            "model_type": "lfm3",
        },
        1_728_801_536,
    ),
    "laguna-xs.2": (
        "poolside/laguna-XS.2",
        {
            "architectures": ["LagunaForCausalLM"],
            "vocab_size": 100352,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 40,
            "num_attention_heads": 48,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": False,
            "model_type": "laguna",
        },
        33_189_965_824,
    ),
    "mellum2-12b-a2.5b": (
        "JetBrains/Mellum2-12B-A2.5B-Base",
        {
            "architectures": ["MellumForCausalLM"],
            "vocab_size": 98304,
            "hidden_size": 2304,
            "intermediate_size": 7168,
            "num_hidden_layers": 28,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": False,
            "model_type": "mellum",
        },
        12_149_923_072,
    ),
    "solar-open-100b": (
        "upstage/Solar-Open-100B",
        {
            "architectures": ["SolarOpenForCausalLM"],
            "vocab_size": 196608,
            "hidden_size": 4096,
            "num_hidden_layers": 48,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": False,
            "model_type": "solar_open",
        },
        102_651_793_408,
    ),
    "youtu-llm-2b": (
        "tencent/Youtu-LLM-2B",
        {
            "architectures": ["YoutuForCausalLM"],
            "vocab_size": 128256,
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "num_hidden_layers": 32,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": True,
            "model_type": "youtu",
        },
        1_961_560_064,
    ),
    "hunyuan-3": (
        "tencent/Hy3-preview",
        {
            "architectures": ["HYV3ForCausalLM"],
            "vocab_size": 120832,
            "hidden_size": 4096,
            "intermediate_size": 13312,
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": False,
            "model_type": "hy_v3",
        },
        295_033_528_320,
    ),
    "mistral-small-4-119b": (
        "mistralai/Mistral-Small-4-119B-2603",
        {
            "architectures": ["Mistral4ForCausalLM"],
            "vocab_size": 131072,
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "max_position_embeddings": 1048576,
            "tie_word_embeddings": False,
            "model_type": "mistral4",
        },
        118_972_826_624,
    ),
    "ernie-4.5-0.3b": (
        "baidu/ERNIE-4.5-0.3B-PT",
        {
            "architectures": ["Ernie4_5ForCausalLM"],
            "vocab_size": 103424,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 18,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": True,
            "model_type": "ernie4_5",
        },
        360_748_032,
    ),
    "internlm3-8b": (
        "internlm/internlm3-8b-instruct",
        {
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": 128512,
            "hidden_size": 4096,
            "intermediate_size": 10240,
            "num_hidden_layers": 48,
            "num_attention_heads": 32,
            "num_key_value_heads": 2,
            "max_position_embeddings": 32768,
            "tie_word_embeddings": False,
            "model_type": "internlm3",
        },
        8_804_241_408,
    ),
    "helium-1-2b": (
        "kyutai/helium-1-preview",
        {
            "architectures": ["HeliumForCausalLM"],
            "vocab_size": 48000,
            "hidden_size": 2560,
            "intermediate_size": 7040,
            "num_hidden_layers": 24,
            "num_attention_heads": 20,
            "num_key_value_heads": 20,
            "max_position_embeddings": 4096,
            "tie_word_embeddings": False,
            "model_type": "helium",
        },
        2_172_643_840,
    ),
    "jais-2-8b": (
        "inceptionai/Jais-2-8B-Chat",
        {
            "architectures": ["Jais2ForCausalLM"],
            "vocab_size": 150272,
            "hidden_size": 3328,
            "intermediate_size": 26624,
            "num_hidden_layers": 32,
            "num_attention_heads": 26,
            "num_key_value_heads": 26,
            "max_position_embeddings": 8192,
            "tie_word_embeddings": False,
            "model_type": "jais2",
        },
        8_090_401_280,
    ),
    "flexolmo-7x7b": (
        "allenai/FlexOlmo-7x7B-1T",
        {
            "architectures": ["FlexOlmoForCausalLM"],
            "vocab_size": 100352,
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "max_position_embeddings": 4096,
            "tie_word_embeddings": False,
            "model_type": "flex_olmo",
        },
        33_270_665_216,
    ),
    "iquest-coder-40b": (
        "IQuestLab/IQuest-Coder-V1-40B-Instruct",
        {
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": 76800,
            "hidden_size": 5120,
            "intermediate_size": 27648,
            "num_hidden_layers": 80,
            "num_attention_heads": 40,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": False,
            "model_type": "iquestcoder",
        },
        39_794_283_520,
    ),
    "cwm-32b": (
        "facebook/cwm",
        {
            "architectures": ["CwmForCausalLM"],
            "vocab_size": 128256,
            "hidden_size": 6144,
            "intermediate_size": 21504,
            "num_hidden_layers": 64,
            "num_attention_heads": 48,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": False,
            "layer_types": [
                "full_attention",
                "sliding_attention",
                "sliding_attention",
                "sliding_attention",
            ]
            * 16,
            "model_type": "cwm",
        },
        32_581_097_472,
    ),
    "deepseek-v4-flash": (
        "deepseek-ai/DeepSeek-V4-Flash",
        {
            "architectures": ["DeepseekV4ForCausalLM"],
            "hidden_size": 4096,
            "max_position_embeddings": 1048576,
            "model_type": "deepseek_v4",
            "num_attention_heads": 64,
            "num_hidden_layers": 43,
            "num_key_value_heads": 1,
            "tie_word_embeddings": False,
            "vocab_size": 129280,
            "compress_ratios": [0] * 2
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [0],
        },
        284_332_230_231,
    ),
    "deepseek-v4-pro": (
        "deepseek-ai/DeepSeek-V4-Pro",
        {
            "architectures": ["DeepseekV4ForCausalLM"],
            "hidden_size": 7168,
            "index_topk": 1024,
            "max_position_embeddings": 1048576,
            "model_type": "deepseek_v4",
            "moe_intermediate_size": 3072,
            "n_routed_experts": 384,
            "num_attention_heads": 128,
            "num_hidden_layers": 61,
            "num_key_value_heads": 1,
            "o_groups": 16,
            "q_lora_rank": 1536,
            "tie_word_embeddings": False,
            "vocab_size": 129280,
            "compress_ratios": [128] * 2
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [128]
            + [4]
            + [0],
        },
        1_572_997_179_491,
    ),
    "qwen3.5-122b-a10b": (
        "Qwen/Qwen3.5-122B-A10B",
        {
            "hidden_size": 3072,
            "linear_num_value_heads": 64,
            "max_position_embeddings": 262144,
            "model_type": "qwen3_5_moe_text",
            "moe_intermediate_size": 1024,
            "num_attention_heads": 32,
            "num_hidden_layers": 48,
            "num_key_value_heads": 2,
            "shared_expert_intermediate_size": 1024,
            "vocab_size": 248320,
            "tie_word_embeddings": False,
            "architectures": ["Qwen3_5MoeForCausalLM"],
        },
        122_111_526_912,
    ),
    "qwen3.5-397b-a17b": (
        "Qwen/Qwen3.5-397B-A17B",
        {
            "hidden_size": 4096,
            "linear_num_value_heads": 64,
            "max_position_embeddings": 262144,
            "model_type": "qwen3_5_moe_text",
            "moe_intermediate_size": 1024,
            "num_attention_heads": 32,
            "num_experts": 512,
            "num_experts_per_tok": 10,
            "num_hidden_layers": 60,
            "num_key_value_heads": 2,
            "shared_expert_intermediate_size": 1024,
            "vocab_size": 248320,
            "tie_word_embeddings": False,
            "architectures": ["Qwen3_5MoeForCausalLM"],
        },
        396_346_350_336,
    ),
    "glm-5.2": (
        "zai-org/GLM-5.2",
        {
            "architectures": ["GlmMoeDsaForCausalLM"],
            "hidden_size": 6144,
            "indexer_types": ["full", "full"] + ["full", "shared", "shared", "shared"] * 19,
            "intermediate_size": 12288,
            "max_position_embeddings": 1048576,
            "model_type": "glm_moe_dsa",
            "num_attention_heads": 64,
            "num_hidden_layers": 78,
            "num_key_value_heads": 64,
            "tie_word_embeddings": False,
            "vocab_size": 154880,
        },
        743_377_000_704,
    ),
    "nemotron-3-ultra-550b-a55b": (
        "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16",
        {
            "architectures": ["NemotronHForCausalLM"],
            "hidden_size": 8192,
            "intermediate_size": 5120,
            "layers_block_type": [
                _KINDS[x]
                for x in (
                    "MEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEME"
                    "MEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
                )
            ],
            "mamba_num_heads": 256,
            "max_position_embeddings": 262144,
            "model_type": "nemotron_h",
            "moe_intermediate_size": 5120,
            "moe_latent_size": 2048,
            "moe_shared_expert_intermediate_size": 10240,
            "n_routed_experts": 512,
            "num_attention_heads": 64,
            "num_experts_per_tok": 22,
            "num_key_value_heads": 2,
            "tie_word_embeddings": False,
            "vocab_size": 131072,
        },
        549_308_968_960,
    ),
    "moonlight-16b-a3b": (
        "moonshotai/Moonlight-16B-A3B",
        {
            "model_type": "deepseek_v3",
            "architectures": ["DeepseekV3ForCausalLM"],
            "hidden_size": 2048,
            "num_hidden_layers": 27,
            "intermediate_size": 11264,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "vocab_size": 163840,
            "q_lora_rank": None,
            "n_routed_experts": 64,
            "first_k_dense_replace": 1,
            "moe_intermediate_size": 1408,
            "num_experts_per_tok": 6,
            "n_shared_experts": 2,
            "n_group": 1,
            "max_position_embeddings": 8192,
            "tie_word_embeddings": False,
        },
        15_960_108_544,
    ),
    "olmo3-32b": (
        "allenai/Olmo-3-1125-32B",
        {
            "model_type": "olmo3",
            "architectures": ["Olmo3ForCausalLM"],
            "hidden_size": 5120,
            "num_attention_heads": 40,
            "num_key_value_heads": 8,
            "intermediate_size": 27648,
            "num_hidden_layers": 64,
            "max_position_embeddings": 65536,
            "vocab_size": 100278,
            "tie_word_embeddings": False,
        },
        32_233_522_176,
    ),
    "ling-3.0-flash": (
        "inclusionAI/Ling-3.0-Flash",
        {
            "architectures": ["BailingHybridForCausalLM"],
            "vocab_size": 157184,
            "hidden_size": 2560,
            "intermediate_size": 6144,
            "moe_intermediate_size": 768,
            "num_hidden_layers": 42,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "num_expert_group": 8,
            "topk_group": 4,
            "tie_word_embeddings": False,
            "num_experts": 512,
            "model_type": "bailing_hybrid",
        },
        124_414_191_072,
    ),
}
