"""Public mixtures of 2025 and later, with the parameters that transformers counts.

Configs as their hubs publish them; of Nemotron 3 Super the shapes of Megatron-Bridge's
``nemotron_h_provider.py``.
"""

from __future__ import annotations

from typing import Any

from huggingface.public_mixers import hybrid
from huggingface.public_sizes import Entry


def _glm(hub: str, hidden: int, layers: int, ffn: int, experts: int, width: int, dense: int,
         count: int, **more: Any) -> Entry:  # fmt: skip
    keys = {
        "model_type": "glm4_moe", "architectures": ["Glm4MoeForCausalLM"], "hidden_size": hidden,
        "num_hidden_layers": layers, "intermediate_size": ffn, "n_routed_experts": experts,
        "moe_intermediate_size": width, "first_k_dense_replace": dense, "attention_bias": True,
        "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
        "partial_rotary_factor": 0.5, "num_experts_per_tok": 8, "n_shared_experts": 1,
        "n_group": 1, "topk_group": 1, "max_position_embeddings": 131072, "vocab_size": 151552,
        "tie_word_embeddings": False,
    }  # fmt: skip
    return hub, {**keys, **more}, count


EXPERTS: dict[str, Entry] = {
    "glm-4.5": _glm(
        "zai-org/GLM-4.5", 5120, 92, 12288, 160, 1536, 3, 352_797_814_784, use_qk_norm=True,
    ),
    "glm-4.5-air": _glm(
        "zai-org/GLM-4.5-Air", 4096, 46, 10944, 128, 1408, 1, 106_852_245_504, use_qk_norm=False,
    ),
    "minimax-m1": (
        "MiniMaxAI/MiniMax-M1-80k",
        {"model_type": "minimax", "architectures": ["MiniMaxForCausalLM"],
         "hidden_size": 6144, "num_hidden_layers": 80, "num_attention_heads": 64,
         "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 9216,
         "num_local_experts": 32, "num_experts_per_tok": 2, "vocab_size": 200064,
         "layer_types": [*["linear_attention"] * 7, "full_attention"] * 10,
         "rotary_dim": 64, "max_position_embeddings": 10240000, "tie_word_embeddings": False},
        456_089_655_296,
    ),
    "minimax-m2": (
        "MiniMaxAI/MiniMax-M2",
        {"model_type": "minimax_m2", "architectures": ["MiniMaxM2ForCausalLM"],
         "hidden_size": 3072, "num_hidden_layers": 62, "num_attention_heads": 48,
         "num_key_value_heads": 8, "head_dim": 128, "rotary_dim": 64, "intermediate_size": 1536,
         "num_local_experts": 256, "num_experts_per_tok": 8, "vocab_size": 200064,
         "max_position_embeddings": 196608, "tie_word_embeddings": False},
        228_689_748_992,
    ),
    "nemotron-3-super-120b-a12b": hybrid(
        "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16",
        "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
        4096, 32, 2, 2688, 128, 128, 262144, 120_668_687_360,
        n_routed_experts=512, num_experts_per_tok=22, moe_intermediate_size=2688,
        moe_shared_expert_intermediate_size=5376, moe_latent_size=1024,
    ),
}  # fmt: skip
