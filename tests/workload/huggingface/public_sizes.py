"""Configs of the other sizes of public families, as their hubs publish them, with the parameters
that transformers counts of each on the meta device (``test_public.py`` counts them again).
"""

from __future__ import annotations

from typing import Any

Entry = tuple[str, dict[str, Any], int]


def _llama(name: str, model_type: str, hidden: int, layers: int, heads: int, kv: int, ffn: int,
           vocab: int, positions: int, **more: Any) -> dict[str, Any]:  # fmt: skip
    return {
        "model_type": model_type, "architectures": [f"{name}ForCausalLM"], "hidden_size": hidden,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
        "intermediate_size": ffn, "vocab_size": vocab, "max_position_embeddings": positions,
        "hidden_act": "silu", "tie_word_embeddings": False, **more,
    }  # fmt: skip


_TIED = {"tie_word_embeddings": True}
_QWEN = {"use_sliding_window": False, "sliding_window": None, "max_window_layers": 0}
_WIDE: dict[str, Any] = {"sliding_window": None, "head_dim": 128}
_HEAD = {"head_dim": 128}


def _plain(hub: str, sizes: tuple[int, ...], count: int, **more: Any) -> Entry:
    return hub, _llama("Llama", "llama", *sizes, **more), count


def _mistral(hub: str, sizes: tuple[int, ...], count: int) -> Entry:
    return hub, _llama("Mistral", "mistral", *sizes, **_WIDE), count


def _qwen2(hub: str, sizes: tuple[int, ...], count: int, **more: Any) -> Entry:
    return hub, _llama("Qwen2", "qwen2", *sizes, **_QWEN, **more), count


def _qwen3(hub: str, sizes: tuple[int, ...], count: int, **more: Any) -> Entry:
    return hub, _llama("Qwen3", "qwen3", *sizes, **_QWEN, **_HEAD, **more), count


_LLAMAS: dict[str, Entry] = {
    "llama-7b": _plain(
        "huggyllama/llama-7b", (4096, 32, 32, 32, 11008, 32000, 2048), 6_738_415_616),
    "llama-13b": _plain(
        "huggyllama/llama-13b", (5120, 40, 40, 40, 13824, 32000, 2048), 13_015_864_320),
    "llama-30b": _plain(
        "huggyllama/llama-30b", (6656, 60, 52, 52, 17920, 32000, 2048), 32_528_943_616),
    "llama-65b": _plain(
        "huggyllama/llama-65b", (8192, 80, 64, 64, 22016, 32000, 2048), 65_285_660_672),
    "llama2-34b": _plain(
        "codellama/CodeLlama-34b-hf", (8192, 48, 64, 8, 22016, 32000, 16384), 33_743_970_304),
    "llama3.2-3b": _plain(
        "meta-llama/Llama-3.2-3B", (3072, 28, 24, 8, 8192, 128256, 131072), 3_212_749_824,
        **_HEAD, **_TIED),
    "tinyllama-1.1b": _plain(
        "TinyLlama/TinyLlama_v1.1", (2048, 22, 32, 4, 5632, 32000, 2048), 1_100_048_384),
    "yi-6b": _plain("01-ai/Yi-6B", (4096, 32, 32, 4, 11008, 64000, 4096), 6_061_035_520),
    "yi-34b": _plain("01-ai/Yi-34B", (7168, 60, 56, 8, 20480, 64000, 4096), 34_388_917_248),
    "deepseek-llm-7b": _plain(
        "deepseek-ai/deepseek-llm-7b-base", (4096, 30, 32, 32, 11008, 102400, 4096),
        6_910_365_696),
    "deepseek-llm-67b": _plain(
        "deepseek-ai/deepseek-llm-67b-base", (8192, 95, 64, 8, 22016, 102400, 4096),
        67_425_001_472),
    "deepseek-coder-1.3b": _plain(
        "deepseek-ai/deepseek-coder-1.3b-base", (2048, 24, 16, 16, 5504, 32256, 16384),
        1_346_471_936),
    "deepseek-coder-6.7b": _plain(
        "deepseek-ai/deepseek-coder-6.7b-base", (4096, 32, 32, 32, 11008, 32256, 16384),
        6_740_512_768),
    "deepseek-coder-33b": _plain(
        "deepseek-ai/deepseek-coder-33b-base", (7168, 62, 56, 8, 19200, 32256, 16384),
        33_342_991_360),
    # internlm's own code: llama with biases in attention, which transformers' llama can have
    "internlm-7b": _plain(
        "internlm/internlm-7b", (4096, 32, 32, 32, 11008, 103168, 2048), 7_321_948_160,
        attention_bias=True),
    "mistral-nemo-12b": _mistral(
        "mistralai/Mistral-Nemo-Base-2407", (5120, 40, 32, 8, 14336, 131072, 131072),
        12_247_782_400),
    "mistral-small-22b": _mistral(
        "mistralai/Mistral-Small-Instruct-2409", (6144, 56, 48, 8, 16384, 32768, 32768),
        22_247_282_688),
    "mistral-small-24b": _mistral(
        "mistralai/Mistral-Small-24B-Base-2501", (5120, 40, 32, 8, 32768, 131072, 32768),
        23_572_403_200),
    "mistral-large-123b": _mistral(
        "mistralai/Mistral-Large-Instruct-2407", (12288, 88, 96, 8, 28672, 32768, 131072),
        122_610_069_504),
}  # fmt: skip

_QWENS: dict[str, Entry] = {
    "qwen1.5-1.8b": _qwen2(
        "Qwen/Qwen1.5-1.8B", (2048, 24, 16, 16, 5504, 151936, 32768), 1_836_828_672),
    "qwen1.5-7b": _qwen2(
        "Qwen/Qwen1.5-7B", (4096, 32, 32, 32, 11008, 151936, 32768), 7_721_324_544),
    "qwen1.5-14b": _qwen2(
        "Qwen/Qwen1.5-14B", (5120, 40, 40, 40, 13696, 152064, 32768), 14_167_290_880),
    "qwen1.5-72b": _qwen2(
        "Qwen/Qwen1.5-72B", (8192, 80, 64, 64, 24576, 152064, 32768), 72_287_920_128),
    "qwen2-0.5b": _qwen2(
        "Qwen/Qwen2-0.5B", (896, 24, 14, 2, 4864, 151936, 131072), 494_032_768, **_TIED),
    "qwen2-1.5b": _qwen2(
        "Qwen/Qwen2-1.5B", (1536, 28, 12, 2, 8960, 151936, 131072), 1_543_714_304, **_TIED),
    "qwen2.5-3b": _qwen2(
        "Qwen/Qwen2.5-3B", (2048, 36, 16, 2, 11008, 151936, 32768), 3_085_938_688, **_TIED),
    "qwen2.5-14b": _qwen2(
        "Qwen/Qwen2.5-14B", (5120, 48, 40, 8, 13824, 152064, 131072), 14_770_033_664),
    "qwen2.5-32b": _qwen2(
        "Qwen/Qwen2.5-32B", (5120, 64, 40, 8, 27648, 152064, 131072), 32_763_876_352),
    "qwen3-0.6b": _qwen3(
        "Qwen/Qwen3-0.6B", (1024, 28, 16, 8, 3072, 151936, 40960), 596_049_920, **_TIED),
    "qwen3-1.7b": _qwen3(
        "Qwen/Qwen3-1.7B", (2048, 28, 16, 8, 6144, 151936, 40960), 1_720_574_976, **_TIED),
    "qwen3-4b": _qwen3(
        "Qwen/Qwen3-4B", (2560, 36, 32, 8, 9728, 151936, 40960), 4_022_468_096, **_TIED),
    "qwen3-14b": _qwen3(
        "Qwen/Qwen3-14B", (5120, 40, 40, 8, 17408, 151936, 40960), 14_768_307_200),
    "qwen1.5-moe-a2.7b": (
        "Qwen/Qwen1.5-MoE-A2.7B",
        _llama("Qwen2Moe", "qwen2_moe", 2048, 24, 16, 16, 5632, 151936, 8192, **_QWEN,
               num_experts=60, num_experts_per_tok=4, moe_intermediate_size=1408,
               shared_expert_intermediate_size=5632, decoder_sparse_step=1),
        14_315_784_192,
    ),
    "qwen2-57b-a14b": (
        "Qwen/Qwen2-57B-A14B",
        _llama("Qwen2Moe", "qwen2_moe", 3584, 28, 28, 4, 18944, 151936, 131072, **_QWEN,
               num_experts=64, num_experts_per_tok=8, moe_intermediate_size=2560,
               shared_expert_intermediate_size=20480, decoder_sparse_step=1),
        57_408_658_944,
    ),
}  # fmt: skip


def _gemma(hub: str, kind: str, hidden: int, layers: int, heads: int, kv: int, ffn: int,
           head: int, count: int, **more: Any) -> Entry:  # fmt: skip
    keys = {
        "model_type": kind.lower().replace("text", "_text"),
        "architectures": [f"{kind.removesuffix('Text')}ForCausalLM"], "hidden_size": hidden,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
        "intermediate_size": ffn, "head_dim": head, "vocab_size": 256000,
        "max_position_embeddings": 8192,
    }  # fmt: skip
    return hub, {**keys, **more}, count


_GEMMA2 = {
    "sliding_window": 4096, "hidden_activation": "gelu_pytorch_tanh",
    "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
}  # fmt: skip
#: of the language model; the released vocabulary of those that see images has 64 more entries
_GEMMA3 = {
    "sliding_window": 1024, "sliding_window_pattern": 6, "vocab_size": 262208,
    "max_position_embeddings": 131072,
}  # fmt: skip
_GEMMA3_SMALL = {
    **_GEMMA3, "vocab_size": 262144, "sliding_window": 512, "max_position_embeddings": 32768,
}  # fmt: skip

_GEMMAS: dict[str, Entry] = {
    "gemma-2b": _gemma(
        "google/gemma-2b", "Gemma", 2048, 18, 8, 1, 16384, 256, 2_506_172_416),
    "gemma-7b": _gemma(
        "google/gemma-7b", "Gemma", 3072, 28, 16, 16, 24576, 256, 8_537_680_896),
    "gemma-2-2b": _gemma(
        "google/gemma-2-2b", "Gemma2", 2304, 26, 8, 4, 9216, 256, 2_614_341_888, **_GEMMA2),
    "gemma-2-27b": _gemma(
        "google/gemma-2-27b", "Gemma2", 4608, 46, 32, 16, 36864, 128, 27_227_128_320, **_GEMMA2),
    "gemma-3-270m": _gemma(
        "google/gemma-3-270m", "Gemma3Text", 640, 18, 4, 1, 2048, 256, 268_098_176,
        **_GEMMA3_SMALL),
    "gemma-3-1b": _gemma(
        "google/gemma-3-1b-pt", "Gemma3Text", 1152, 26, 4, 1, 6912, 256, 999_885_952,
        **_GEMMA3_SMALL),
    "gemma-3-4b": _gemma(
        "google/gemma-3-4b-pt", "Gemma3Text", 2560, 34, 8, 4, 10240, 256, 3_880_263_168,
        **_GEMMA3),
    "gemma-3-12b": _gemma(
        "google/gemma-3-12b-pt", "Gemma3Text", 3840, 48, 16, 8, 15360, 256, 11_766_034_176,
        **_GEMMA3),
    "gemma-3-27b": _gemma(
        "google/gemma-3-27b-pt", "Gemma3Text", 5376, 62, 32, 16, 21504, 128, 27_009_346_304,
        **_GEMMA3),
}  # fmt: skip


def _opt(hub: str, hidden: int, layers: int, heads: int, count: int, **more: Any) -> Entry:
    keys = {
        "model_type": "opt", "architectures": ["OPTForCausalLM"], "hidden_size": hidden,
        "num_hidden_layers": layers, "num_attention_heads": heads, "ffn_dim": 4 * hidden,
        "vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": hidden,
        "do_layer_norm_before": True, "activation_function": "relu", "dropout": 0.1,
    }  # fmt: skip
    return hub, {**keys, **more}, count


def _bloom(hub: str, hidden: int, layers: int, heads: int, count: int) -> Entry:
    keys = {
        "model_type": "bloom", "architectures": ["BloomForCausalLM"], "hidden_size": hidden,
        "n_layer": layers, "n_head": heads, "vocab_size": 250880, "seq_length": 2048,
        "hidden_dropout": 0.0,
    }  # fmt: skip
    return hub, keys, count


def _pythia(hub: str, hidden: int, layers: int, heads: int, vocab: int, count: int) -> Entry:
    keys = {
        "model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"],
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "intermediate_size": 4 * hidden, "vocab_size": vocab, "max_position_embeddings": 2048,
        "rotary_pct": 0.25, "hidden_act": "gelu", "tie_word_embeddings": False,
    }  # fmt: skip
    return hub, keys, count


_OPEN: dict[str, Entry] = {
    "opt-125m": _opt("facebook/opt-125m", 768, 12, 12, 125_239_296),
    "opt-350m": _opt(
        "facebook/opt-350m", 1024, 24, 16, 331_196_416, word_embed_proj_dim=512,
        do_layer_norm_before=False),
    "opt-1.3b": _opt("facebook/opt-1.3b", 2048, 24, 32, 1_315_758_080),
    "opt-2.7b": _opt("facebook/opt-2.7b", 2560, 32, 32, 2_651_596_800),
    "opt-6.7b": _opt("facebook/opt-6.7b", 4096, 32, 32, 6_658_473_984),
    "opt-30b": _opt("facebook/opt-30b", 7168, 48, 56, 29_974_540_288),
    "opt-66b": _opt("facebook/opt-66b", 9216, 64, 72, 65_719_701_504),
    "opt-175b": _opt("facebook/opt-175b", 12288, 96, 96, 174_604_468_224),
    # as the Pythia paper's table counts them (Biderman et al. 2023, table 1)
    "pythia-70m": _pythia("EleutherAI/pythia-70m", 512, 6, 8, 50304, 70_426_624),
    "pythia-160m": _pythia("EleutherAI/pythia-160m", 768, 12, 12, 50304, 162_322_944),
    "pythia-410m": _pythia("EleutherAI/pythia-410m", 1024, 24, 16, 50304, 405_334_016),
    "pythia-1b": _pythia("EleutherAI/pythia-1b", 2048, 16, 8, 50304, 1_011_781_632),
    "pythia-1.4b": _pythia("EleutherAI/pythia-1.4b", 2048, 24, 16, 50304, 1_414_647_808),
    "pythia-2.8b": _pythia("EleutherAI/pythia-2.8b", 2560, 32, 32, 50304, 2_775_208_960),
    "pythia-6.9b": _pythia("EleutherAI/pythia-6.9b", 4096, 32, 32, 50432, 6_857_302_016),
    "pythia-12b": _pythia("EleutherAI/pythia-12b", 5120, 36, 40, 50688, 11_846_072_320),
    # as their hub pages count them
    "bloom-560m": _bloom("bigscience/bloom-560m", 1024, 24, 16, 559_214_592),
    "bloom-1b1": _bloom("bigscience/bloom-1b1", 1536, 24, 16, 1_065_314_304),
    "bloom-1b7": _bloom("bigscience/bloom-1b7", 2048, 24, 16, 1_722_408_960),
    "bloom-3b": _bloom("bigscience/bloom-3b", 2560, 30, 32, 3_002_557_440),
    "bloom-7b1": _bloom("bigscience/bloom-7b1", 4096, 30, 32, 7_069_016_064),
    "falcon-7b": (
        "tiiuae/falcon-7b",
        {"model_type": "falcon", "architectures": ["FalconForCausalLM"], "hidden_size": 4544,
         "num_hidden_layers": 32, "num_attention_heads": 71, "vocab_size": 65024,
         "new_decoder_architecture": False, "parallel_attn": True, "multi_query": True,
         "alibi": False, "bias": False},
        6_921_720_704,
    ),
    "falcon-180b": (
        "tiiuae/falcon-180B",
        {"model_type": "falcon", "architectures": ["FalconForCausalLM"], "hidden_size": 14848,
         "num_hidden_layers": 80, "num_attention_heads": 232, "num_kv_heads": 8,
         "vocab_size": 65024, "new_decoder_architecture": True, "parallel_attn": True,
         "multi_query": True, "alibi": False, "bias": False},
        178_557_088_768,
    ),
    "gpt-j-6b": (
        "EleutherAI/gpt-j-6b",
        {"model_type": "gptj", "architectures": ["GPTJForCausalLM"], "n_embd": 4096,
         "n_layer": 28, "n_head": 16, "n_positions": 2048, "rotary_dim": 64,
         "vocab_size": 50400, "activation_function": "gelu_new",
         "tie_word_embeddings": False},
        6_050_882_784,
    ),
    "mosaicml-mpt-7b": (
        "mosaicml/mpt-7b",
        {"model_type": "mpt", "architectures": ["MptForCausalLM"], "d_model": 4096,
         "n_layers": 32, "n_heads": 32, "vocab_size": 50432, "max_seq_len": 2048},
        6_649_286_656,
    ),
    "mosaicml-mpt-30b": (
        "mosaicml/mpt-30b",
        {"model_type": "mpt", "architectures": ["MptForCausalLM"], "d_model": 7168,
         "n_layers": 48, "n_heads": 64, "vocab_size": 50432, "max_seq_len": 8192},
        29_957_200_896,
    ),
    "roberta-base": (
        "FacebookAI/roberta-base",
        {"model_type": "roberta", "architectures": ["RobertaForMaskedLM"], "hidden_size": 768,
         "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
         "vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1},
        124_697_433,
    ),
    "roberta-large": (
        "FacebookAI/roberta-large",
        {"model_type": "roberta", "architectures": ["RobertaForMaskedLM"], "hidden_size": 1024,
         "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
         "vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1},
        355_412_057,
    ),
}  # fmt: skip


def _t5(hub: str, width: int, head: int, ffn: int, layers: int, heads: int, count: int) -> Entry:
    keys = {
        "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": width,
        "d_kv": head, "d_ff": ffn, "num_layers": layers, "num_heads": heads,
        "vocab_size": 32128, "relative_attention_num_buckets": 32, "n_positions": 512,
        "dropout_rate": 0.1,
    }  # fmt: skip
    return hub, keys, count


def _switch(hub: str, experts: int, count: int, **more: Any) -> Entry:
    keys = {
        "model_type": "switch_transformers", "d_model": 768, "d_kv": 64, "d_ff": 3072,
        "architectures": ["SwitchTransformersForConditionalGeneration"], "num_layers": 12,
        "num_decoder_layers": 12, "num_sparse_encoder_layers": 6, "num_sparse_decoder_layers": 6,
        "num_heads": 12, "num_experts": experts, "expert_capacity": 64, "vocab_size": 32128,
        "dense_act_fn": "relu", "router_bias": False, "dropout_rate": 0.1,
    }  # fmt: skip
    return hub, {**keys, **more}, count


def _nemotron(hub: str, hidden: int, layers: int, heads: int, kv: int, count: int) -> Entry:
    keys = {
        "model_type": "nemotron", "architectures": ["NemotronForCausalLM"],
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv, "intermediate_size": 4 * hidden, "vocab_size": 256000,
        "max_position_embeddings": 4096, "hidden_act": "relu2", "partial_rotary_factor": 0.5,
        "tie_word_embeddings": False,
    }  # fmt: skip
    return hub, keys, count


def _phi(hub: str, hidden: int, layers: int, rotary: float, count: int) -> Entry:
    keys = {
        "model_type": "phi", "architectures": ["PhiForCausalLM"], "hidden_size": hidden,
        "num_hidden_layers": layers, "num_attention_heads": 32, "intermediate_size": 4 * hidden,
        "vocab_size": 51200, "max_position_embeddings": 2048, "hidden_act": "gelu_new",
        "partial_rotary_factor": rotary, "resid_pdrop": 0.1, "tie_word_embeddings": False,
    }  # fmt: skip
    return hub, keys, count


def _deepseek(hub: str, kind: str, hidden: int, layers: int, heads: int, experts: int, top_k: int,
              ffn: int, width: int, count: int, **more: Any) -> Entry:  # fmt: skip
    keys = {
        "model_type": kind, "hidden_size": hidden,
        "architectures": ["DeepseekV2ForCausalLM" if kind == "deepseek_v2" else
                          "DeepseekV3ForCausalLM"],
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": heads,
        "intermediate_size": ffn, "moe_intermediate_size": width, "n_routed_experts": experts,
        "num_experts_per_tok": top_k, "first_k_dense_replace": 1, "q_lora_rank": 1536,
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "hidden_act": "silu", "tie_word_embeddings": False,
    }  # fmt: skip
    return hub, {**keys, **more}, count


def _llama4(hub: str, experts: int, step: int, count: int, **more: Any) -> Entry:
    keys = {
        "model_type": "llama4_text", "architectures": ["Llama4ForCausalLM"],
        "hidden_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 40,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 8192,
        "intermediate_size_mlp": 16384, "vocab_size": 202048, "num_local_experts": experts,
        "num_experts_per_tok": 1, "interleave_moe_layer_step": step,
        "attention_chunk_size": 8192, "max_position_embeddings": 262144,
    }  # fmt: skip
    return hub, {**keys, **more}, count


_NEWER: dict[str, Entry] = {
    "t5-small": _t5("google-t5/t5-small", 512, 64, 2048, 6, 8, 60_506_624),
    "t5-base": _t5("google-t5/t5-base", 768, 64, 3072, 12, 12, 222_903_552),
    "t5-3b": _t5("google-t5/t5-3b", 1024, 128, 16384, 24, 32, 2_851_598_336),
    "t5-11b": _t5("google-t5/t5-11b", 1024, 128, 65536, 24, 128, 11_307_321_344),
    "switch-base-8": _switch("google/switch-base-8", 8, 619_339_008),
    "switch-base-16": _switch("google/switch-base-16", 16, 1_072_397_568),
    "switch-base-32": _switch("google/switch-base-32", 32, 1_978_514_688),
    "switch-base-64": _switch("google/switch-base-64", 64, 3_790_748_928),
    "switch-base-128": _switch("google/switch-base-128", 128, 7_415_217_408),
    "switch-base-256": _switch("google/switch-base-256", 256, 14_664_154_368),
    "switch-large-128": _switch("google/switch-large-128", 128, 26_309_291_008,
        d_model=1024, d_ff=4096, num_heads=16, num_layers=24,
        num_decoder_layers=24, num_sparse_encoder_layers=12, num_sparse_decoder_layers=12),
    "nemotron3-8b": _nemotron(
        "nvidia/nemotron-3-8b-base-4k", 4096, 32, 32, 32, 8_540_135_424),
    "nemotron4-15b": _nemotron("nvidia/nemotron-4-15b", 6144, 32, 48, 8, 15_628_775_424),
    "nemotron4-340b": _nemotron(
        "nvidia/Nemotron-4-340B-Base", 18432, 96, 96, 8, 341_029_195_776),
    "phi-1.5": _phi("microsoft/phi-1_5", 2048, 24, 0.5, 1_418_270_720),
    "phi-2": _phi("microsoft/phi-2", 2560, 32, 0.4, 2_779_683_840),
    "phi-3-medium": (
        "microsoft/Phi-3-medium-4k-instruct",
        _llama("Phi3", "phi3", 5120, 40, 40, 10, 17920, 32064, 4096, sliding_window=2047),
        13_960_238_080,
    ),
    "phi-4": (
        "microsoft/phi-4",
        _llama("Phi3", "phi3", 5120, 40, 40, 10, 17920, 100352, 16384, sliding_window=None),
        14_659_507_200,
    ),
    "phi-4-mini": (
        "microsoft/Phi-4-mini-instruct",
        _llama("Phi3", "phi3", 3072, 32, 24, 8, 8192, 200064, 131072, sliding_window=262144,
               partial_rotary_factor=0.75, tie_word_embeddings=True),
        3_836_021_760,
    ),
    "gpt-oss-120b": (
        "openai/gpt-oss-120b",
        _llama("GptOss", "gpt_oss", 2880, 36, 64, 8, 2880, 201088, 131072, head_dim=64,
               num_local_experts=128, num_experts_per_tok=4, sliding_window=128,
               attention_bias=True),
        116_829_156_672,
    ),
    "dbrx": (
        "databricks/dbrx-base",
        {"model_type": "dbrx", "architectures": ["DbrxForCausalLM"], "d_model": 6144,
         "n_layers": 40, "n_heads": 48, "vocab_size": 100352, "max_seq_len": 32768,
         "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500000},
         "ffn_config": {"ffn_hidden_size": 10752, "hidden_size": 6144, "moe_num_experts": 16,
                        "moe_top_k": 4, "ffn_act_fn": {"name": "silu"}}},
        131_596_523_520,
    ),
    "deepseek-v2": _deepseek(
        "deepseek-ai/DeepSeek-V2", "deepseek_v2", 5120, 60, 128, 160, 6, 12288, 1536,
        235_741_434_880, n_shared_experts=2, vocab_size=102400, max_position_embeddings=163840,
        n_group=8, topk_group=3),
    "kimi-k2": _deepseek(
        "moonshotai/Kimi-K2-Base", "deepseek_v3", 7168, 61, 64, 384, 8, 18432, 2048,
        1_026_408_209_408, n_shared_experts=1, vocab_size=163840,
        max_position_embeddings=131072, n_group=1, topk_group=1),
    "llama4-scout": _llama4("meta-llama/Llama-4-Scout-17B-16E", 16, 1, 107_769_861_120),
    "llama4-maverick": _llama4(
        "meta-llama/Llama-4-Maverick-17B-128E", 128, 2, 400_711_848_960, use_qk_norm=False),
}  # fmt: skip

#: models_db name: (hub address, config, parameters)
SIZES: dict[str, Entry] = {**_LLAMAS, **_QWENS, **_GEMMAS, **_OPEN, **_NEWER}
