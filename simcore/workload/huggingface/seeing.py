"""The language models of multimodal models, without their vision and audio encoders.

mistral3, llava and internvl contain any supported language model; qwen2_vl, qwen2_5_vl, qwen3_vl
and qwen3_vl_moe contain one of Qwen's.
"""

from __future__ import annotations

from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, FILES, Translated, adapter

#: Type of the language model -> supported type, which differs only in its positions (one axis
#: instead of three).
_INSIDE = {
    "qwen2_vl": "qwen2", "qwen2_vl_text": "qwen2", "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2", "qwen3_vl": "qwen3", "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe": "qwen3_moe", "qwen3_vl_moe_text": "qwen3_moe",
}  # fmt: skip
_LEFT_OUT = "the language model only: vision and audio encoders are left out"


@ADAPTERS.register("mistral3")
@ADAPTERS.register("llava")
@ADAPTERS.register("llava_next")
@ADAPTERS.register("llava_onevision")
@ADAPTERS.register("internvl")
@ADAPTERS.register("internvl_chat")
@ADAPTERS.register("qwen2_vl")
@ADAPTERS.register("qwen2_5_vl")
@ADAPTERS.register("qwen3_vl")
@ADAPTERS.register("qwen3_vl_moe")
def language_model(f: Fields) -> Translated:
    """The language model that ``text_config`` or ``llm_config`` describes.

    Qwen's first files have its keys at the top level. ``tie_word_embeddings`` of the top level
    takes precedence.
    """
    key = next((k for k in ("text_config", "llm_config") if f.has(k)), "")
    inside = f.inside(key) if key else f
    named = inside.data.get("model_type") or (f.data["model_type"] if not key else "llama")
    kind = _INSIDE.get(named, named)
    if kind not in FILES or adapter(kind) is language_model:
        raise inside.error("model_type", f"{named!r:.60} is not supported as the language model")
    data = dict(inside.data)
    if f.has("tie_word_embeddings"):
        data["tie_word_embeddings"] = f.data["tie_word_embeddings"]
    base = adapter(kind)(Fields(data, f.path, f.text, inside.prefix))
    return Translated(
        arch=base.arch, sample_unit=base.sample_unit, config=base.config,
        positions=base.positions, notes=(*base.notes, _LEFT_OUT),
    )  # fmt: skip
