"""Whether the words of a call are those of a job, and of their kinds, before anything is made."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import NoneType
from typing import Any, get_args, get_type_hints

from simcore.base.errors import InvalidConfig, UnknownName

#: Words of options that are on or off.
SWITCH = {"on": True, "off": False}


@lru_cache(maxsize=4)
def _kinds(words: type) -> dict[str, frozenset[object]]:
    return {name: frozenset(get_args(kind)) for name, kind in get_type_hints(words).items()}


def word_problems(given: Mapping[str, Any], words: type) -> list[str]:
    """What is wrong with the names and kinds of ``given``, by the typed dictionary ``words``.

    Text where only text is meant, a whole number (or its text) where a number is; Python would
    take 2.5 samples for 2, and drop a misspelt word.
    """
    kinds, found = _kinds(words), []
    for name, value in given.items():
        flag = "--" + name.replace("_", "-")
        if name not in kinds:
            found.append(str(UnknownName("setting", name, kinds)))
        elif value is None or kinds[name] - {int, str, NoneType}:
            continue
        elif int not in kinds[name] and not isinstance(value, str):
            found.append(f"{flag} must be text, not {value!r}")
        elif int in kinds[name] and not _whole(value, text=str in kinds[name]):
            found.append(f"{flag} must be a whole number, not {value!r}")
    return found


def on_or_off(flag: str, value: bool | str | None) -> bool:
    """What a switch says, ``None`` being off. Raises InvalidConfig."""
    if isinstance(value, str):
        if value not in SWITCH:
            raise InvalidConfig([str(UnknownName(flag, value, list(SWITCH)))])
        return SWITCH[value]
    return bool(value)


def _whole(value: Any, *, text: bool) -> bool:
    if isinstance(value, str):
        return text or value.strip().lstrip("+-").isdigit()
    try:
        return bool(value == int(value)) and not isinstance(value, bool)
    except (TypeError, ValueError, OverflowError):
        return False
