"""Models that also see: the language model inside them, against transformers on the meta device."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from huggingface import cases
from torch.utils.flop_counter import FlopCounterMode

from simcore.base.errors import DataError
from simcore.workload.huggingface import read_config
from simcore.workload.settings import with_settings

_TEXT: dict[str, Any] = {
    "vocab_size": 101, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 72, "max_position_embeddings": 64,
}  # fmt: skip
_EXPERTS = {"moe_intermediate_size": 20, "num_experts": 5, "num_experts_per_tok": 2}
_LATENT = {
    **_TEXT, "num_key_value_heads": 4, "moe_intermediate_size": 20, "n_routed_experts": 6,
    "q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12,
    "v_head_dim": 14, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2,
}  # fmt: skip
#: (class without Config or ForConditionalGeneration, its language model)
_SEEING = {
    "mistral3": ("Mistral3", {**_TEXT, "model_type": "mistral", "head_dim": 16}),
    "llava": ("Llava", {**_TEXT, "model_type": "llama"}),
    "llava_next": ("LlavaNext", {**_TEXT, "model_type": "mistral"}),
    "llava_onevision": ("LlavaOnevision", {**_TEXT, "model_type": "qwen2"}),
    "internvl": ("InternVL", {**_TEXT, "model_type": "qwen3", "head_dim": 16}),
    "qwen2_vl": ("Qwen2VL", _TEXT),
    "qwen2_5_vl": ("Qwen2_5_VL", _TEXT),
    "qwen3_vl": ("Qwen3VL", {**_TEXT, "head_dim": 16}),
    "qwen3_vl_moe": ("Qwen3VLMoe", {**_TEXT, **_EXPERTS, "head_dim": 16}),
    "kimi_k25": ("Kimi_K25", {**_LATENT, "model_type": "deepseek_v3"}),
    "minimax_m3_vl": (
        "MiniMaxM3VL",
        {**_TEXT, "num_local_experts": 5, "head_dim": 16, "rotary_dim": 8},
    ),
    "step3p7": (
        "Step3p7",
        {
            **_TEXT,
            "n_routed_experts": 5,
            "num_experts_per_tok": 2,
            "head_dim": 12,
            "sliding_window": 8,
            "num_sliding_attention_heads": 6,
            "moe_layers_enum": "1,2",
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        },
    ),
    "glm4v": ("Glm4v", {**_TEXT, "attention_bias": True}),
    "glm4v_moe": ("Glm4vMoe", {**_TEXT, **_EXPERTS, "n_routed_experts": 5}),
    "cohere2_vision": ("Cohere2Vision", {**_TEXT, "model_type": "cohere2"}),
    "idefics3": ("Idefics3", {**_TEXT, "model_type": "llama"}),
    "smolvlm": ("SmolVLM", {**_TEXT, "model_type": "llama"}),
    "paligemma": ("PaliGemma", {**_TEXT, "model_type": "gemma"}),
    "lfm2_vl": ("Lfm2Vl", {**_TEXT, "model_type": "lfm2"}),
    "llava_next_video": ("LlavaNextVideo", {**_TEXT, "model_type": "llama"}),
    "video_llava": ("VideoLlava", {**_TEXT, "model_type": "llama"}),
    "vipllava": ("VipLlava", {**_TEXT, "model_type": "llama"}),
}


def _spoken_numel(kind: str) -> tuple[dict[str, Any], int]:
    """A small model's config as transformers writes it, and the parameters that speak."""
    name, text = _SEEING[kind]
    config = getattr(transformers, f"{name}Config")(text_config=text, tie_word_embeddings=False)
    code = {"MiniMaxM3VL": "MiniMaxM3Sparse"}.get(name, name)
    with torch.device("meta"):
        model = getattr(transformers, f"{code}ForConditionalGeneration")(config)
    inside = getattr(model.model, "language_model", None) or model.model.text_model
    told = {id(p): p.numel() for m in (inside, model.lm_head)
            for p in m.parameters()}  # fmt: skip
    return json.loads(config.to_json_string()), sum(told.values())


@pytest.mark.parametrize("kind", _SEEING)
def test_the_language_model_is_the_one_inside(kind: str, tmp_path: Path) -> None:
    data, numel = _spoken_numel(kind)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    record = read_config(path)
    assert record.params.value == numel
    left_out = "the language model only: the vision encoder is left out" in record.notes
    assert left_out is (kind not in _TOWERS) is (not record.frozen)


#: Kinds whose encoder of images is described, and how far its parameters may be off: Pixtral's
#: patches are merged by a narrower product, PaliGemma's projector is one product without a norm.
_TOWERS = {
    "gemma3": 0.1, "mistral3": 0.01, "llava": 1e-3, "llava_next": 1e-3, "llava_onevision": 1e-3,
    "internvl": 1e-3, "qwen2_vl": 1e-3, "qwen2_5_vl": 1e-3, "qwen3_vl": 1e-3, "qwen3_vl_moe": 1e-3,
    "paligemma": 0.01, "llava_next_video": 1e-3, "vipllava": 1e-3,
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(_TOWERS.keys() & _SEEING.keys()))
def test_the_encoder_of_images_holds_what_transformers_has(kind: str, tmp_path: Path) -> None:
    """Parameters of everything but the language model, counted on the meta device."""
    name, text = _SEEING[kind]
    config = getattr(transformers, f"{name}Config")(text_config=text)
    with torch.device("meta"):
        model = getattr(transformers, f"{name}ForConditionalGeneration")(config).model
    inside = ("language_model", "text_model")
    seen = sum(p.numel() for n, m in model.named_children() if n not in inside
               for p in m.parameters())  # fmt: skip
    (tower,) = read_config(cases.written(config, tmp_path)).build().frozen
    assert math.isclose(tower.resident_numel, seen, rel_tol=_TOWERS[kind])


def _flop(run: Callable[[], object]) -> float:
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def test_the_flop_of_clips_tower_and_projector(tmp_path: Path) -> None:
    """Those that torch counts for one image of 4 x 4 patches and a class token."""
    vision = {"model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 96,
              "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 56,
              "patch_size": 14}  # fmt: skip
    text = {**_TEXT, "model_type": "llama"}
    config = transformers.LlavaConfig(text_config=text, vision_config=vision)
    model = transformers.LlavaForConditionalGeneration(config).model
    model.vision_tower.set_attn_implementation("eager")
    pixels = torch.zeros(1, 3, 56, 56)
    told = _flop(lambda: model.get_image_features(pixel_values=pixels, vision_feature_layer=-2))
    ours = read_config(cases.written(config, tmp_path)).build()
    assert math.isclose(ours.frozen_flop, told, rel_tol=0.02), "the class token is not projected"


def test_the_flop_of_qwens_tower_with_windows(tmp_path: Path) -> None:
    """One image of 16 x 16 patches in windows of 8 x 8, one layer of four without windows."""
    vision = {"depth": 4, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2,
              "out_hidden_size": 48, "fullatt_block_indexes": [3]}  # fmt: skip
    config = transformers.Qwen2_5_VLConfig(text_config=_TEXT, vision_config=vision)
    tower = transformers.Qwen2_5_VLForConditionalGeneration(config).model.visual
    tower.set_attn_implementation("eager")
    patches = torch.zeros(256, 3 * 2 * 14 * 14)
    told = _flop(lambda: tower(patches, grid_thw=torch.tensor([[1, 16, 16]])))
    record = with_settings(read_config(cases.written(config, tmp_path)), {"image": 224})
    assert math.isclose(record.build().frozen_flop, told, rel_tol=1e-6)
    two = with_settings(record, {"images": 2}).build()
    none = with_settings(record, {"images": 0}).build()
    assert math.isclose(two.frozen_flop, 2 * told, rel_tol=1e-6) and none.frozen_flop == 0
    assert none.frozen[0].resident_numel == two.frozen[0].resident_numel


@pytest.mark.parametrize("kind", ["qwen2_vl", "qwen2_5_vl"])
def test_qwens_first_files_have_it_among_the_rest(kind: str, tmp_path: Path) -> None:
    _, numel = _spoken_numel(kind)
    path = tmp_path / "config.json"
    flat = {**_TEXT, "model_type": kind, "tie_word_embeddings": False, "vision_config": {}}
    path.write_text(json.dumps(flat), encoding="utf-8")
    assert read_config(path).params.value == numel


def test_internvls_own_file_names_it_otherwise(tmp_path: Path) -> None:
    inside = {**_TEXT, "model_type": "qwen2"}
    plain = cases.written(transformers.Qwen2Config(**_TEXT), tmp_path)
    numel = read_config(plain).params.value
    path = tmp_path / "chat.json"
    path.write_text(json.dumps({"model_type": "internvl_chat", "llm_config": inside}), "utf-8")
    assert read_config(path).params.value == numel


@pytest.mark.parametrize("inside", ["moonshine", "llava", "zzz"])
def test_an_unknown_language_model_is_named(inside: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    data = {"model_type": "mistral3", "text_config": {**_TEXT, "model_type": inside}}
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(DataError, match=f"text_config.model_type: '{inside}' is not supported as"):
        read_config(path)
