"""Model records from ``config.json`` files. Nothing is imported, fetched or executed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from simcore.base.errors import DataError, InvalidConfig, nearest
from simcore.base.figures import Figure
from simcore.base.names import all_printable, printable
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.records import class_names, model_types, shared
from simcore.workload.huggingface.translate import (
    VISION,
    Translated,
    encoder_of,
    sees,
    translated,
)
from simcore.workload.models import FrozenRecord, ModelRecord, Training

#: The largest accepted file. A config has a few kilobytes; a file of megabytes holds weights or a
#: tokenizer.
MAX_FILE_BYTES = 4_000_000
#: The longest default sequence, because models with 128 k positions are rarely trained at that
#: length.
DEFAULT_SEQ_LEN = 4096
#: The least similarity of a misspelt type and a supported one that is offered instead; mamba and
#: llama, for example, share half of their letters.
_SLIP_FRAC = 0.75
#: What a network that no record describes can still be.
_TRACING = "--model package.module:function with --input traces the module itself"
#: What an encoder of images is called.
_ENCODER = "vision encoder"


def read_config(path: Path) -> ModelRecord:
    """The record of the model that a Hugging Face ``config.json`` describes. Raises DataError.

    The record's ``training.source`` states its training defaults, which the user can override.
    """
    try:
        changed_ns = path.stat().st_mtime_ns
    except OSError as err:
        raise DataError(f"cannot be read: {err.strerror}", file=path) from None
    return _read(path.absolute(), path, changed_ns)


@lru_cache(maxsize=64)
def _read(_absolute: Path, path: Path, _changed_ns: int) -> ModelRecord:
    """The record of a file; the arguments beside ``path`` are part of the cache's key."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise DataError("is too large for a model config", file=path)
        text = path.read_text(encoding="utf-8-sig")
    except OSError as err:
        raise DataError(f"cannot be read: {err.strerror}", file=path) from None
    except UnicodeDecodeError:
        raise DataError("is not text in UTF-8", file=path) from None
    return parse_config(text, path)


def parse_config(text: str, path: Path) -> ModelRecord:
    """The record of the model that the text of a ``config.json`` describes. Raises DataError.

    ``path``: the file that errors name and from which the model takes its name; it is not read.
    """
    data = _parsed(text, path)
    fields = Fields(data, path, text)
    kind = _model_type(fields)
    translation = translated(kind, fields)
    config, note = dict(translation.config), ""
    if translation.max_tokens:
        config["seq_len"] = min(translation.max_tokens, DEFAULT_SEQ_LEN)
        if translation.max_tokens > DEFAULT_SEQ_LEN:
            note = (
                f"sequences of {DEFAULT_SEQ_LEN} tokens, although the model allows "
                f"{translation.max_tokens}: --seq-len changes it"
            )
    return _record(path, kind, data, translation, config, note)


def _parsed(text: str, path: Path) -> dict[str, Any]:
    """The JSON object in ``text``. Raises DataError.

    Python's ``json`` writes ``Infinity`` and ``NaN`` (``time_step_limit`` of Mamba-2 configs); they
    are read as numbers, which no setting accepts.
    """
    if not text.strip():
        raise DataError("is empty", file=path)
    try:
        data = json.loads(text)
    except json.JSONDecodeError as err:
        raise DataError(f"not valid JSON: {err.msg}", file=path, line=err.lineno) from None
    except RecursionError:
        raise DataError("not valid JSON: nested too deeply", file=path) from None
    except ValueError as err:  # An integer of thousands of digits.
        raise DataError(f"not valid JSON: {str(err).split(';')[0]}", file=path) from None
    if not isinstance(data, dict):
        raise DataError("must be an object of keys and values", file=path, line=1)
    return all_printable(data)


def _model_type(fields: Fields) -> str:
    """The config's ``model_type``, or the class of diffusers that it names. Raises DataError."""
    kind = fields.data.get("model_type")
    if kind is None and "_class_name" in fields.data:
        return fields.word("_class_name", default="", among={name: name for name in class_names()})
    if kind is None:
        raise fields.error("model_type", "key is missing: is this a Hugging Face config?")
    if not isinstance(kind, str):
        raise fields.error("model_type", "must be a word")
    if kind not in model_types():
        raise fields.error("model_type", f"{kind!r:.60} is not supported{_instead(kind)}")
    return kind


def _instead(kind: str) -> str:
    """The hint for a type that is not supported.

    Programs write configs, so another name is rarely a misspelling, and a related name (gemma3n,
    gemma3) is another network.
    """
    plain = kind.lower().replace("-", "_").replace(" ", "_")
    if plain in model_types():
        return f": did you mean {plain!r}?"
    if missing := shared()["missing"].get(plain):
        return f": nothing here describes {missing}; {_TRACING}"
    near = nearest(kind, list(model_types()), 1, alike_frac=_SLIP_FRAC)
    other = f" (nearest supported: {near[0]!r}, a different network)" if near else ""
    return f"{other}: `simcore list configs` has the supported ones; {_TRACING}"


def _full_name(path: Path, kind: str, data: dict[str, Any]) -> tuple[str, str]:
    """Name and full name of the model, from ``_name_or_path``, else from the file's path."""
    given = data.get("_name_or_path")
    if isinstance(given, str) and given.strip() and len(given) < 100 and "\n" not in given:
        short = given.rstrip("/").rsplit("/", 1)[-1]
        return short or kind, f"{given} ({kind})"
    stem = printable(path.parent.name if path.name == "config.json" else path.stem)
    stem = stem or kind
    return stem, stem if stem == kind else f"{stem} ({kind})"


def with_encoder(record: ModelRecord, vision: Mapping[str, Any]) -> ModelRecord:
    """A language model with the frozen encoder of images that a ``vision_config`` describes.

    One image a sample runs through it unless the job says otherwise. Raises DataError.
    """
    path = Path(f"{record.name}: {VISION}")
    fields = Fields({VISION: vision}, path, "")
    encoder = encoder_of(str(vision.get("model_type", "")), fields, record.config["hidden"], 1)
    update = {"frozen": _frozen(encoder), "notes": (*record.notes, sees(encoder))}
    return record.model_copy(update=update)


def _frozen(encoder: Translated | None) -> tuple[FrozenRecord, ...]:
    if encoder is None:
        return ()
    counted = Figure(value=0.0, source="config", note="follows from the settings")
    return (FrozenRecord(name=_ENCODER, arch=encoder.arch, config=encoder.config, params=counted),)


def _record(
    path: Path, kind: str, data: dict[str, Any], translation: Translated,
    config: dict[str, int | float | bool | str], length_note: str,
) -> ModelRecord:  # fmt: skip
    name, full_name = _full_name(path, kind, data)
    record = ModelRecord(
        name=name,
        full_name=full_name,
        arch=translation.arch,
        sample_unit=translation.sample_unit,
        config=config,
        params=Figure(value=0.0, source="config"),
        training=Training(
            micro_batch=1,
            precision="bf16",
            optimizer="adamw",
            strategy="ddp",
            waits_for_gradients=False,
            source=(
                "defaults for a config that does not say how it is trained: pure bf16 with fp32 "
                "masters (16 bytes a parameter), AdamW, DDP, one sample at a time, no recompute"
            ),
        ),
        modules_of="config",
        frozen=_frozen(translation.encoder),
        notes=translation.notes,
        length_note=length_note,
        sources={"config": str(path)},
    )
    try:
        workload = record.build()
    except InvalidConfig as err:
        raise DataError(str(err), file=path) from None
    counted = Figure(value=float(workload.trainable_numel), source="config")
    return record.model_copy(update={"params": counted})
