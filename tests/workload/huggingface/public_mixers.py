"""Public models whose layers are not all attention, with the parameters that transformers counts.

Configs as their hubs publish them; of Nemotron-H the shapes of Megatron-Bridge's
``nemotron_h_provider.py`` too, of Qwen3.5 the language models of those that see images.
"""

from __future__ import annotations

from typing import Any

from huggingface.public_sizes import Entry


def hybrid(hub: str, pattern: str, hidden: int, heads: int, kv: int, ffn: int, state: int,
           mixers: int, positions: int, count: int, **more: Any) -> Entry:  # fmt: skip
    keys = {
        "model_type": "nemotron_h", "architectures": ["NemotronHForCausalLM"],
        "hybrid_override_pattern": pattern, "hidden_size": hidden,
        "num_hidden_layers": len(pattern), "num_attention_heads": heads,
        "num_key_value_heads": kv, "head_dim": 128, "intermediate_size": ffn,
        "ssm_state_size": state, "mamba_num_heads": mixers, "mamba_head_dim": 64, "n_groups": 8,
        "chunk_size": 128, "vocab_size": 131072, "max_position_embeddings": positions,
        "mlp_hidden_act": "relu2", "tie_word_embeddings": False,
    }  # fmt: skip
    return hub, {**keys, **more}, count


def _mamba2(size: str, hidden: int, layers: int, count: int) -> Entry:
    keys = {
        "model_type": "mamba2", "architectures": ["Mamba2ForCausalLM"], "hidden_size": hidden,
        "num_hidden_layers": layers, "num_heads": hidden // 32, "head_dim": 64,
        "state_size": 128, "n_groups": 1, "vocab_size": 50288, "tie_word_embeddings": True,
    }  # fmt: skip
    return f"state-spaces/mamba2-{size}", keys, count


def _delta(hub: str, kind: str, hidden: int, layers: int, heads: int, kv: int, values: int,
           vocab: int, count: int, **more: Any) -> Entry:  # fmt: skip
    name = {"qwen3_next": "Qwen3Next", "qwen3_5_text": "Qwen3_5", "qwen3_5_moe_text": "Qwen3_5Moe"}
    keys = {
        "model_type": kind, "architectures": [f"{name[kind]}ForCausalLM"], "hidden_size": hidden,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
        "head_dim": 256, "linear_num_value_heads": values, "vocab_size": vocab,
        "max_position_embeddings": 262144, "hidden_act": "silu", "tie_word_embeddings": False,
    }  # fmt: skip
    return hub, {**keys, **more}, count


#: Counted from 1.
_KIMI_FULL = [4, 8, 12, 16, 20, 24, 27]
_EXPERTS = {"moe_intermediate_size": 512, "shared_expert_intermediate_size": 512}

MIXERS: dict[str, Entry] = {
    "nemotron-h-8b": hybrid(
        "nvidia/Nemotron-H-8B-Base-8K",
        "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
        4096, 32, 8, 21504, 128, 128, 8192, 8_100_852_736,
    ),
    "nemotron-h-47b": hybrid(
        "nvidia/Nemotron-H-47B-Base-8K",
        "M-M-M-M-M-M-M-M-M*-M-M-M-M-M-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M"
        "*-M-M-M-M-M-M-M---MM---M-M*-M-M-M-M-M-",
        8192, 64, 8, 30720, 256, 256, 8192, 46_791_554_816,
    ),
    "nemotron-h-56b": hybrid(
        "nvidia/Nemotron-H-56B-Base-8K",
        "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M"
        "-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
        8192, 64, 8, 32768, 256, 256, 8192, 56_324_350_464,
    ),
    "nemotron-nano-9b-v2": hybrid(
        "nvidia/NVIDIA-Nemotron-Nano-9B-v2",
        "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
        4480, 40, 8, 15680, 128, 128, 131072, 8_888_227_328, mamba_head_dim=80,
    ),
    "nemotron-nano-12b-v2": hybrid(
        "nvidia/NVIDIA-Nemotron-Nano-12B-v2",
        "M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-"
        "M-",
        5120, 40, 8, 20480, 128, 128, 131072, 12_310_001_152, mamba_head_dim=80,
    ),
    "nemotron-3-nano-30b-a3b": hybrid(
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
        2688, 32, 2, 1856, 128, 64, 262144, 31_577_937_344,
        n_routed_experts=128, num_experts_per_tok=6, moe_intermediate_size=1856,
        moe_shared_expert_intermediate_size=3712,
    ),
    "mamba2-130m": _mamba2("130m", 768, 24, 128_989_632),
    "mamba2-370m": _mamba2("370m", 1024, 48, 368_346_624),
    "mamba2-780m": _mamba2("780m", 1536, 48, 780_161_280),
    "mamba2-1.3b": _mamba2("1.3b", 2048, 48, 1_343_757_312),
    "mamba2-2.7b": _mamba2("2.7b", 2560, 64, 2_702_599_680),
    "qwen3-next-80b-a3b": _delta(
        "Qwen/Qwen3-Next-80B-A3B-Instruct", "qwen3_next", 2048, 48, 16, 2, 32, 151936,
        79_674_391_296, intermediate_size=5120, num_experts=512, num_experts_per_tok=10,
        **_EXPERTS),
    "qwen3.5-9b": _delta(
        "Qwen/Qwen3.5-9B", "qwen3_5_text", 4096, 32, 16, 4, 32, 248320,
        8_953_803_264, intermediate_size=12288),
    "qwen3.5-27b": _delta(
        "Qwen/Qwen3.5-27B", "qwen3_5_text", 5120, 64, 24, 4, 48, 248320,
        26_895_998_464, intermediate_size=17408),
    "qwen3.5-35b-a3b": _delta(
        "Qwen/Qwen3.5-35B-A3B", "qwen3_5_moe_text", 2048, 40, 16, 2, 32, 248320,
        34_660_610_688, num_experts=256, num_experts_per_tok=8, **_EXPERTS),
    "kimi-linear-48b-a3b": (
        "moonshotai/Kimi-Linear-48B-A3B-Base",
        {"model_type": "kimi_linear", "architectures": ["KimiLinearForCausalLM"],
         "hidden_size": 2304, "num_hidden_layers": 27, "num_attention_heads": 32,
         "num_key_value_heads": 32, "intermediate_size": 9216, "moe_intermediate_size": 1024,
         "first_k_dense_replace": 1, "num_experts": 256, "num_experts_per_token": 8,
         "num_shared_experts": 1, "num_expert_group": 1, "topk_group": 1, "kv_lora_rank": 512,
         "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
         "v_head_dim": 128, "vocab_size": 163840, "model_max_length": 1048576,
         "tie_word_embeddings": False,
         "linear_attn_config": {
             "full_attn_layers": _KIMI_FULL, "head_dim": 128, "num_heads": 32,
             "kda_layers": [i for i in range(1, 28) if i not in _KIMI_FULL],
             "short_conv_kernel_size": 4}},
        49_122_675_072,
    ),
}  # fmt: skip
