"""Plain data of a record as values of dataclasses: every key and type is checked.

A violation is a ``KeyedError`` with the path of keys that it is about, so that the file's error
names the line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from simcore.base.database import KeyedError
from simcore.base.errors import nearest

Keys = tuple[int | str, ...]


@lru_cache(maxsize=64)
def hints(cls: type) -> Mapping[str, Any]:
    """The fields of a dataclass and their types."""
    found = get_type_hints(cls)
    return {f.name: found[f.name] for f in fields(cls)}


def check_key(key: str, known: Mapping[str, Any], at: Keys) -> None:
    """Raises KeyedError with the nearest known key."""
    if key not in known:
        near = nearest(key, list(known))
        asked = f": did you mean {near[0]!r}?" if near else f": known are {', '.join(known)}"
        raise KeyedError((*at, key), f"unknown key {key!r}{asked}")


def checked(value: Any, kind: Any, at: Keys) -> Any:
    """``value`` as ``kind``: a number, word, pair, mapping, or dataclass. Raises KeyedError."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        of = next(a for a in get_args(kind) if a is not type(None))
        return None if value is None else checked(value, of, at)
    if is_dataclass(kind):
        assert isinstance(kind, type)
        return _instance(value, kind, at)
    if origin is Literal:
        return _told(value, value in get_args(kind), f"one of {', '.join(get_args(kind))}", at)
    if origin is tuple:
        pair = isinstance(value, tuple) and len(value) == len(get_args(kind))
        _told(value, pair, f"a list of {len(get_args(kind))} numbers", at)
        return tuple(checked(v, k, at) for v, k in zip(value, get_args(kind), strict=True))
    if origin is frozenset:
        words = isinstance(value, tuple) and all(isinstance(v, str) for v in value)
        return frozenset(_told(value, words, "a list of words", at))
    if origin is not None:
        return _told(value, isinstance(value, Mapping), "a mapping of keys to values", at)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float:
        return float(_told(value, number, "a number", at))
    if kind is int:
        return _told(value, number and isinstance(value, int), "a whole number", at)
    if kind is bool:
        return _told(value, isinstance(value, bool), "true or false", at)
    return _told(value, isinstance(value, str), "a word", at)


def _told(value: Any, right: bool, wanted: str, at: Keys) -> Any:
    if not right:
        raise KeyedError(at, f"must be {wanted} (got {value!r:.60})")
    return value


def _instance(value: Any, kind: type, at: Keys) -> Any:
    _told(value, isinstance(value, Mapping), "a mapping of keys to values", at)
    known = hints(kind)
    for key in value:
        check_key(str(key), known, at)
    found = {k: checked(v, known[k], (*at, k)) for k, v in value.items()}
    try:
        return kind(**found)
    except TypeError as err:  # a field without a default is missing
        raise KeyedError(at, str(err).rpartition("__init__() ")[2]) from None
