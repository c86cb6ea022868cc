"""The translators of configs, by ``model_type``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module

from simcore.base.registry import Registry
from simcore.workload.huggingface.fields import Fields

Setting = int | float | bool | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """A translated config: an architecture, its settings, and notes on what is assumed.

    ``positions``: the largest number of tokens in a sample; 0 if there is no limit.
    """

    arch: str
    sample_unit: str
    config: dict[str, Setting]
    positions: int = 0
    notes: tuple[str, ...] = field(default=())


#: model_type -> function that translates a config's fields.
ADAPTERS: Registry[Callable[[Fields], Translated]] = Registry("model_type")

#: model_type -> module of this package that translates it. The map is explicit so that reading a
#: config imports only one file and scans no folder.
FILES = {
    "llama": "llama", "mistral": "llama", "mixtral": "mixtral",
    "qwen": "qwen", "qwen2": "qwen", "qwen3": "qwen", "qwen2_moe": "qwen_moe",
    "qwen3_moe": "qwen_moe",
    "gemma": "gemma", "gemma2": "gemma", "gemma3": "gemma", "gemma3_text": "gemma",
    "phi3": "phi", "gpt2": "gpt2", "gpt_neox": "gpt_neox", "opt": "opt", "bloom": "bloom",
    "falcon": "falcon", "bert": "bert", "roberta": "bert", "t5": "t5", "vit": "vit",
    "deepseek_v2": "deepseek", "deepseek_v3": "deepseek", "gpt_oss": "gpt_oss",
    "kimi_k2": "deepseek", "whisper": "whisper", "clip": "clip", "siglip": "siglip",
    "nemotron": "nemotron",
    "phi": "phi", "gptj": "gptj", "mpt": "mosaic", "dbrx": "mosaic", "llama4": "llama4",
    "llama4_text": "llama4", "switch_transformers": "switch", "olmo": "olmo", "olmo2": "olmo",
    "olmo3": "olmo", "olmoe": "olmo", "granite": "kin", "smollm3": "kin", "glm": "kin",
    "stablelm": "kin", "starcoder2": "kin", "internlm2": "kin", "baichuan": "kin",
    "chatglm": "kin", "gpt_neo": "gpt_neo", "xlm-roberta": "bert", "camembert": "bert",
    "distilbert": "bert", "mt5": "t5", "modernbert": "modernbert",
    "deberta-v2": "deberta", "bart": "bart", "mbart": "bart",
    "wav2vec2": "wav2vec2", "hubert": "wav2vec2", "albert": "albert",
    "mamba2": "mamba", "nemotron_h": "mamba",
    "glm4_moe": "glm_moe", "minimax_m2": "minimax", "minimax": "minimax",
    "minimax_text_01": "minimax", "minimax_m1": "minimax", "jamba": "jamba", "zamba2": "zamba",
    "kimi_linear": "kimi_linear",
    "falcon_h1": "hybrid", "bamba": "hybrid", "granitemoehybrid": "hybrid",
    "qwen3_next": "qwen_delta", "qwen3_5": "qwen_delta", "qwen3_5_text": "qwen_delta",
    "qwen3_5_moe": "qwen_delta", "qwen3_5_moe_text": "qwen_delta",
    **dict.fromkeys(
        ("seed_oss", "ernie4_5", "hunyuan_v1_dense", "glm4", "exaone4", "arcee", "dots1"),
        "kin_2025",
    ),
    **dict.fromkeys(
        ("mistral3", "llava", "llava_next", "llava_onevision", "internvl", "internvl_chat",
         "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"),
        "seeing",
    ),
}  # fmt: skip
#: The same for configs of diffusers, by their ``_class_name``.
CLASSES = dict.fromkeys(
    ("FluxTransformer2DModel", "SD3Transformer2DModel", "WanTransformer3DModel"), "flow"
) | dict.fromkeys(
    (
        "UNet2DConditionModel", "CogVideoXTransformer3DModel", "HunyuanVideoTransformer3DModel",
    ),
    "latents",
)  # fmt: skip


def model_types() -> tuple[str, ...]:
    """Every supported model_type."""
    return tuple(FILES)


def adapter(model_type: str) -> Callable[[Fields], Translated]:
    """The translator of a supported ``model_type`` or class of diffusers."""
    import_module(f"{__package__}.{(FILES | CLASSES)[model_type]}")
    return ADAPTERS[model_type]
