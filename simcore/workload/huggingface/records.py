"""Records of Hugging Face types: how the keys of a config become settings of an architecture.

They stand in ``models_db/config_types/*.yaml``, by ``model_type``, or, in ``diffusers.yaml``, by
``_class_name``. A record whose name begins with an underscore is what others are ``like``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from simcore.base.database import read_yaml, shipped_root
from simcore.base.errors import DataError
from simcore.base.figures import Part, entry

_FOLDER = "config_types"
#: File of what records share, and file of the records whose names are classes of diffusers.
_SHARED, _CLASSES = "words.yaml", "diffusers.yaml"


class Rules(Part):
    """What must hold of a config, its settings, and notes on what is assumed.

    ``settings``: a value or an expression (``translate.Translation``) for each setting of the
    architecture. ``when``: the condition under which these rules apply; always, if None.
    """

    when: Any = None
    requires: tuple[dict[str, Any], ...] = ()
    settings: dict[str, Any] = entry(default_factory=dict)
    notes: tuple[Any, ...] = ()


class TypeRecord(Rules):
    """One type of config.

    - ``like``: records whose rules apply too, where this one has no others.
    - ``defaults``: values of keys that a file does not have, those of the type's class in
      transformers.
    - ``values``: expressions that others refer to by ``$name``. ``max_tokens`` is the largest
      number of tokens in a sample.
    - ``cases``: further rules under conditions.
    - ``language_model``: keys of the object that describes the language model of a type that holds
      one; ``type``: its type, where that is always the same.
    - ``tower``: the type of its encoder of images (``stated``: vision_config says it), where one is
      described; ``images``: how many images a sample has unless the job says.
    """

    about: str
    like: str | tuple[str, ...] = ()
    arch: str = ""
    sample_unit: str = ""
    defaults: dict[str, Any] = entry(default_factory=dict)
    values: dict[str, Any] = entry(default_factory=dict)
    cases: tuple[Rules, ...] = ()
    language_model: tuple[str, ...] = ()
    type: str = ""
    tower: str = ""
    images: int = 0


def record_names() -> frozenset[str]:
    """Names of all records, also of those that are no types."""
    return frozenset(name for records in _files().values() for name in records)


def model_types() -> tuple[str, ...]:
    """Every supported ``model_type``."""
    return tuple(n for file, names in _names().items() if file != _CLASSES for n in names)


def class_names() -> tuple[str, ...]:
    """Every supported class of diffusers."""
    return _names()[_CLASSES]


@lru_cache(maxsize=256)
def type_record(name: str) -> TypeRecord:
    """The record of a supported type, joined with those that it is like. Raises DataError."""
    joined: dict[str, Any] = {}
    for record in _lineage(name):
        for field, value in record.model_dump(exclude_defaults=True).items():
            if isinstance(value, dict):
                joined[field] = {**joined.get(field, {}), **value}
            elif isinstance(value, tuple):
                joined[field] = (*joined.get(field, ()), *value)
            else:
                joined[field] = value
    return TypeRecord.model_validate(joined)


@lru_cache(maxsize=1)
def shared() -> Mapping[str, Mapping[str, Any]]:
    """``tables`` of words by name, and ``sentences`` by name. Raises DataError."""
    return MappingProxyType(read_yaml(_folder() / _SHARED))


def _folder() -> Path:
    return shipped_root() / "models_db" / _FOLDER


@lru_cache(maxsize=1)
def _files() -> Mapping[str, Mapping[str, Any]]:
    paths = sorted(p for p in _folder().glob("*.yaml") if p.name != _SHARED)
    return {p.name: read_yaml(p) for p in paths}


@lru_cache(maxsize=1)
def _names() -> Mapping[str, tuple[str, ...]]:
    return {file: tuple(n for n in records if not n.startswith("_"))
            for file, records in _files().items()}  # fmt: skip


def _lineage(name: str) -> tuple[TypeRecord, ...]:
    """The records that ``name`` is like, most general first, and its own; each once."""
    found: dict[str, TypeRecord] = {}

    def visit(name: str) -> Iterator[tuple[str, TypeRecord]]:
        own = _own_record(name)
        for base in (own.like,) if isinstance(own.like, str) else own.like:
            yield from visit(base)
        yield name, own

    for ancestor, record in visit(name):
        found.setdefault(ancestor, record)
    return tuple(found.values())


@lru_cache(maxsize=256)
def _own_record(name: str) -> TypeRecord:
    file, data = next((f, records[name]) for f, records in _files().items() if name in records)
    try:
        return TypeRecord.model_validate(data)
    except ValueError as err:
        raise DataError(f"{name} is no record of a type: {err}", file=_folder() / file) from None


def table(given: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """A table of words and their meanings, or the shared one of that name."""
    if not isinstance(given, str):
        return given
    return shared()["tables"][given]
