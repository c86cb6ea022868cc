"""The settings of a model from the keys of its config, by the record of its type."""

from __future__ import annotations

from dataclasses import replace

from simcore.base.record import dataclass
from simcore.workload.huggingface import forms, layers, odd  # noqa: F401 (register expressions)
from simcore.workload.huggingface.expressions import Translation
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.records import (
    TypeRecord,
    model_types,
    record_names,
    shared,
    type_record,
)

Setting = int | float | bool | str


@dataclass(frozen=True, kw_only=True)
class Translated:
    """A translated config: an architecture, its settings, and notes on what is assumed.

    ``max_tokens``: the largest number of tokens in a sample; 0 if there is no limit. ``encoder``:
    the frozen encoder of images whose outputs are among the tokens.
    """

    arch: str
    sample_unit: str
    config: dict[str, Setting]
    max_tokens: int = 0
    notes: tuple[str, ...] = ()
    encoder: Translated | None = None


#: Name of the value that bounds a sample.
_MAX_TOKENS = "max_tokens"
#: Keys of a config that count for the language model inside, too.
_OUTER = ("tie_word_embeddings",)
#: The object that describes an encoder of images.
VISION = "vision_config"
#: The type of an encoder that the object itself states.
_STATED = "stated"
#: The key for the language model's width, which records of encoders read.
_WIDTH = "language_hidden"


def translated(kind: str, fields: Fields) -> Translated:
    """The translation of a config of type ``kind``. Raises DataError."""
    record = type_record(kind)
    if record.language_model:
        return _language_model(record, fields)
    translation = Translation(record, fields)
    config: dict[str, Setting] = {}
    notes: list[str] = []
    for rules in translation.applying():
        for requirement in rules.requires:
            translation.check(requirement)
        found = {key: translation.named(key) for key in rules.settings}
        config |= {key: value for key, value in found.items() if value is not None}
        notes += [text for text in map(translation.value, rules.notes) if text is not None]
    return Translated(
        arch=record.arch,
        sample_unit=record.sample_unit,
        config=config,
        max_tokens=translation.named(_MAX_TOKENS) if _MAX_TOKENS in record.values else 0,
        notes=tuple(translation.filled(text) for text in notes),
    )


def _language_model(record: TypeRecord, fields: Fields) -> Translated:
    """The language model that a config of several networks describes. Raises DataError."""
    key = next((k for k in record.language_model if fields.has(k)), "")
    inside = fields.inside(key) if key else fields
    kind = record.type or inside.value("model_type") or "llama"
    if kind not in model_types() or type_record(kind).language_model:
        raise inside.error("model_type", f"{kind!r:.60} is not supported as the language model")
    outer = {k: v for k in _OUTER if (v := fields.value(k)) is not None}
    whole = Fields({**inside.data, **outer}, fields.path, fields.text, inside.prefix)
    base = translated(kind, whole)
    seen = fields.value(VISION)
    encoder = None
    if record.tower and isinstance(seen, dict):
        kind = str(seen.get("model_type", "")) if record.tower == _STATED else record.tower
        encoder = encoder_of(kind, fields, base.config["hidden"], record.images)
    return replace(base, notes=(*base.notes, sees(encoder)), encoder=encoder)


def encoder_of(kind: str, fields: Fields, hidden: Setting, images: int) -> Translated | None:
    """The frozen encoder of images of a type; None where no record describes it.

    ``fields``: the whole config; ``hidden``: width of the language model; ``images``: how many run
    through the encoder in a sample unless the job says.
    """
    name = f"_tower.{kind}"
    if name not in record_names():
        return None
    found = translated(name, Fields({**fields.data, _WIDTH: hidden}, fields.path, fields.text))
    return replace(found, config={**found.config, "images": images})


def sees(encoder: Translated | None) -> str:
    """What is assumed of a model's encoder of images."""
    sentences = shared()["sentences"]
    if encoder is None:
        return str(sentences["seeing"])
    return str(sentences["sees" if encoder.config["images"] else "holds"]).format(**encoder.config)
