"""Types that transformers has no code of: the totals that their makers publish."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simcore.workload.huggingface import read_config
from simcore.workload.models import MODELS

#: (config of the hub's repository, billions of parameters, relative difference allowed)
_PUBLISHED: dict[str, tuple[dict[str, Any], float, float]] = {
    # huggingface.co/inclusionAI/Ling-lite: "16.8 billion parameters"
    "ling-lite": (
        {"model_type": "bailing_moe", "architectures": ["BailingMoeForCausalLM"],
         "hidden_size": 2048, "num_hidden_layers": 28, "num_attention_heads": 16,
         "num_key_value_heads": 4, "intermediate_size": 5632, "moe_intermediate_size": 1408,
         "num_experts": 64, "num_experts_per_tok": 6, "num_shared_experts": 2,
         "vocab_size": 126464, "first_k_dense_replace": 0, "use_bias": False,
         "use_qkv_bias": False, "hidden_act": "silu", "tie_word_embeddings": False},
        16.8, 0.002,
    ),
    # huggingface.co/inclusionAI/Ling-mini-2.0: 16.26 billion parameters of its files
    "ling-mini-2.0": (
        {"model_type": "bailing_moe", "architectures": ["BailingMoeV2ForCausalLM"],
         "hidden_size": 2048, "num_hidden_layers": 20, "num_attention_heads": 16,
         "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 5120,
         "moe_intermediate_size": 512, "num_experts": 256, "num_experts_per_tok": 8,
         "num_shared_experts": 1, "vocab_size": 157184, "first_k_dense_replace": 1,
         "n_group": 8, "topk_group": 4, "use_bias": False, "use_qkv_bias": False,
         "use_qk_norm": True, "partial_rotary_factor": 0.5, "hidden_act": "silu",
         "tie_word_embeddings": False},
        16.26, 0.001,
    ),
    # huggingface.co/inclusionAI/Ling-flash-2.0: "100B total"; 103 billion of its files
    "ling-flash-2.0": (
        {"model_type": "bailing_moe", "architectures": ["BailingMoeV2ForCausalLM"],
         "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 9216,
         "moe_intermediate_size": 1024, "num_experts": 256, "num_experts_per_tok": 8,
         "num_shared_experts": 1, "vocab_size": 157184, "first_k_dense_replace": 1,
         "n_group": 8, "topk_group": 4, "use_bias": False, "use_qkv_bias": False,
         "use_qk_norm": True, "partial_rotary_factor": 0.5, "hidden_act": "silu",
         "tie_word_embeddings": False},
        103, 0.005,
    ),
    # Step-3 (arXiv 2507.19427): "316B" of the language model, 321 with its vision encoder
    "step-3": (
        {"model_type": "step3_vl", "architectures": ["Step3VLForConditionalGeneration"],
         "text_config": {
             "model_type": "step3_text", "hidden_size": 7168, "intermediate_size": 18432,
             "num_attention_heads": 64, "num_attention_groups": 1, "num_hidden_layers": 61,
             "vocab_size": 128815, "head_dim": 256, "share_q_dim": 2048, "moe_num_experts": 48,
             "moe_top_k": 3, "moe_intermediate_size": 5120, "share_expert_dim": 5120,
             "moe_layers_enum": ",".join(map(str, range(4, 60))), "hidden_act": "silu"}},
        316, 0.005,
    ),
    # MiMo (arXiv 2505.07608), without the layer that predicts a second token
    "mimo-7b": (
        {"model_type": "mimo", "architectures": ["MiMoForCausalLM"], "hidden_size": 4096,
         "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
         "intermediate_size": 11008, "head_dim": 128, "vocab_size": 151680,
         "attention_bias": True, "hidden_act": "silu", "max_position_embeddings": 32768,
         "num_nextn_predict_layers": 1, "tie_word_embeddings": False},
        7.62, 0.002,
    ),
}  # fmt: skip


def _read(config: dict[str, Any], folder: Path) -> Any:
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return read_config(path)


@pytest.mark.parametrize("name", _PUBLISHED)
def test_the_total_is_the_published_one(name: str, tmp_path: Path) -> None:
    config, billions, share = _PUBLISHED[name]
    assert _read(config, tmp_path).params.value / 1e9 == pytest.approx(billions, rel=share)


@pytest.mark.parametrize("name", _PUBLISHED)
def test_models_db_has_the_same_model(name: str, tmp_path: Path) -> None:
    read, record = _read(_PUBLISHED[name][0], tmp_path), MODELS[name]
    ours = record.build(seq_len=512)
    assert ours.trainable_numel == read.params.value
    assert ours.forward_flop == read.build(seq_len=512).forward_flop


def test_chosen_layers_count_as_they_are_written(tmp_path: Path) -> None:
    """DeciLM's layers, counted by hand: 64 wide, 8 heads of 8, an FFN of 2/3 of 4 times, by 32."""
    layers = [
        {"attention": {"n_heads_in_group": 2, "no_op": False, "replace_with_linear": False},
         "ffn": {"ffn_mult": 1.5, "no_op": False, "replace_with_linear": False}},
        {"attention": {"n_heads_in_group": None, "no_op": True, "replace_with_linear": False},
         "ffn": {"ffn_mult": 0.5, "no_op": False, "replace_with_linear": False}},
        {"attention": {"n_heads_in_group": 2, "no_op": False, "replace_with_linear": False},
         "ffn": {"ffn_mult": None, "no_op": True, "replace_with_linear": False}},
    ]  # fmt: skip
    config = {
        "model_type": "nemotron-nas", "architectures": ["DeciLMForCausalLM"], "hidden_size": 64,
        "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": None,
        "vocab_size": 101, "hidden_act": "silu", "block_configs": layers,
        "tie_word_embeddings": False, "max_position_embeddings": 64,
    }  # fmt: skip
    attention = 64 * 64 * 2 + 2 * 64 * 32 + 64
    # widths: int(2 * mult * hidden / 3), rounded up to 256
    fed = 3 * 64 * 256 + 64
    assert _read(config, tmp_path).params.value == 2 * attention + 2 * fed + 2 * 101 * 64 + 64
