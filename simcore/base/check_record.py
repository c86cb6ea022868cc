"""Checks plain data against the classes of ``base.figures``; says what is wrong in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import ValidationError

from simcore.base.errors import DataError, did_you_mean
from simcore.base.figures import KeyedError, Part, checked, fields_of

P = TypeVar("P", bound=Part)

#: Largest number of mistakes that an error message lists after the first.
_LISTED_MISTAKES = 3


def check_record(data: Any, model: type[P], text: str, file: object) -> P:
    """The record of plain data, checked.

    ``text``: the YAML text of the data, in which the line of an error is found; ``file``: its name
    in error messages. Raises DataError with file, line and key.
    """
    if not isinstance(data, dict):
        raise DataError("must be a mapping of keys to values", file=file, line=1)
    try:
        return checked(data, model)
    except ValidationError as err:
        found = err.errors(include_url=False)
        # a list that is too short for want of an item with a mistake has no mistake of its own
        first, *others = [
            e for e in found if e["type"] != "too_short" or not any(
                e["loc"] == f["loc"][: len(e["loc"])] and e is not f for f in found)
        ]  # fmt: skip
        keys = _keys_of(first)
        mistakes = [_message(first, model)]
        mistakes += [
            f"{'.'.join(map(str, _keys_of(e)))}: {_message(e, model)}"
            for e in others[:_LISTED_MISTAKES]
        ]
        unlisted = len(others) - _LISTED_MISTAKES
        more = f" (and {unlisted} more)" if unlisted > 0 else ""
        shown = ".".join(map(str, keys))
        line = line_of(text, keys)
        raise DataError("; ".join(mistakes) + more, file=file, line=line, key=shown) from None
    except RecursionError:
        raise DataError("an alias (*) refers to a value that contains it", file=file) from None


def line_of(text: str, keys: tuple[int | str, ...]) -> int | None:
    """Line (from 1) of the deepest of ``keys`` in YAML text, for messages; None if unknown."""
    from ruamel.yaml import YAML

    try:
        node = YAML(typ="rt", pure=True).load(text)
    except Exception:
        return None
    line: int | None = None
    for key in keys:
        try:
            position = node.lc.item(key) if isinstance(key, int) else node.lc.key(key)
            node, line = node[key], position[0] + 1
        except (KeyError, IndexError, AttributeError, TypeError):
            break
    return line


def _keys_of(error: Mapping[str, Any]) -> tuple[int | str, ...]:
    """The path of keys at which a mistake is."""
    if isinstance(cause := error.get("ctx", {}).get("error"), KeyedError):
        return cause.keys
    return tuple(k for k in error["loc"] if not str(k).startswith("function-"))


def _message(error: Mapping[str, Any], model: type[Part]) -> str:
    """One sentence for one of pydantic's errors, with the nearest key for an unknown one."""
    kind = error["type"]
    if kind == "extra_forbidden":
        key = str(error["loc"][-1])
        return f"unknown key {key!r}{did_you_mean(key, _key_names(model))}"
    if kind == "missing":
        return f"key {error['loc'][-1]!r} is missing"
    text = str(error["msg"]).removeprefix("Value error, ")
    return text if kind == "value_error" else f"{text} (got {error['input']!r:.60})"


def _key_names(model: type[Part], depth: int = 3) -> set[str]:
    """Keys of a record and, down to ``depth``, of its parts."""
    hints = get_type_hints(model)
    names = {field.name for field in fields_of(model)}
    for name in names.copy() if depth else ():
        for part in (hints[name], *get_args(hints[name])):
            if isinstance(part, type) and issubclass(part, Part):
                names |= _key_names(part, depth - 1)
    return names
