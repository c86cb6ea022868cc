"""Checks of plain data against the classes of ``base.part``, and what is wrong in one sentence."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

# Looking for pydantic plugins would read every installed package, and the records use none.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

from pydantic import Field, GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, core_schema

from simcore.base.errors import DataError, nearest
from simcore.base.names import printable
from simcore.base.part import KeyedError, Part, fields_of, is_needed

P = TypeVar("P", bound=Part)

#: Largest number of mistakes that an error message lists after the first.
_LISTED_MISTAKES = 3


def schema_of(cls: type[P], handler: GetCoreSchemaHandler) -> CoreSchema:
    """How pydantic checks a part: its keys without conversions and no others, then ``check``."""
    hints = get_type_hints(cls, include_extras=True)
    keys = {}
    for field in fields_of(cls):
        limits = field.metadata.get("limits")
        hint = Annotated[hints[field.name], Field(**limits)] if limits else hints[field.name]
        schema = handler.generate_schema(hint)
        keys[field.name] = core_schema.typed_dict_field(schema, required=is_needed(field))
    strict = core_schema.CoreConfig(strict=True)
    inner = core_schema.typed_dict_schema(keys, extra_behavior="forbid", config=strict)

    def made(raw: Any, values_of: core_schema.ValidatorFunctionWrapHandler) -> P:
        if isinstance(raw, cls):
            return raw
        part = cls(**values_of(cls.as_written(raw)))
        part.check()
        return part

    return core_schema.no_info_wrap_validator_function(made, inner)


@lru_cache(maxsize=256)
def _adapter(cls: Any) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


def checked(data: Any, cls: type[P]) -> P:
    """The part that plain data states. Raises pydantic's ValidationError, a ValueError."""
    # Strict mode refuses lists for tuples, and YAML has only lists: convert them. Texts are
    # printed and drawn.
    kind: Any = cls
    found: P = _adapter(kind).validate_python(_tuples(data))
    return found


def check_record(data: Any, model: type[P], text: str, file: object) -> P:
    """The record of plain data, checked.

    ``text``: the YAML text of the data, in which the line of an error is found; ``file``: its name
    in error messages. Raises DataError with file, line and key.
    """
    from simcore.base.database import line_of

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


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {_tuples(k): _tuples(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_tuples(v) for v in value)
    return printable(value) if isinstance(value, str) else value


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
        near = nearest(key, list(_key_names(model)))
        return f"unknown key {key!r}" + (f": did you mean {near[0]!r}?" if near else "")
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
