"""A model's settings as options of a job (``--set layers=16``), and models of free dimensions.

A setting is a key of ``config`` in ``models_db``: an argument of the architecture's builder.
``arch:NAME`` is a model of which only the architecture is given.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar, cast

from simcore.base.errors import LISTED, InvalidConfig, UnknownName, UsageError, did_you_mean
from simcore.base.figures import Figure
from simcore.base.names import pair_texts, read_pairs
from simcore.base.units import parse_quantity
from simcore.workload.archs import ARCHS, FILES, FROZEN_ARCHS, kind_of, load, networks
from simcore.workload.models import (
    FrozenRecord,
    ModelRecord,
    Scalar,
    Training,
    setting_defaults,
    setting_kinds,
)

#: A model from any kind of source (``resolve.ModelSource``).
Source = TypeVar("Source")
#: Prefix of a name that gives a model's architecture alone.
PREFIX = "arch:"
#: Architecture of traced networks, whose shapes no setting changes.
_TRACED = "traced"
#: What one sample is, by kind of architecture; any other kind: ``image``.
_SAMPLES = {"language": "sequence", "text": "sequence", "speech": "clip", "recommender": "pair"}
_CLIPS = ("latte", "stdit", "mmdit_video", "wan", "cogvideox")
#: Number of settings that a full name lists; it then says how many more there are.
_SHOWN = 3
_TRUE, _FALSE = ("true", "on", "yes"), ("false", "off", "no")


def settings_given(given: object) -> dict[str, Scalar]:
    """The settings of a call, given as a mapping or as texts of ``key=value`` separated by blanks.

    Values in texts remain text until a model gives their types. Raises InvalidConfig.
    """
    if not given:
        return {}
    if isinstance(given, Mapping):
        return {str(k).replace("-", "_"): cast("Scalar", v) for k, v in given.items()}
    texts = [given] if isinstance(given, str) else map(str, cast("Iterable[object]", given))
    settings, problems = read_pairs("--set", texts, "layers=16")
    if problems:
        raise InvalidConfig(problems)
    return dict(settings)


def as_words(settings: Mapping[str, Scalar]) -> tuple[str, ...]:
    """Settings as ``key=value`` texts; reading a text gives the setting back."""
    return pair_texts(settings)


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def settable_archs() -> tuple[str, ...]:
    """Names that may follow ``arch:``."""
    return tuple(name for name in (*FILES, *networks(own=True)) if _settable(name))


def _settable(name: str) -> bool:
    if name == _TRACED or name not in (*FILES, *networks(own=True)):
        return False
    load(name)
    return name in ARCHS and name not in FROZEN_ARCHS


def arch_record(text: str) -> ModelRecord:
    """The record of ``arch:NAME``, before any settings. Raises UnknownName."""
    name = text.removeprefix(PREFIX).strip().lower().replace("-", "_")
    if not _settable(name):
        raise UnknownName("architecture", name, list(settable_archs()))
    return _arch_record(name)


@lru_cache(maxsize=64)
def _arch_record(arch: str) -> ModelRecord:
    """The record of an architecture, one object each: caches compare records by identity."""
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
    """The model with the settings of a call replacing its own; ``arch:`` models need theirs.

    Raises InvalidConfig for a setting that the architecture does not have or that has the wrong
    type, and UsageError for a model without settings.
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


def needed_settings(arch: str) -> list[str]:
    """The settings of an architecture that have no default."""
    usual = setting_defaults(arch)
    return [name for name in setting_kinds(arch) if name not in usual]


def _check_complete(name: str, settings: Mapping[str, Scalar]) -> None:
    """Raises InvalidConfig if a setting without a default is missing."""
    missing = [s for s in needed_settings(name.removeprefix(PREFIX)) if s not in settings]
    if missing:
        examples = " ".join(f"--set {name}=..." for name in missing)
        raise InvalidConfig([f"{name} needs its dimensions: {examples}"])


@lru_cache(maxsize=512)
def _changed(record: ModelRecord, settings: tuple[tuple[str, Scalar], ...]) -> ModelRecord:
    """A record with these settings, one object per set: caches compare records by identity."""
    described = [f"{key} {_text(value)}" for key, value in settings]
    more = f" and {len(described) - _SHOWN} more" if len(described) > _SHOWN else ""
    full_name = f"{record.full_name} with {', '.join(described[:_SHOWN])}{more}"
    stated = with_release(record, dict(settings))
    of_arch = {k: v for k, v in stated.items() if k in setting_kinds(record.arch)}
    of_record = {k: v for k, v in stated.items() if k not in of_arch}
    update = {"config": {**record.config, **of_arch}, "full_name": full_name,
              "params": Figure(value=0.0, source="settings"),
              **record_update(record, of_record)}  # fmt: skip
    return record.model_copy(update=update)


def _typed(record: ModelRecord, settings: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Settings with texts converted to the types that the architecture takes."""
    kinds = {**record_kinds(record), **setting_kinds(record.arch)}
    problems = [_unknown(record, key, list(kinds)) for key in settings if key not in kinds]
    typed: dict[str, Scalar] = {}
    for key, value in settings.items():
        if key in kinds:
            try:
                typed[key] = _convert(kinds[key], value)
            except ValueError:
                problems.append(f"--set {key}={value}: {key} must be {_type_in_words(kinds[key])}")
    if problems:
        raise InvalidConfig(problems)
    return typed


def _unknown(record: ModelRecord, key: str, known: list[str]) -> str:
    names = list(dict.fromkeys((*(k for k in record.config if k in known), *known)))
    others = f": known are {', '.join(names[:LISTED])}{' …' if len(names) > LISTED else ''}"
    hint = did_you_mean(key, known, others)
    return f"--set {key}: architecture {record.arch!r} has no setting {key!r}{hint}"


def _type_in_words(kind: str) -> str:
    words = {
        "int": "a whole number", "float": "a number", "bool": "true or false",
        SECONDS: "a time such as 3.7ms", RELEASE: "a release such as 1.10",
    }  # fmt: skip
    return words.get(_without_none(kind), "text")


def _without_none(kind: str) -> str:
    return kind.removesuffix("| None").strip()


def _seconds(text: str) -> float:
    """Seconds from text such as ``3.7ms`` or a plain number of seconds. Raises ValueError."""
    try:
        return float(text)
    except ValueError:
        return parse_quantity(text, "seconds", positive=False)


def _convert(kind: str, value: Scalar) -> Scalar:
    type_name = _without_none(kind)
    if type_name == RELEASE:
        from simcore.workload.releases import version_of

        version_of(str(value) if isinstance(value, str) else "")  # 1.10 as a number is 1.1
        return value
    if not isinstance(value, str):
        return value  # of a wrong type: the builder raises the error
    if type_name == SECONDS:
        return _seconds(value)
    text = value.strip().lower()
    if type_name == "int":
        return int(text)
    if type_name == "float":
        return float(text)
    if type_name == "bool":
        if text not in (*_TRUE, *_FALSE):
            raise ValueError(text)
        return text in _TRUE
    return value


#: Type of a time: text with its unit, or seconds.
SECONDS = "seconds"
#: Type of a release: text, since 1.10 is later than 1.9.
RELEASE = "release"
#: The setting that names a release of PyTorch (``workload.releases``).
TORCH = "torch"
#: Source of figures that the job sets.
GIVEN = "settings"
_ALWAYS = {"sync_norm_wait": SECONDS, "samples_vary": "bool", TORCH: RELEASE}
_OF_DATA = {"sample_load": SECONDS, "loader_workers": "int"}


def record_kinds(record: ModelRecord) -> dict[str, str]:
    """Settings of the record outside its architecture, with the type of each."""
    kinds = {k: v for one in record.frozen for k, v in _frozen_kinds(one.arch).items()}
    return {**kinds, **_ALWAYS, **(_OF_DATA if record.dataset else {})}


def with_release(record: ModelRecord, settings: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The settings, with those that follow from a stated PyTorch release added where absent."""
    stated = dict(settings)
    release = stated.pop(TORCH, None)
    if release is None:
        return stated
    from simcore.workload.releases import settings_of_release

    return {**settings_of_release(record.arch, str(release)), **stated}


def record_update(record: ModelRecord, settings: Mapping[str, Scalar]) -> dict[str, Any]:
    """The fields of the record that these settings change, with their new values."""
    update: dict[str, Any] = {}
    if "sync_norm_wait" in settings:
        update["sync_norm_wait"] = _figure(settings["sync_norm_wait"])
    if "samples_vary" in settings and not settings["samples_vary"]:
        update |= {"work_sd_frac": None, "largest": {}}
    data: dict[str, Any] = {}
    if "sample_load" in settings:
        data["sample_load"] = _figure(settings["sample_load"])
    if "loader_workers" in settings:
        data["workers"] = settings["loader_workers"]
    if data and record.dataset is not None:
        update["dataset"] = record.dataset.model_copy(update=data)
    if frozen := tuple(_frozen_with(one, settings) for one in record.frozen):
        update["frozen"] = frozen
    update["sources"] = {**record.sources, GIVEN: "settings of the job"}
    return update


def _frozen_with(frozen: FrozenRecord, settings: Mapping[str, Scalar]) -> FrozenRecord:
    own = {k: v for k, v in settings.items() if k in _frozen_kinds(frozen.arch)}
    return frozen.model_copy(update={"config": {**frozen.config, **own}}) if own else frozen


def _frozen_kinds(arch: str) -> dict[str, str]:
    load(arch)
    parameters = inspect.signature(FROZEN_ARCHS[arch]).parameters.values()
    return {p.name: str(p.annotation) for p in parameters if p.name != "name"}


def _figure(value: Scalar) -> Figure:
    return Figure(value=float(value), source=GIVEN)
