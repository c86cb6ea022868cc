"""A model as a person types it: its settings (``--set layers=16``), and names that may run code.

A setting is a key of ``config`` in ``models_db``: an argument of the architecture's builder.
``arch:NAME`` is a model of which only the architecture is given.

``package.module:function`` imports and calls the function that it names: where a person typed it,
never where data has it. The type of the name carries the permission, and ``permitted`` checks it
where the import happens:

    TrustedName    typed on a command line or in a Python call
    UntrustedName  read from a file; public functions refuse it too, although they trust plain text
    str            of unknown origin: refused

A name that is cut, joined or read once more becomes plain text, so code that loses the permission
on the way is refused. Only ``split`` and ``strip`` preserve the type, because they take lists of
models apart.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, Literal, ParamSpec, Self, SupportsIndex, TypeVar, cast

from simcore.base.errors import (
    LISTED,
    InvalidConfig,
    UnknownName,
    UsageError,
    did_you_mean,
    nearest,
)
from simcore.base.figures import Figure
from simcore.base.names import pair_texts, read_pairs
from simcore.base.units import parse_quantity
from simcore.workload.archs import ARCHS, FILES, FROZEN_ARCHS, kind_of, load, networks
from simcore.workload.models import (
    ZOO_LISTS,
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
        return {str(k).replace("-", "_"): v for k, v in given.items()}
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
        SECONDS: "a time such as 3.7ms", BYTES: "a size such as 1.2GB",
        RELEASE: "a release such as 1.10",
    }  # fmt: skip
    return words.get(_without_none(kind), "text")


def _without_none(kind: str) -> str:
    return kind.removesuffix("| None").strip()


def _quantity(value: object, unit: Literal["seconds", "bytes"]) -> float:
    """``3.7ms`` in seconds, ``1.2GB`` in bytes, or a plain number of a unit.

    Raises ValueError, also for one below zero or not finite.
    """
    if isinstance(value, bool):
        raise ValueError(value)
    text = str(value)
    try:
        number = float(text)
    except ValueError:
        number = parse_quantity(text, unit, positive=False)
    if not 0.0 <= number < math.inf:
        raise ValueError(text)
    return number


def _convert(kind: str, value: Scalar) -> Scalar:
    type_name = _without_none(kind)
    if type_name == RELEASE:
        from simcore.workload.releases import version_of

        version_of(str(value) if isinstance(value, str) else "")  # 1.10 as a number is 1.1
        return value
    if type_name == SECONDS:
        return _quantity(value, "seconds")
    if type_name == BYTES:
        return _quantity(value, "bytes")
    if not isinstance(value, str):
        return value  # of a wrong type: the builder raises the error
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
#: Type of a size: text with its unit, or bytes.
BYTES = "bytes"
#: Type of a release: text, since 1.10 is later than 1.9.
RELEASE = "release"
#: The setting that names a release of PyTorch (``workload.releases``).
TORCH = "torch"
#: Source of figures that the job sets.
GIVEN = "settings"
_ALWAYS = {"sync_norm_wait": SECONDS, "samples_vary": "bool", TORCH: RELEASE}
_OF_DATA = {"sample_load": SECONDS, "sample_traffic": BYTES, "loader_workers": "int"}


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
    figures = ("sample_load", "sample_traffic")
    data: dict[str, Any] = {k: _figure(settings[k]) for k in figures if k in settings}
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


P = ParamSpec("P")
R = TypeVar("R")

#: Suffixes of data files.
_FILES = (".yaml", ".yml", ".json")


class CodeRefused(UsageError):
    """A file names Python code, and nobody has permitted that the code runs."""


class _Name(str):
    """Text whose parts have the type of the whole."""

    __slots__ = ()

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Self]:  # type: ignore[override]
        """As ``str.split``; the parts are as trusted as the whole."""
        return [type(self)(part) for part in super().split(sep, maxsplit)]

    def strip(self, chars: str | None = None, /) -> Self:
        """As ``str.strip``; the result is as trusted as the whole."""
        return type(self)(super().strip(chars))


class TrustedName(_Name):
    """A model name that a person typed: the code that it names may run."""

    __slots__ = ()


class UntrustedName(_Name):
    """A model name read from a file: the code that it names may not run."""

    __slots__ = ()


def names_code(text: str) -> bool:
    """Whether a model name has the form ``package.module:function``.

    A file, a library's model (``timm:NAME``) and an architecture (``arch:NAME``) do not.
    """
    path = Path(text)
    library, colon, _ = text.partition(":")
    if not colon or library in ZOO_LISTS or text.startswith(PREFIX):
        return False
    try:
        return path.suffix not in _FILES and not path.exists()
    except OSError:  # too long for a file's name
        return False


def permitted(text: str) -> TrustedName:
    """The name, if the code that it names may run. Raises CodeRefused otherwise."""
    if isinstance(text, TrustedName):
        return text
    raise _refusal(text)


def name_in_file(text: str, where: str, *, allow_code: bool) -> TrustedName | UntrustedName:
    """The model name ``text`` read from ``where``, a file or a line of one.

    The text may be several names separated by commas. ``allow_code``: the user trusts the code that
    the file names. Raises CodeRefused for code otherwise.
    """
    if allow_code:
        return TrustedName(text)
    for part in text.split(","):
        if names_code(part.strip()):
            raise _refusal(part.strip(), f"{where}: ")
    return UntrustedName(text)


def name_in_call(model: Any) -> Any:
    """A model as a Python caller gave it, with its text, or each text of a list, made trusted."""
    if isinstance(model, str):
        return model if isinstance(model, _Name) else TrustedName(model)
    if isinstance(model, list | tuple):
        return [name_in_call(one) for one in model]
    return model


def trusts_call(at: int = 0) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator of a public function: a person types its argument ``model``, the ``at``-th."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            words: dict[str, Any] = kwargs
            if "model" in words:
                words = {**words, "model": name_in_call(words["model"])}
            values: tuple[Any, ...] = args
            if len(values) > at:
                values = (*values[:at], name_in_call(values[at]), *values[at + 1 :])
            return function(*values, **words)

        return call

    return decorate


def _refusal(text: str, where: str = "") -> CodeRefused:
    library, _, name = text.partition(":")
    meant = nearest(library, list(ZOO_LISTS), 1)
    hint = f": did you mean {meant[0]}:{name}?" if meant else ""
    return CodeRefused(
        f"{where}model {str(text)!r} is Python code, which runs only where its name is typed on "
        "the command line or in Python, or with --allow-code (in Python allow_code=True) if you "
        f"trust the file that names it{hint}"
    )
