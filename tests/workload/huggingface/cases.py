"""Small configs of every supported model_type, and the transformers class that each stands for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

transformers.logging.set_verbosity_error()

_BASE: dict[str, Any] = {
    "vocab_size": 101, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "intermediate_size": 72, "max_position_embeddings": 64,
}  # fmt: skip
_GQA: dict[str, Any] = {**_BASE, "num_key_value_heads": 2}
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_MLA: dict[str, Any] = {
    **_GQA, "num_key_value_heads": 4, "moe_intermediate_size": 20, "n_routed_experts": 6,
    "n_shared_experts": 2, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 12, "v_head_dim": 14, "n_group": 1, "topk_group": 1,
    "num_experts_per_tok": 2, "first_k_dense_replace": 1,
}  # fmt: skip
_FALCON = {k: v for k, v in _BASE.items() if k != "intermediate_size"}
_T5: dict[str, Any] = {
    "vocab_size": 101, "d_model": 48, "d_kv": 20, "d_ff": 72, "num_layers": 3, "num_heads": 4,
    "decoder_start_token_id": 0,
}  # fmt: skip
_VIT: dict[str, Any] = {
    "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 72,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip
_DINOV2 = {key: value for key, value in _VIT.items() if key != "intermediate_size"}
_WHISPER: dict[str, Any] = {
    "vocab_size": 101, "d_model": 48, "encoder_layers": 3, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 6, "encoder_ffn_dim": 72,
    "decoder_ffn_dim": 80, "num_mel_bins": 16, "max_source_positions": 50,
    "max_target_positions": 32, "decoder_start_token_id": 1, "suppress_tokens": None,
    "begin_suppress_tokens": None, **_TOKENS,
}  # fmt: skip

_GPTJ: dict[str, Any] = {
    "vocab_size": 101, "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 64, **_TOKENS,
}  # fmt: skip
_MOSAIC: dict[str, Any] = {
    "vocab_size": 101, "d_model": 48, "n_layers": 2, "n_heads": 4, "max_seq_len": 64,
}  # fmt: skip
#: Every token takes every expert: transformers computes all of them whatever the choice.
_LLAMA4: dict[str, Any] = {
    **_GQA, "num_hidden_layers": 4, "head_dim": 12, "intermediate_size": 20,
    "intermediate_size_mlp": 72, "num_local_experts": 2, "num_experts_per_tok": 2,
    "pad_token_id": 0,
}  # fmt: skip

_DISTIL: dict[str, Any] = {
    "vocab_size": 101, "dim": 48, "n_layers": 3, "n_heads": 4, "hidden_dim": 72,
    "max_position_embeddings": 64,
}  # fmt: skip

#: The window and the positions are shorter than a sequence, so that both show.
_MODERN: dict[str, Any] = {
    **_BASE, "num_hidden_layers": 5, "local_attention": 8, "max_position_embeddings": 64,
    "pad_token_id": 0,
}  # fmt: skip
_DEBERTA: dict[str, Any] = {
    **_BASE, "relative_attention": True, "position_buckets": 10, "norm_rel_ebd": "layer_norm",
    "share_att_key": True, "pos_att_type": "p2c|c2p", "position_biased_input": False,
    "num_labels": 5,
}  # fmt: skip
_BART: dict[str, Any] = {
    "vocab_size": 101, "d_model": 48, "encoder_layers": 3, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 6, "encoder_ffn_dim": 72,
    "decoder_ffn_dim": 80, "max_position_embeddings": 64, "decoder_start_token_id": 2,
    "forced_eos_token_id": 2, **_TOKENS,
}  # fmt: skip
_WAV2VEC2: dict[str, Any] = {
    "vocab_size": 32, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "intermediate_size": 72, "conv_dim": [16, 20, 24], "conv_stride": [5, 2, 2],
    "conv_kernel": [10, 3, 2], "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
    "layerdrop": 0.0, "ctc_loss_reduction": "mean",
}  # fmt: skip
_WAV2VEC2_LARGE: dict[str, Any] = {
    **_WAV2VEC2, "do_stable_layer_norm": True, "feat_extract_norm": "layer", "conv_bias": True,
    "num_conv_pos_embeddings": 15,
}  # fmt: skip
_MAMBA: dict[str, Any] = {
    "vocab_size": 101, "hidden_size": 48, "num_hidden_layers": 3, "num_heads": 6, "head_dim": 16,
    "n_groups": 2, "state_size": 10, "chunk_size": 8,
}  # fmt: skip
_HYBRID: dict[str, Any] = {
    **_GQA, "mamba_num_heads": 6, "mamba_head_dim": 14, "n_groups": 3, "ssm_state_size": 10,
    "chunk_size": 8, "head_dim": 20, "num_hidden_layers": 5, "n_routed_experts": 5,
    "num_experts_per_tok": 2, "moe_intermediate_size": 20,
    "moe_shared_expert_intermediate_size": 28,
}  # fmt: skip
_DELTA: dict[str, Any] = {
    **_GQA, "num_hidden_layers": 4, "head_dim": 16, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 10, "linear_value_head_dim": 14,
    "moe_intermediate_size": 20, "shared_expert_intermediate_size": 36, "num_experts": 5,
    "num_experts_per_tok": 2,
}  # fmt: skip
_KIMI: dict[str, Any] = {
    **_MLA, "num_experts": 6, "num_hidden_layers": 4, "linear_num_heads": 3, "linear_head_dim": 10,
    "q_lora_rank": None, "num_key_value_heads": 4, "pad_token_id": 0,
    "layer_types": ["linear_attention", "full_attention", *["linear_attention"] * 2],
}  # fmt: skip
_ZAMBA: dict[str, Any] = {
    **_BASE, "num_hidden_layers": 6, "n_mamba_heads": 6, "mamba_d_state": 10, "mamba_ngroups": 2,
    "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid", "hybrid", "mamba"],
    "adapter_rank": 5, "chunk_size": 8,
}  # fmt: skip
_JAMBA: dict[str, Any] = {
    **_GQA, "num_hidden_layers": 4, "attn_layer_period": 3, "attn_layer_offset": 1,
    "num_experts": 5, "mamba_d_state": 10, "pad_token_id": 0,
}  # fmt: skip
_SSM: dict[str, Any] = {
    **_GQA, "mamba_n_heads": 6, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 10,
    "mamba_chunk_size": 8,
}  # fmt: skip

#: (config class without "Config", keys, model class)
Case = tuple[str, dict[str, Any], str]
CASES: dict[str, Case] = {
    "llama": ("Llama", _GQA, "LlamaForCausalLM"),
    "llama tied": ("Llama", {**_GQA, "tie_word_embeddings": True}, "LlamaForCausalLM"),
    "llama biases": (
        "Llama", {**_BASE, "attention_bias": True, "mlp_bias": True, "head_dim": 10},
        "LlamaForCausalLM",
    ),
    "mistral": ("Mistral", {**_GQA, "sliding_window": 8, "head_dim": 16}, "MistralForCausalLM"),
    "mistral wide": ("Mistral", {**_GQA, "sliding_window": None}, "MistralForCausalLM"),
    "mixtral": (
        "Mixtral", {**_GQA, "num_local_experts": 5, "num_experts_per_tok": 3},
        "MixtralForCausalLM",
    ),
    "qwen2": ("Qwen2", _GQA, "Qwen2ForCausalLM"),
    "qwen2 tied": ("Qwen2", {**_GQA, "tie_word_embeddings": True}, "Qwen2ForCausalLM"),
    "qwen2 windowed": (
        "Qwen2", {**_GQA, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2},
        "Qwen2ForCausalLM",
    ),
    "qwen2_moe": (
        "Qwen2Moe",
        {**_GQA, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 36,
         "num_experts": 5, "num_experts_per_tok": 2},
        "Qwen2MoeForCausalLM",
    ),
    "qwen2_moe sparse": (
        "Qwen2Moe",
        {**_GQA, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 36,
         "num_experts": 5, "decoder_sparse_step": 2, "num_hidden_layers": 4,
         "mlp_only_layers": [3]},
        "Qwen2MoeForCausalLM",
    ),
    "qwen3": ("Qwen3", {**_GQA, "head_dim": 16}, "Qwen3ForCausalLM"),
    "qwen3 biased": (
        "Qwen3", {**_GQA, "head_dim": 16, "attention_bias": True}, "Qwen3ForCausalLM",
    ),
    "qwen3_moe": (
        "Qwen3Moe",
        {**_GQA, "moe_intermediate_size": 20, "num_experts": 5, "num_experts_per_tok": 2,
         "head_dim": 12},
        "Qwen3MoeForCausalLM",
    ),
    "gemma": ("Gemma", {**_GQA, "head_dim": 16}, "GemmaForCausalLM"),
    "gemma2": ("Gemma2", {**_GQA, "head_dim": 16, "sliding_window": 8}, "Gemma2ForCausalLM"),
    "gemma3_text": (
        "Gemma3Text", {**_GQA, "head_dim": 16, "num_hidden_layers": 7}, "Gemma3ForCausalLM",
    ),
    "gemma4_text": (
        "Gemma4Text",
        {**_GQA, "head_dim": 16, "num_hidden_layers": 7, "num_global_key_value_heads": 1,
         "global_head_dim": 32, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0},
        "Gemma4ForCausalLM",
    ),
    "gemma4_text shared": (
        "Gemma4Text",
        {**_GQA, "head_dim": 16, "num_hidden_layers": 7, "num_global_key_value_heads": 1,
         "global_head_dim": 32, "hidden_size_per_layer_input": 12, "num_kv_shared_layers": 3,
         "use_double_wide_mlp": True, "vocab_size_per_layer_input": 110,
         "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2
         + ["full_attention"]},
        "Gemma4ForCausalLM",
    ),
    "gemma3n_text": (
        "Gemma3nText",
        {**_GQA, "head_dim": 12, "num_hidden_layers": 6, "hidden_size_per_layer_input": 12,
         "num_kv_shared_layers": 2, "vocab_size_per_layer_input": 110, "laurel_rank": 6,
         "activation_sparsity_pattern": [0.95, 0.95, 0.0, 0.0, 0.0, 0.0],
         "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2},
        "Gemma3nForCausalLM",
    ),
    "phi3": ("Phi3", {**_GQA, **_TOKENS}, "Phi3ForCausalLM"),
    "gpt2": (
        "GPT2",
        {"vocab_size": 101, "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 64, **_TOKENS},
        "GPT2LMHeadModel",
    ),
    "gpt2 narrow": (
        "GPT2",
        {"vocab_size": 101, "n_embd": 48, "n_layer": 1, "n_head": 4, "n_positions": 64,
         "n_inner": 70, **_TOKENS},
        "GPT2LMHeadModel",
    ),
    "gpt_neox": ("GPTNeoX", _BASE, "GPTNeoXForCausalLM"),
    "gpt_neox serial": (
        "GPTNeoX",
        {**_BASE, "use_parallel_residual": False, "attention_bias": False,
         "tie_word_embeddings": True},
        "GPTNeoXForCausalLM",
    ),
    "opt": ("OPT", {**_FALCON, "ffn_dim": 72, "word_embed_proj_dim": 48}, "OPTForCausalLM"),
    "opt 350m": (
        "OPT",
        {**_FALCON, "ffn_dim": 72, "word_embed_proj_dim": 24, "do_layer_norm_before": False},
        "OPTForCausalLM",
    ),
    "opt no biases": (
        "OPT", {**_FALCON, "ffn_dim": 72, "word_embed_proj_dim": 48, "enable_bias": False},
        "OPTForCausalLM",
    ),
    "bloom": (
        "Bloom", {"vocab_size": 101, "hidden_size": 48, "n_layer": 3, "n_head": 4},
        "BloomForCausalLM",
    ),
    "falcon": ("Falcon", _FALCON, "FalconForCausalLM"),
    "falcon 40b": (
        "Falcon", {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2},
        "FalconForCausalLM",
    ),
    "falcon 11b": (
        "Falcon",
        {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2,
         "num_ln_in_parallel_attn": 1},
        "FalconForCausalLM",
    ),
    "falcon rw": (
        "Falcon",
        {**_FALCON, "alibi": True, "bias": True, "multi_query": False, "parallel_attn": False},
        "FalconForCausalLM",
    ),
    "bert": ("Bert", {**_BASE, "num_labels": 5}, "BertForSequenceClassification"),
    "bert masked": ("Bert", _BASE, "BertForMaskedLM"),
    "roberta": ("Roberta", {**_BASE, "type_vocab_size": 1}, "RobertaForMaskedLM"),
    "roberta classes": ("Roberta", {**_BASE, "num_labels": 3}, "RobertaForSequenceClassification"),
    "t5": ("T5", _T5, "T5ForConditionalGeneration"),
    "t5 v1.1": (
        "T5",
        {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
         "num_decoder_layers": 2},
        "T5ForConditionalGeneration",
    ),
    "switch_transformers": (
        "SwitchTransformers",
        {**_T5, "num_layers": 4, "num_decoder_layers": 2, "num_experts": 3, "expert_capacity": 64,
         "num_sparse_encoder_layers": 2, "num_sparse_decoder_layers": 1},
        "SwitchTransformersForConditionalGeneration",
    ),
    "switch_transformers all": (
        "SwitchTransformers",
        {**_T5, "num_experts": 3, "num_decoder_layers": 3, "num_sparse_encoder_layers": 3,
         "num_sparse_decoder_layers": 3},
        "SwitchTransformersForConditionalGeneration",
    ),
    "vit": ("ViT", {**_VIT, "num_labels": 7}, "ViTForImageClassification"),
    "dinov2": ("Dinov2", {**_DINOV2, "num_labels": 7}, "Dinov2ForImageClassification"),
    "dinov2 gated": (
        "Dinov2", {**_DINOV2, "use_swiglu_ffn": True}, "Dinov2ForImageClassification",
    ),
    "dinov2_with_registers": (
        "Dinov2WithRegisters", {**_DINOV2, "num_register_tokens": 3},
        "Dinov2WithRegistersForImageClassification",
    ),
    "vit grey": (
        "ViT", {**_VIT, "qkv_bias": False, "num_channels": 1}, "ViTForImageClassification",
    ),
    "deepseek_v2": ("DeepseekV2", _MLA, "DeepseekV2ForCausalLM"),
    "deepseek_v2 lite": (
        "DeepseekV2", {**_MLA, "q_lora_rank": None, "attention_bias": True},
        "DeepseekV2ForCausalLM",
    ),
    "deepseek_v3": ("DeepseekV3", _MLA, "DeepseekV3ForCausalLM"),
    "gpt_oss": (
        "GptOss", {**_GQA, "head_dim": 16, "num_local_experts": 6, "num_experts_per_tok": 2},
        "GptOssForCausalLM",
    ),
    "nemotron": ("Nemotron", {**_GQA, **_TOKENS}, "NemotronForCausalLM"),
    "nemotron biases": (
        "Nemotron",
        {**_GQA, **_TOKENS, "attention_bias": True, "mlp_bias": True, "head_dim": 16},
        "NemotronForCausalLM",
    ),
    "phi": ("Phi", {**_GQA, **_TOKENS}, "PhiForCausalLM"),
    "phi norms": ("Phi", {**_BASE, **_TOKENS, "qk_layernorm": True}, "PhiForCausalLM"),
    "gptj": ("GPTJ", {**_GPTJ, "rotary_dim": 8}, "GPTJForCausalLM"),
    "mpt": ("Mpt", {**_MOSAIC, "n_layers": 3}, "MptForCausalLM"),
    "mpt clipped": ("Mpt", {**_MOSAIC, "attn_config": {"clip_qkv": 6.0}}, "MptForCausalLM"),
    "dbrx": (
        "Dbrx",
        {**_MOSAIC, "attn_config": {"clip_qkv": 8.0, "kv_n_heads": 2, "rope_theta": 10000.0},
         "ffn_config": {"hidden_size": 48, "ffn_hidden_size": 20, "moe_num_experts": 5,
                        "moe_top_k": 2}},
        "DbrxForCausalLM",
    ),
    "llama4_text": ("Llama4Text", {**_LLAMA4, "num_hidden_layers": 5}, "Llama4ForCausalLM"),
    "llama4_text interleaved": (
        "Llama4Text",
        {**_LLAMA4, "interleave_moe_layer_step": 2, "use_qk_norm": False,
         "no_rope_layers": [1, 0, 1, 1]},
        "Llama4ForCausalLM",
    ),
    "olmo": ("Olmo", _GQA, "OlmoForCausalLM"),
    "olmo clipped": ("Olmo", {**_BASE, "clip_qkv": 6.0}, "OlmoForCausalLM"),
    "olmo2": ("Olmo2", _GQA, "Olmo2ForCausalLM"),
    "olmo3": ("Olmo3", {**_GQA, "num_hidden_layers": 5, "sliding_window": 8}, "Olmo3ForCausalLM"),
    "olmoe": (
        "Olmoe", {**_GQA, "intermediate_size": 20, "num_experts": 5, "num_experts_per_tok": 2},
        "OlmoeForCausalLM",
    ),
    "granite": (
        "Granite",
        {**_GQA, "embedding_multiplier": 12.0, "logits_scaling": 8.0, "residual_multiplier": 0.2,
         "attention_multiplier": 0.1, "tie_word_embeddings": True},
        "GraniteForCausalLM",
    ),
    "smollm3": ("SmolLM3", {**_GQA, **_TOKENS, "num_hidden_layers": 5}, "SmolLM3ForCausalLM"),
    "glm": ("Glm", {**_GQA, **_TOKENS, "head_dim": 12}, "GlmForCausalLM"),
    "seed_oss": (
        "SeedOss",
        {**_GQA, "head_dim": 16, "attention_dropout": 0.0, "residual_dropout": 0.0},
        "SeedOssForCausalLM",
    ),
    "seed_oss biased": (
        "SeedOss",
        {**_GQA, "attention_out_bias": True, "mlp_bias": True, "attention_dropout": 0.0,
         "residual_dropout": 0.0},
        "SeedOssForCausalLM",
    ),
    "ernie4_5": ("Ernie4_5", {**_GQA, "head_dim": 12}, "Ernie4_5ForCausalLM"),
    "ernie4_5 biased": (
        "Ernie4_5", {**_GQA, "head_dim": 12, "use_bias": True, "tie_word_embeddings": False},
        "Ernie4_5ForCausalLM",
    ),
    "hunyuan_v1_dense": (
        "HunYuanDenseV1", {**_GQA, "head_dim": 12}, "HunYuanDenseV1ForCausalLM",
    ),
    "glm4": ("Glm4", {**_GQA, **_TOKENS, "head_dim": 12}, "Glm4ForCausalLM"),
    "exaone4": (
        "Exaone4",
        {**_GQA, **_TOKENS, "num_hidden_layers": 5, "sliding_window": 8,
         "sliding_window_pattern": 4},
        "Exaone4ForCausalLM",
    ),
    "exaone4 wide": (
        "Exaone4",
        {**_GQA, **_TOKENS, "sliding_window": None, "layer_types": ["full_attention"] * 3},
        "Exaone4ForCausalLM",
    ),
    "granite_swa": (
        "GraniteSWA",
        {**_GQA, **_TOKENS, "num_hidden_layers": 5, "sliding_window": 8,
         "layer_rope_theta": [0, 10000.0, 10000.0, 10000.0, 0]},
        "GraniteSWAForCausalLM",
    ),
    "granitemoe_swa": (
        "GraniteMoeSWA",
        {**_GQA, **_TOKENS, "intermediate_size": 20, "num_local_experts": 5, "sliding_window": 8,
         "shared_intermediate_size": 28},
        "GraniteMoeSWAForCausalLM",
    ),
    "hyperclovax": ("HyperCLOVAX", {**_GQA, **_TOKENS}, "HyperCLOVAXForCausalLM"),
    "hyperclovax plain": (
        "HyperCLOVAX", {**_GQA, **_TOKENS, "use_post_norm": False}, "HyperCLOVAXForCausalLM",
    ),
    "internlm3": (
        "InternLM3", {**_GQA, **_TOKENS, "head_dim": 16, "attention_bias": True, "mlp_bias": True},
        "LlamaForCausalLM",
    ),
    "iquestcoder": ("IQuestCoder", {**_GQA, **_TOKENS, "head_dim": 16}, "LlamaForCausalLM"),
    "helium": (
        "Helium", {**_GQA, **_TOKENS, "head_dim": 12, "attention_bias": True}, "HeliumForCausalLM",
    ),
    "jais2": ("Jais2", {**_GQA, **_TOKENS}, "Jais2ForCausalLM"),
    "mellum": (
        "Mellum",
        {**_GQA, **_TOKENS, "head_dim": 16, "moe_intermediate_size": 20, "num_experts": 6,
         "num_experts_per_tok": 2, "sliding_window": 8,
         "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
         "mlp_layer_types": ["dense", "sparse", "sparse"]},
        "MellumForCausalLM",
    ),
    "flex_olmo": (
        "FlexOlmo", {**_GQA, **_TOKENS, "num_experts": 5, "num_experts_per_tok": 2},
        "FlexOlmoForCausalLM",
    ),
    "solar_open": (
        "SolarOpen",
        {**{k: v for k, v in _GQA.items() if k != "intermediate_size"}, **_TOKENS, "head_dim": 16,
         "moe_intermediate_size": 20, "n_routed_experts": 6, "num_experts_per_tok": 2},
        "SolarOpenForCausalLM",
    ),
    "youtu": (
        "Youtu",
        {k: v for k, v in _MLA.items() if k in (*_GQA, "q_lora_rank", "kv_lora_rank",
         "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")},
        "YoutuForCausalLM",
    ),
    "exaone_moe": (
        "ExaoneMoe",
        {**_GQA, **_TOKENS, "num_hidden_layers": 5, "head_dim": 16, "moe_intermediate_size": 20,
         "num_experts": 6, "num_experts_per_tok": 2, "sliding_window": 8},
        "ExaoneMoeForCausalLM",
    ),
    "bitnet": ("BitNet", _GQA, "BitNetForCausalLM"),
    "minicpm3": (
        "MiniCPM3",
        {k: v for k, v in _MLA.items() if k in (*_GQA, "q_lora_rank", "kv_lora_rank",
         "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")},
        "MiniCPM3ForCausalLM",
    ),
    "axk1": (
        "AXK1", {**{k: v for k, v in _MLA.items() if k != "first_k_dense_replace"}, **_TOKENS,
        "mlp_layer_types": ["dense", "sparse", "sparse"]}, "AXK1ForCausalLM",
    ),
    "longcat_flash": (
        "LongcatFlash",
        {**{k: v for k, v in _MLA.items() if k in (*_GQA, "q_lora_rank", "kv_lora_rank",
         "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "n_routed_experts")
         and k not in ("num_hidden_layers", "intermediate_size")}, "num_layers": 2,
         "ffn_hidden_size": 72, "expert_ffn_hidden_size": 20, "zero_expert_num": 3, "moe_topk": 9,
         "head_dim": 8},
        "LongcatFlashForCausalLM",
    ),
    "afmoe": (
        "Afmoe",
        {**_GQA, **_TOKENS, "num_hidden_layers": 5, "head_dim": 16, "moe_intermediate_size": 20,
         "num_experts": 6, "num_experts_per_tok": 2, "sliding_window": 8, "mup_enabled": True},
        "AfmoeForCausalLM",
    ),
    "laguna": (
        "Laguna",
        {**_GQA, **_TOKENS, "head_dim": 16, "moe_intermediate_size": 20, "num_experts": 6,
         "num_experts_per_tok": 2, "sliding_window": 8, "shared_expert_intermediate_size": 28,
         "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
         "num_attention_heads_per_layer": [4, 6, 6]},
        "LagunaForCausalLM",
    ),
    "laguna by element": (
        "Laguna",
        {**_GQA, **_TOKENS, "head_dim": 16, "moe_intermediate_size": 20, "num_experts": 6,
         "num_experts_per_tok": 2, "shared_expert_intermediate_size": 28, "gating": "per-element"},
        "LagunaForCausalLM",
    ),
    "kolibri1": (
        "Kolibri1",
        {**{k: v for k, v in _GQA.items() if k != "intermediate_size"}, **_TOKENS,
         "num_hidden_layers": 5, "head_dim": 16, "moe_intermediate_size": 20, "num_experts": 6,
         "num_experts_per_tok": 2, "sliding_window": 8, "shared_expert_intermediate_size": 28},
        "Kolibri1ForCausalLM",
    ),
    "cohere2_moe": (
        "Cohere2Moe",
        {**_GQA, **_TOKENS, "num_hidden_layers": 5, "head_dim": 16, "num_experts": 6,
         "num_shared_experts": 2, "prefix_dense_intermediate_size": 60, "first_k_dense_replace": 1,
         "sliding_window": 8},
        "Cohere2MoeForCausalLM",
    ),
    "deepseek_v4": (
        "DeepseekV4",
        {**{k: v for k, v in _BASE.items() if k != "intermediate_size"}, **_TOKENS,
         "num_key_value_heads": 1, "head_dim": 16, "moe_intermediate_size": 20,
         "n_routed_experts": 6, "num_experts_per_tok": 2, "q_lora_rank": 24, "sliding_window": 8,
         "o_groups": 2, "o_lora_rank": 10, "index_n_heads": 3, "index_head_dim": 8,
         "index_topk": 2, "partial_rotary_factor": 0.25, "num_hidden_layers": 4,
         "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
         "layer_types": ["heavily_compressed_attention", "sliding_attention",
                         "compressed_sparse_attention", "compressed_sparse_attention"]},
        "DeepseekV4ForCausalLM",
    ),
    "arcee": ("Arcee", {**_GQA, **_TOKENS}, "ArceeForCausalLM"),
    "dots1": (
        "Dots1",
        {**_GQA, **_TOKENS, "num_hidden_layers": 4, "moe_intermediate_size": 20,
         "n_routed_experts": 6, "n_shared_experts": 2, "num_experts_per_tok": 2,
         "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1},
        "Dots1ForCausalLM",
    ),
    "stablelm": (
        "StableLm", {**_GQA, "use_qkv_bias": True, "partial_rotary_factor": 0.5},
        "StableLmForCausalLM",
    ),
    "stablelm parallel": (
        "StableLm",
        {**_BASE, "num_key_value_heads": 4, "use_parallel_residual": True,
         "partial_rotary_factor": 0.5},
        "StableLmForCausalLM",
    ),
    "starcoder2": ("Starcoder2", {**_GQA, "sliding_window": 8}, "Starcoder2ForCausalLM"),
    "gpt_neo": (
        "GPTNeo",
        {"vocab_size": 101, "hidden_size": 48, "num_layers": 3, "num_heads": 4,
         "max_position_embeddings": 64, "window_size": 8, **_TOKENS,
         "attention_types": [[["global", "local", "local"], 1]]},
        "GPTNeoForCausalLM",
    ),
    "xlm-roberta": ("XLMRoberta", {**_BASE, "type_vocab_size": 1}, "XLMRobertaForMaskedLM"),
    "camembert": ("Camembert", {**_BASE, "type_vocab_size": 1}, "CamembertForMaskedLM"),
    "distilbert": (
        "DistilBert", {**_DISTIL, "num_labels": 5}, "DistilBertForSequenceClassification",
    ),
    "distilbert masked": ("DistilBert", _DISTIL, "DistilBertForMaskedLM"),
    "modernbert": ("ModernBert", _MODERN, "ModernBertForMaskedLM"),
    "modernbert biased": (
        "ModernBert",
        {**_MODERN, "attention_bias": True, "mlp_bias": True, "norm_bias": True,
         "classifier_bias": True, "decoder_bias": False, "num_hidden_layers": 1},
        "ModernBertForMaskedLM",
    ),
    "modernbert classes": (
        "ModernBert", {**_MODERN, "num_labels": 5}, "ModernBertForSequenceClassification",
    ),
    "modernbert mean": (
        "ModernBert", {**_MODERN, "num_labels": 5, "classifier_pooling": "mean"},
        "ModernBertForSequenceClassification",
    ),
    "deberta-v2": ("DebertaV2", _DEBERTA, "DebertaV2ForSequenceClassification"),
    "deberta-v2 masked": ("DebertaV2", _DEBERTA, "DebertaV2ForMaskedLM"),
    "deberta-v2 apart": (
        "DebertaV2",
        {**_DEBERTA, "share_att_key": False, "norm_rel_ebd": "none", "position_buckets": -1,
         "position_biased_input": True},
        "DebertaV2ForSequenceClassification",
    ),
    "bart": ("Bart", _BART, "BartForConditionalGeneration"),
    "bart relu": (
        "Bart", {**_BART, "activation_function": "relu"}, "BartForConditionalGeneration",
    ),
    "mbart": ("MBart", {**_BART, "scale_embedding": True}, "MBartForConditionalGeneration"),
    "m2m_100": (
        "M2M100", {**_BART, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0},
        "M2M100ForConditionalGeneration",
    ),
    "wav2vec2": ("Wav2Vec2", {**_WAV2VEC2, "mask_time_prob": 0.0}, "Wav2Vec2ForCTC"),
    "wav2vec2 large": ("Wav2Vec2", _WAV2VEC2_LARGE, "Wav2Vec2ForCTC"),
    "hubert": ("Hubert", _WAV2VEC2, "HubertForCTC"),
    "hubert large": ("Hubert", {**_WAV2VEC2_LARGE, "mask_time_prob": 0.0}, "HubertForCTC"),
    "mpnet": ("MPNet", _BASE, "MPNetForMaskedLM"),
    "electra": (
        "Electra", {**_BASE, "embedding_size": 20, "num_labels": 5},
        "ElectraForSequenceClassification",
    ),
    "electra masked": ("Electra", {**_BASE, "embedding_size": 48}, "ElectraForMaskedLM"),
    "albert": (
        "Albert", {**_BASE, "embedding_size": 20, "num_labels": 5},
        "AlbertForSequenceClassification",
    ),
    "albert masked": (
        "Albert", {**_BASE, "embedding_size": 20, "hidden_act": "gelu"}, "AlbertForMaskedLM",
    ),
    "mt5": (
        "MT5", {**_T5, "feed_forward_proj": "gated-gelu"}, "MT5ForConditionalGeneration",
    ),
    "mamba2": ("Mamba2", _MAMBA, "Mamba2ForCausalLM"),
    "mamba2 tied": (
        "Mamba2",
        {**_MAMBA, "tie_word_embeddings": True, "use_bias": True, "use_conv_bias": False},
        "Mamba2ForCausalLM",
    ),
    "nemotron_h": (
        "NemotronH", {**_HYBRID, "hybrid_override_pattern": "M-M*-", "mlp_bias": True},
        "NemotronHForCausalLM",
    ),
    "nemotron_h experts": (
        "NemotronH",
        {**_HYBRID, "layers_block_type": ["mamba", "moe", "attention", "moe", "mamba"],
         "use_bias": True},
        "NemotronHForCausalLM",
    ),
    "nemotron_h latent": (
        "NemotronH",
        {**_HYBRID, "layers_block_type": ["mamba", "moe", "attention", "moe", "mlp"],
         "moe_latent_size": 14},
        "NemotronHForCausalLM",
    ),
    "glm4_moe": (
        "Glm4Moe",
        {**_GQA, "moe_intermediate_size": 20, "n_routed_experts": 6, "num_experts_per_tok": 2,
         "head_dim": 16, "use_qk_norm": True, "attention_bias": True},
        "Glm4MoeForCausalLM",
    ),
    "glm4_moe groups": (
        "Glm4Moe",
        {**_GQA, "moe_intermediate_size": 20, "n_routed_experts": 6, "num_experts_per_tok": 2,
         "n_group": 3, "topk_group": 1, "first_k_dense_replace": 2, "n_shared_experts": 2},
        "Glm4MoeForCausalLM",
    ),
    "minimax": (
        "MiniMax",
        {**_GQA, "intermediate_size": 20, "num_local_experts": 5, "num_experts_per_tok": 2,
         "layer_types": ["linear_attention", "full_attention", "linear_attention"],
         "head_dim": 14, "block_size": 8},
        "MiniMaxForCausalLM",
    ),
    "minimax_m2": (
        "MiniMaxM2",
        {**_GQA, "intermediate_size": 20, "num_local_experts": 5, "num_experts_per_tok": 2,
         "head_dim": 16, "rotary_dim": 8},
        "MiniMaxM2ForCausalLM",
    ),
    "kimi_linear": ("KimiLinear", _KIMI, "KimiLinearForCausalLM"),
    "kimi_linear compressed": (
        "KimiLinear",
        {**_KIMI, "q_lora_rank": 24, "first_k_dense_replace": 2, "num_expert_group": 3,
         "linear_conv_kernel_dim": 3},
        "KimiLinearForCausalLM",
    ),
    "zamba2": ("Zamba2", {**_ZAMBA, "num_mem_blocks": 2}, "Zamba2ForCausalLM"),
    "zamba2 adapted": (
        "Zamba2", {**_ZAMBA, "use_shared_attention_adapter": True, "use_mem_rope": True},
        "Zamba2ForCausalLM",
    ),
    "jamba": ("Jamba", _JAMBA, "JambaForCausalLM"),
    "jamba dense": (
        "Jamba",
        {**_JAMBA, "num_experts": 1, "mamba_dt_rank": 7, "mamba_proj_bias": True,
         "mamba_conv_bias": False, "mamba_d_conv": 3, "tie_word_embeddings": True},
        "JambaForCausalLM",
    ),
    "falcon_h1": ("FalconH1", {**_SSM, "mamba_d_ssm": 96}, "FalconH1ForCausalLM"),
    "falcon_h1 normed": (
        "FalconH1",
        {**_SSM, "mamba_d_ssm": 96, "mamba_rms_norm": True, "attention_bias": True,
         "mlp_bias": True, "head_dim": 20, "tie_word_embeddings": True},
        "FalconH1ForCausalLM",
    ),
    "falcon_h1 wide": (
        "FalconH1",
        {**_SSM, "mamba_d_ssm": None, "mamba_d_head": "auto", "mamba_proj_bias": True,
         "projectors_bias": True},
        "FalconH1ForCausalLM",
    ),
    "bamba": ("Bamba", {**_SSM, "attn_layer_indices": [1]}, "BambaForCausalLM"),
    "bamba biases": (
        "Bamba",
        {**_SSM, "attn_layer_indices": [0, 2], "mamba_proj_bias": True, "mamba_conv_bias": False,
         "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
        "BambaForCausalLM",
    ),
    "granitemoehybrid": (
        "GraniteMoeHybrid",
        {**_SSM, "layer_types": ["mamba", "attention", "mamba"], "num_local_experts": 5,
         "num_experts_per_tok": 2, "shared_intermediate_size": 28, "attention_bias": True},
        "GraniteMoeHybridForCausalLM",
    ),
    "granitemoehybrid dense": (
        "GraniteMoeHybrid",
        {**_SSM, "num_local_experts": 0, "shared_intermediate_size": 28,
         "position_embedding_type": "rope", "tie_word_embeddings": True},
        "GraniteMoeHybridForCausalLM",
    ),
    "qwen3_next": ("Qwen3Next", _DELTA, "Qwen3NextForCausalLM"),
    "qwen3_next dense": (
        "Qwen3Next",
        {**_DELTA, "mlp_only_layers": [1], "attention_bias": True,
         "layer_types": ["full_attention", *["linear_attention"] * 3]},
        "Qwen3NextForCausalLM",
    ),
    "qwen3_5_text": (
        "Qwen3_5Text", {**_DELTA, "tie_word_embeddings": True}, "Qwen3_5ForCausalLM",
    ),
    "qwen3_5_moe_text": ("Qwen3_5MoeText", _DELTA, "Qwen3_5MoeForCausalLM"),
    "apertus": ("Apertus", {**_GQA, **_TOKENS}, "ApertusForCausalLM"),
    "cohere": ("Cohere", {**_GQA, **_TOKENS}, "CohereForCausalLM"),
    "cohere2": (
        "Cohere2", {**_GQA, **_TOKENS, "num_hidden_layers": 5, "sliding_window": 8},
        "Cohere2ForCausalLM",
    ),
    "cwm": (
        "Cwm",
        {**_GQA, **_TOKENS, "head_dim": 12, "sliding_window": 8,
         "layer_types": ["full_attention", "sliding_attention", "sliding_attention"]},
        "CwmForCausalLM",
    ),
    "ministral": (
        "Ministral",
        {**_GQA, **_TOKENS, "head_dim": 16, "sliding_window": 8,
         "layer_types": ["full_attention", "sliding_attention", "sliding_attention"]},
        "MinistralForCausalLM",
    ),
    "ministral3": ("Ministral3", {**_GQA, **_TOKENS, "head_dim": 16}, "Ministral3ForCausalLM"),
    "vaultgemma": (
        "VaultGemma", {**_GQA, "head_dim": 16, "sliding_window": 8}, "VaultGemmaForCausalLM",
    ),
    "gpt_bigcode": (
        "GPTBigCode",
        {"vocab_size": 101, "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 64, **_TOKENS},
        "GPTBigCodeForCausalLM",
    ),
    "nanochat": ("NanoChat", _GQA, "NanoChatForCausalLM"),
    "phimoe": (
        "Phimoe",
        {**_GQA, "num_local_experts": 5, "lm_head_bias": True, "attention_bias": True},
        "PhimoeForCausalLM",
    ),
    "granitemoe": (
        "GraniteMoe", {**_GQA, "intermediate_size": 20, "num_local_experts": 5},
        "GraniteMoeForCausalLM",
    ),
    "granitemoeshared": (
        "GraniteMoeShared",
        {**_GQA, "intermediate_size": 20, "num_local_experts": 5, "shared_intermediate_size": 28},
        "GraniteMoeSharedForCausalLM",
    ),
    "hunyuan_v1_moe": (
        "HunYuanMoEV1",
        {**_GQA, "head_dim": 12, "intermediate_size": 20, "num_experts": 5, "moe_topk": [2, 2, 2]},
        "HunYuanMoEV1ForCausalLM",
    ),
    "ernie4_5_moe": (
        "Ernie4_5_Moe",
        {**_GQA, "moe_intermediate_size": 20, "moe_num_experts": 6, "moe_k": 2},
        "Ernie4_5_MoeForCausalLM",
    ),
    "hy_v3": (
        "HYV3",
        {**_GQA, "head_dim": 16, "moe_intermediate_size": 20, "num_experts": 6,
         "num_experts_per_tok": 2},
        "HYV3ForCausalLM",
    ),
    "glm4_moe_lite": (
        "Glm4MoeLite",
        {k: v for k, v in _MLA.items() if k != "first_k_dense_replace"},
        "Glm4MoeLiteForCausalLM",
    ),
    "mistral4": ("Mistral4", _MLA, "Mistral4ForCausalLM"),
    "deepseek_v32": (
        "DeepseekV32",
        {**_MLA, "index_n_heads": 3, "index_head_dim": 16, "index_topk": 8},
        "DeepseekV32ForCausalLM",
    ),
    "glm_moe_dsa": (
        "GlmMoeDsa",
        {**_MLA, "index_n_heads": 3, "index_head_dim": 16, "index_topk": 8,
         "indexer_types": ["full", "shared", "full"]},
        "GlmMoeDsaForCausalLM",
    ),
    "minimax_m3_vl_text": (
        "MiniMaxM3VLText",
        {**_GQA, "head_dim": 16, "rotary_dim": 8, "intermediate_size": 20,
         "dense_intermediate_size": 72, "shared_intermediate_size": 28, "num_local_experts": 5,
         "num_experts_per_tok": 2, "index_n_heads": 2, "index_head_dim": 16, "index_block_size": 4,
         "index_topk_blocks": 2, "mlp_layer_types": ["dense", "sparse", "sparse"],
         "layer_types": ["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"]},
        "MiniMaxM3VLForCausalLM",
    ),
    "mimo_v2_flash": (
        "MiMoV2Flash",
        {**_GQA, "head_dim": 16, "v_head_dim": 12, "num_key_value_heads": 1, "sliding_window": 8,
         "moe_intermediate_size": 20, "n_routed_experts": 6, "num_experts_per_tok": 2},
        "MiMoV2FlashForCausalLM",
    ),
    "lfm2": (
        "Lfm2",
        {**_GQA, "layer_types": ["conv", "full_attention", "conv"], "block_multiple_of": 8},
        "Lfm2ForCausalLM",
    ),
    "lfm3": (
        "Lfm3",
        {**_GQA, **_TOKENS, "num_hidden_layers": 4, "head_dim": 16, "sliding_window": 8,
         "layer_types": ["conv", "full_attention", "conv", "sliding_attention"]},
        "Lfm3ForCausalLM",
    ),
    "bailing_hybrid": (
        "BailingHybrid",
        {**_BASE, **_TOKENS, "num_hidden_layers": 6, "head_dim": 10, "num_experts": 6,
         "num_experts_per_token": 2, "moe_intermediate_size": 20, "kv_lora_rank": 16,
         "qk_rope_head_dim": 8, "qk_nope_head_dim": 12, "v_head_dim": 14, "num_expert_group": 1,
         "topk_group": 1, "num_key_value_heads": 4},
        "BailingHybridForCausalLM",
    ),
    "olmo_hybrid": (
        "OlmoHybrid", {**_BASE, **_TOKENS, "num_hidden_layers": 4}, "OlmoHybridForCausalLM",
    ),
    "lfm2_moe": (
        "Lfm2Moe",
        {**_GQA, "layer_types": ["conv", "full_attention", "conv"], "moe_intermediate_size": 20,
         "num_experts": 5, "num_experts_per_tok": 2, "num_dense_layers": 1},
        "Lfm2MoeForCausalLM",
    ),
    "mamba": (
        "Mamba", {"vocab_size": 101, "hidden_size": 48, "num_hidden_layers": 3, "state_size": 10},
        "MambaForCausalLM",
    ),
    "falcon_mamba": (
        "FalconMamba",
        {"vocab_size": 101, "hidden_size": 48, "num_hidden_layers": 3, "state_size": 10},
        "FalconMambaForCausalLM",
    ),
    "whisper": ("Whisper", _WHISPER, "WhisperForConditionalGeneration"),
    "siglip": (
        "Siglip",
        {"text_config": {**_BASE, "hidden_size": 32, "projection_size": 48},
         "vision_config": {**_VIT, "num_hidden_layers": 2}},
        "SiglipModel",
    ),
    "clip": (
        "CLIP",
        {"text_config": {**_BASE, "hidden_act": "quick_gelu"},
         "vision_config": {**_VIT, "hidden_size": 32}, "projection_dim": 24},
        "CLIPModel",
    ),
}  # fmt: skip


def config_of(case: str, **changes: Any) -> Any:
    """The transformers config of a case."""
    kind, keys, model = CASES[case]
    config = getattr(transformers, f"{kind}Config")(**{**keys, **changes})
    config.architectures = [model]
    return config


def written(config: Any, folder: Path) -> Path:
    """The file that transformers would write of a config."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(config.to_json_string())), encoding="utf-8")
    return path


def model_of(config: Any, device: str = "meta") -> nn.Module:
    """The transformers model, on the meta device without memory."""
    with torch.device(device):
        return getattr(transformers, config.architectures[0])(config)  # type: ignore[no-any-return]


def trained_numels(model: nn.Module) -> list[int]:
    """Numbers of elements of the tensors that are trained, ties once, in order of size.

    LongCat's gate and up have rows for experts that return their input too, which no forward reads
    (LongcatFlashExperts): they are left out.
    """
    unread = getattr(model.config, "zero_expert_num", None) or 0

    def read(name: str, p: Tensor) -> int:
        of_all = unread and name.endswith("experts.gate_up_proj")
        return p[: len(p) - unread].numel() if of_all else p.numel()

    return sorted(read(name, p) for name, p in model.named_parameters() if p.requires_grad)


def trained_numel(model: nn.Module) -> int:
    """Parameters that are trained, ties once."""
    return sum(trained_numels(model))
