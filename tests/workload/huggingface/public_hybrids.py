"""Public models of attention beside or between state spaces, with what transformers counts.

Configs as their hubs publish them. Falcon-H1's sizes are also those of Megatron-Bridge
(``falconh1_provider.py``).
"""

from __future__ import annotations

from typing import Any

from huggingface.public_sizes import Entry


def _falcon(size: str, hidden: int, layers: int, heads: tuple[int, int, int], ffn: int, vocab: int,
            mixer: tuple[int, int, int, int], count: int, **more: Any) -> Entry:  # fmt: skip
    """``heads``: of queries, of keys, their width; ``mixer``: heads, width, groups, state."""
    keys = {
        "model_type": "falcon_h1", "architectures": ["FalconH1ForCausalLM"], "hidden_size": hidden,
        "num_hidden_layers": layers, "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1], "head_dim": heads[2], "intermediate_size": ffn,
        "vocab_size": vocab, "mamba_n_heads": mixer[0], "mamba_d_head": mixer[1],
        "mamba_d_ssm": mixer[0] * mixer[1], "mamba_n_groups": mixer[2], "mamba_d_state": mixer[3],
        "mamba_chunk_size": 128, "mamba_rms_norm": True, "mamba_norm_before_gate": False,
        "max_position_embeddings": 131072, "tie_word_embeddings": False,
    }  # fmt: skip
    return f"tiiuae/Falcon-H1-{size}-Base", {**keys, **more}, count


def _granite(size: str, layers: str, hidden: int, heads: int, kv: int, experts: tuple[int, int],
             ffn: int, shared: int, mixers: int, count: int, **more: Any) -> Entry:  # fmt: skip
    """``layers``: m or a each; ``experts``: how many, and how many a token takes."""
    kinds = {"m": "mamba", "a": "attention"}
    keys = {
        "model_type": "granitemoehybrid", "architectures": ["GraniteMoeHybridForCausalLM"],
        "hidden_size": hidden, "num_hidden_layers": len(layers), "num_attention_heads": heads,
        "num_key_value_heads": kv, "intermediate_size": ffn, "shared_intermediate_size": shared,
        "num_local_experts": experts[0], "num_experts_per_tok": experts[1],
        "layer_types": [kinds[x] for x in layers], "mamba_n_heads": mixers,
        "mamba_d_head": 2 * hidden // mixers, "mamba_d_state": 128, "vocab_size": 100352,
        "max_position_embeddings": 131072, "position_embedding_type": "nope",
        "tie_word_embeddings": True,
    }  # fmt: skip
    return f"ibm-granite/granite-4.0-h-{size}-base", {**keys, **more}, count


def _jamba(size: str, hidden: int, layers: int, heads: int, ffn: int, count: int) -> Entry:
    keys = {
        "model_type": "jamba", "architectures": ["JambaForCausalLM"], "hidden_size": hidden,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": 8,
        "intermediate_size": ffn, "vocab_size": 65536, "num_experts": 16,
        "num_experts_per_tok": 2, "attn_layer_period": 8, "attn_layer_offset": 4,
        "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 16,
        "mamba_dt_rank": hidden // 16, "tie_word_embeddings": False,
    }  # fmt: skip
    return f"ai21labs/AI21-Jamba-{size}", keys, count


def _zamba(size: str, hidden: int, layers: str, mixers: int, count: int, **more: Any) -> Entry:
    """``layers``: m Mamba-2 alone, s behind a shared block."""
    kinds = {"m": "mamba", "s": "hybrid"}
    keys = {
        "model_type": "zamba2", "architectures": ["Zamba2ForCausalLM"], "hidden_size": hidden,
        "num_hidden_layers": len(layers), "layers_block_type": [kinds[x] for x in layers],
        "num_attention_heads": 32, "intermediate_size": 4 * hidden, "adapter_rank": 128,
        "n_mamba_heads": mixers, "mamba_d_state": 64, "mamba_ngroups": 1, "vocab_size": 32000,
        "max_position_embeddings": 4096, "tie_word_embeddings": True,
    }  # fmt: skip
    return f"Zyphra/Zamba2-{size}", {**keys, **more}, count


_TENTH = "mmmmmammmmmmmmmammmmmmmmmammmmmmmmmammmm"

HYBRIDS: dict[str, Entry] = {
    "falcon-h1-0.5b": _falcon(
        "0.5B", 1024, 36, (8, 2, 64), 2048, 32784, (24, 64, 1, 128), 521_411_104,
        mamba_rms_norm=False, max_position_embeddings=16384,
    ),
    "falcon-h1-1.5b": _falcon(
        "1.5B", 2048, 24, (8, 2, 128), 4608, 65536, (48, 64, 1, 256), 1_554_859_392,
    ),
    "falcon-h1-1.5b-deep": _falcon(
        "1.5B-Deep", 1280, 66, (6, 2, 128), 3072, 65536, (24, 64, 1, 256), 1_554_872_208,
    ),
    "falcon-h1-3b": _falcon(
        "3B", 2560, 32, (10, 2, 128), 6144, 65536, (32, 128, 1, 256), 3_149_387_264,
    ),
    "falcon-h1-7b": _falcon(
        "7B", 3072, 44, (12, 2, 128), 12288, 130048, (24, 128, 1, 256), 7_585_648_736,
        max_position_embeddings=262144,
    ),
    "falcon-h1-34b": _falcon(
        "34B", 5120, 72, (20, 4, 128), 21504, 261120, (32, 128, 2, 256), 33_642_516_224,
        max_position_embeddings=262144,
    ),
    "granite-4.0-h-350m": _granite(
        "350m", "mmmmmmmmmmammammmammmmmmmmmammmm", 768, 12, 4, (0, 0), 2048, 2048, 48, 340_332_224,
        max_position_embeddings=32768,
    ),
    "granite-4.0-h-micro": _granite(
        "micro", _TENTH, 2048, 32, 8, (0, 0), 8192, 8192, 64, 3_191_396_096,
    ),
    "granite-4.0-h-tiny": _granite(
        "tiny", _TENTH, 1536, 12, 4, (64, 6), 512, 1024, 48, 6_939_037_248,
    ),
    "granite-4.0-h-small": _granite(
        "small", _TENTH, 4096, 32, 8, (72, 10), 768, 1536, 128, 32_207_337_984,
    ),
    "bamba-9b": (
        "ibm-ai-platform/Bamba-9B-v1",
        {"model_type": "bamba", "architectures": ["BambaForCausalLM"],
         "attn_layer_indices": [9, 18, 27], "hidden_size": 4096, "intermediate_size": 14336,
         "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_heads": 128,
         "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
         "tie_word_embeddings": False, "vocab_size": 128256},
        9_780_235_392,
    ),
    # of both the parameters are the same; large: 398B of them, 94B active, say its experts' width
    "jamba-1.5-mini": _jamba("1.5-Mini", 4096, 32, 32, 14336, 51_570_323_328),
    "jamba-1.5-large": _jamba("1.5-Large", 8192, 72, 64, 24576, 398_555_145_696),
    "zamba2-1.2b": _zamba(
        "1.2B", 2048, "mmmmmsmmmmmsmmmmmsmmmmmsmmmmmsmmmmmsmm", 64, 1_215_064_704,
        mamba_d_state=128, num_mem_blocks=1, use_shared_attention_adapter=True, use_mem_rope=True,
    ),
    "zamba2-2.7b": _zamba(
        "2.7B", 2560, "mmmmmmsmmmmmsmmmmmsmmmmmsmmmmmsmmmmmsmmmmmsmmmmsmmmsmm", 80, 2_662_214_560,
        num_mem_blocks=2,
    ),
}  # fmt: skip
