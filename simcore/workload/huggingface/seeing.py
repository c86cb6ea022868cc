"""Models that also see or hear, as far as their language model: mistral3, llava and internvl around
any that is known, qwen2_vl, qwen2_5_vl, qwen3_vl and qwen3_vl_moe around Qwen's."""

from __future__ import annotations

from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, FILES, Translated, adapter

#: Types of the language models inside, and those that they are but for positions in three axes.
_INSIDE = {
    "qwen2_vl": "qwen2", "qwen2_vl_text": "qwen2", "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2", "qwen3_vl": "qwen3", "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe": "qwen3_moe", "qwen3_vl_moe_text": "qwen3_moe",
}  # fmt: skip
_LEFT_OUT = "the language model only: what sees is left out"


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
    """What ``text_config`` or ``llm_config`` describes; Qwen's first files have it among the rest.

    Whose table the head is counts as the whole model's file says it.
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
    told = adapter(kind)(Fields(data, f.path, f.text, inside.prefix))
    return Translated(
        arch=told.arch, sample_unit=told.sample_unit, config=told.config,
        positions=told.positions, notes=(*told.notes, _LEFT_OUT),
    )  # fmt: skip
