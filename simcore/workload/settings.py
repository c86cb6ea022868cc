"""A model's settings as words of a job: ``--set layers=16``, and models of free dimensions.

A setting is a key of ``config`` in ``models_db``: an argument of the architecture's builder.
``arch:NAME`` is a model of which nothing is given but its architecture.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeVar, cast

from simcore.base.errors import InvalidConfig, UnknownName, UsageError, nearest
from simcore.base.figures import Figure
from simcore.base.units import parse_quantity
from simcore.workload.archs import ARCHS, FILES, FROZEN_ARCHS, kind_of, load
from simcore.workload.models import ModelRecord, Scalar, Training, setting_kinds
from simcore.workload.record_settings import (
    RELEASE,
    SECONDS,
    record_kinds,
    record_update,
    with_release,
)
from simcore.workload.releases import version_of

#: A model, wherever it comes from (``resolve.ModelSource``).
Source = TypeVar("Source")
#: What names a model by its architecture alone.
PREFIX = "arch:"
#: The architecture of a traced network, whose shapes no setting changes.
_TRACED = "traced"
#: What one sample is, by kind of architecture; ``image`` of any other.
_SAMPLES = {"language": "sequence", "text": "sequence", "speech": "clip", "recommender": "pair"}
_CLIPS = ("latte", "stdit", "mmdit_video", "wan", "cogvideox")
#: Settings that a full name lists before it says how many more there are.
_SHOWN = 3
_TRUE, _FALSE = ("true", "on", "yes"), ("false", "off", "no")


def settings_given(given: object) -> dict[str, Scalar]:
    """The settings of a call: a mapping, or texts of ``key=value`` words parted by blanks.

    Values of texts stay text until a model says what they are. Raises InvalidConfig.
    """
    if not given:
        return {}
    if isinstance(given, Mapping):
        return {str(k).replace("-", "_"): cast("Scalar", v) for k, v in given.items()}
    texts = [given] if isinstance(given, str) else list(cast("Iterable[str]", given))
    found: dict[str, Scalar] = {}
    for word in (word for text in texts for word in str(text).split()):
        key, sign, value = word.partition("=")
        key = key.strip().replace("-", "_")
        if not sign or not key:
            raise InvalidConfig([f"--set {word!r} is not KEY=VALUE, such as layers=16"])
        if key in found:
            raise InvalidConfig([f"--set gives {key} twice"])
        found[key] = value.strip()
    return found


def as_words(settings: Mapping[str, Scalar]) -> tuple[str, ...]:
    """Settings as ``key=value`` texts, each of which reads back as it was."""
    return tuple(f"{key}={_text(value)}" for key, value in settings.items())


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def settable_archs() -> tuple[str, ...]:
    """Names that may follow ``arch:``."""
    return tuple(name for name in FILES if _settable(name))


def _settable(name: str) -> bool:
    if name == _TRACED or name not in FILES:
        return False
    load(name)
    return name in ARCHS and name not in FROZEN_ARCHS


def arch_record(text: str) -> ModelRecord:
    """The record that ``arch:NAME`` stands for, without settings. Raises UnknownName."""
    name = text.removeprefix(PREFIX).strip().lower().replace("-", "_")
    if not _settable(name):
        raise UnknownName("architecture", name, list(settable_archs()))
    return _arch_record(name)


@lru_cache(maxsize=64)
def _arch_record(arch: str) -> ModelRecord:
    """One record an architecture: caches know records by identity."""
    unit = "video" if arch in _CLIPS else _SAMPLES.get(kind_of(arch), "image")
    return ModelRecord(
        name=PREFIX + arch,
        full_name=arch,
        arch=arch,
        sample_unit=unit,
        config={},
        params=Figure(value=0.0, source="settings", note="follows from the settings"),
        training=Training(
            micro_batch=1, precision="fp32", optimizer="adamw",
            source="what no option says is PyTorch's default",
        ),
        sources={"settings": "settings of the job"},
    )  # fmt: skip


def with_settings(source: Source, given: object) -> Source:
    """The model with the settings of a call in the place of its own; one of ``arch:`` needs them.

    Raises InvalidConfig for a setting that its architecture does not have or that is of a wrong
    kind, UsageError for a model that has none.
    """
    settings = settings_given(given)
    name: str = getattr(source, "name", "")
    if name.startswith(PREFIX):
        _check_complete(name, settings)
    if not settings:
        return source
    if not isinstance(source, ModelRecord) or source.arch == _TRACED:
        raise UsageError(
            f"{name} is a traced network, which has no settings to change: change its code, "
            "or name an entry of models_db or arch:NAME"
        )
    typed = _typed(source, settings)
    if typed.items() <= source.config.items():
        return source
    return cast("Source", _changed(source, tuple(typed.items())))


def _check_complete(name: str, settings: Mapping[str, Scalar]) -> None:
    """Raises InvalidConfig where a setting without a default is missing."""
    arch = name.removeprefix(PREFIX)
    builder = inspect.signature(ARCHS[arch]).parameters.values()
    needed = [p.name for p in builder if p.default is p.empty and p.name in setting_kinds(arch)]
    missing = [name for name in needed if name not in settings]
    if missing:
        examples = " ".join(f"--set {name}=..." for name in missing)
        raise InvalidConfig([f"{name} needs its dimensions: {examples}"])


@lru_cache(maxsize=512)
def _changed(record: ModelRecord, settings: tuple[tuple[str, Scalar], ...]) -> ModelRecord:
    """One copy of the same settings: caches know records by identity."""
    told = [f"{key} {_text(value)}" for key, value in settings]
    more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    full_name = f"{record.full_name} with {', '.join(told[:_SHOWN])}{more}"
    given = with_release(record, dict(settings))
    own = {k: v for k, v in given.items() if k in setting_kinds(record.arch)}
    beside = {k: v for k, v in given.items() if k not in own}
    update = {"config": {**record.config, **own}, "full_name": full_name,
              "params": Figure(value=0.0, source="settings"),
              **record_update(record, beside)}  # fmt: skip
    return record.model_copy(update=update)


def _typed(record: ModelRecord, settings: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Settings as the architecture takes them, text read as the kind that each is."""
    kinds = {**record_kinds(record), **setting_kinds(record.arch)}
    problems = [_unknown(record, key, list(kinds)) for key in settings if key not in kinds]
    found: dict[str, Scalar] = {}
    for key, value in settings.items():
        if key in kinds:
            try:
                found[key] = _read(kinds[key], value)
            except ValueError:
                problems.append(f"--set {key}={value}: {key} must be {_said(kinds[key])}")
    if problems:
        raise InvalidConfig(problems)
    return found


def _unknown(record: ModelRecord, key: str, known: list[str]) -> str:
    near = nearest(key, known)
    meant = f": did you mean {near[0]!r}?" if near else ""
    return f"--set {key}: architecture {record.arch!r} has no setting {key!r}{meant}"


def _said(kind: str) -> str:
    words = {
        "int": "a whole number", "float": "a number", "bool": "true or false",
        SECONDS: "a time such as 3.7ms", RELEASE: "a release such as 1.10",
    }  # fmt: skip
    return words.get(_plain(kind), "text")


def _plain(kind: str) -> str:
    return kind.removesuffix("| None").strip()


def _seconds(text: str) -> float:
    """Seconds of ``3.7ms``, or of a number of them. Raises ValueError."""
    try:
        return float(text)
    except ValueError:
        return parse_quantity(text, "seconds", positive=False)


def _read(kind: str, value: Scalar) -> Scalar:
    plain = _plain(kind)
    if plain == RELEASE:
        version_of(str(value) if isinstance(value, str) else "")  # 1.10 as a number is 1.1
        return value
    if not isinstance(value, str):
        return value  # of a wrong kind: the builder says so
    if plain == SECONDS:
        return _seconds(value)
    text = value.strip().lower()
    if plain == "int":
        return int(text)
    if plain == "float":
        return float(text)
    if plain == "bool":
        if text not in (*_TRUE, *_FALSE):
            raise ValueError(text)
        return text in _TRUE
    return value
