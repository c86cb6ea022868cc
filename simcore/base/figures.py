"""Records of the YAML databases and their parts, figures with a unit and a source among them.

Records and parts are frozen values whose annotations state what a file may hold. pydantic checks
them, and is imported only for a file that has not been checked before: neither declaring a part nor
restoring one from the cache needs it. ``check_record`` says in a sentence what is wrong.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Self,
    TypeVar,
    dataclass_transform,
    get_args,
    get_type_hints,
)

from simcore.base.errors import DataError, did_you_mean
from simcore.base.names import printable
from simcore.base.record import dataclass, declared, replace, same_fields, same_hash
from simcore.base.units import Dimension, parse_quantity

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, TypeAdapter
    from pydantic_core import CoreSchema


P = TypeVar("P", bound="Part")
#: The key of a cached part under which the name of its class stands.
_CLASS = ""


def entry(
    *,
    default: Any = dataclasses.MISSING,
    default_factory: Any = dataclasses.MISSING,
    description: str = "",
    **limits: Any,
) -> Any:
    """A key of a part. ``limits``: what pydantic calls ``ge``, ``le``, ``min_length`` ..."""
    about = {"limits": limits, "description": description}
    if default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=default_factory, metadata=about)
    return dataclasses.field(default=default, metadata=about)


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(entry,))
class Part:
    """A part of a record. ``cites``: whether ``source`` is a key of the record's ``sources``."""

    cites: ClassVar[bool] = True
    #: Whether ``check`` looks at more than the part itself, so that it runs each time.
    looks_elsewhere: ClassVar[bool] = False
    #: Classes of parts by module and name.
    _classes: ClassVar[dict[str, type[Part]]] = {}

    def __init_subclass__(cls) -> None:
        declared(cls, frozen=True, kw_only=True, eq=False)
        Part._classes[_name(cls)] = cls

    if not TYPE_CHECKING:  # the constructor that mypy sees takes the keys
        __eq__, __hash__ = same_fields, same_hash

    def check(self) -> None:
        """Raises ValueError for what no single key says; KeyedError names the key."""

    @classmethod
    def as_written(cls, raw: Any) -> Any:
        """The data to check, from that of the file."""
        return raw

    @classmethod
    def model_validate(cls, data: Any) -> Self:
        """The part that plain data states. Raises ValueError."""
        return checked(data, cls)

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """A copy with other values, which are not checked."""
        return replace(self, **(update or {}))

    def model_dump(
        self, *, exclude_none: bool = False, exclude_defaults: bool = False
    ) -> dict[str, Any]:
        """The part as nested mappings."""

        def plain(value: Any) -> Any:
            if isinstance(value, Part):
                return value.model_dump(
                    exclude_none=exclude_none, exclude_defaults=exclude_defaults
                )
            if isinstance(value, tuple):
                return tuple(plain(v) for v in value)
            return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else value

        found = {}
        for field in fields_of(type(self)):
            value = getattr(self, field.name)
            left_out = (exclude_none and value is None) or (
                exclude_defaults and not is_needed(field) and value == default_of(field)
            )
            if not left_out:
                found[field.name] = plain(value)
        return found

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """How pydantic checks this class."""
        return _schema_of(cls, handler)


class Record(Part):
    """Base of everything read from a database file: a name, and no unknown keys."""

    name: str
    aliases: tuple[str, ...] = ()

    # A record is loaded once. Caches keyed by records compare identities, not sixty figures.
    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


class KeyedError(ValueError):
    """A violation found by a check of a whole record, with the path of keys where it is."""

    def __init__(self, keys: tuple[int | str, ...], text: str) -> None:
        self.keys = keys
        super().__init__(text)


class Reads:
    """Of an annotation: a function that reads the value as it is written; it raises ValueError.

    ``after``: it reads the value that the annotation's type has checked.
    """

    def __init__(self, read: Callable[[Any], Any], *, after: bool = False) -> None:
        self.read, self.after = read, after

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """How pydantic applies the function."""
        from pydantic_core import core_schema

        if self.after:
            return core_schema.no_info_after_validator_function(self.read, handler(source))
        return core_schema.no_info_before_validator_function(self.read, handler(source))


def fields_of(cls: type[Part]) -> tuple[dataclasses.Field[Any], ...]:
    """The keys of a class of parts."""
    return dataclasses.fields(cls)  # type: ignore[arg-type]


def is_needed(field: dataclasses.Field[Any]) -> bool:
    """Whether a file must have this key."""
    return field.default is field.default_factory is dataclasses.MISSING


def default_of(field: dataclasses.Field[Any]) -> Any:
    """The value of a key that a file does not have."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _schema_of(cls: type[P], handler: GetCoreSchemaHandler) -> CoreSchema:
    """How pydantic checks a part: its keys without conversions and no others, then ``check``."""
    from pydantic import Field
    from pydantic_core import core_schema

    hints = get_type_hints(cls, include_extras=True)
    keys = {}
    for field in fields_of(cls):
        limits = field.metadata.get("limits")
        hint = Annotated[hints[field.name], Field(**limits)] if limits else hints[field.name]
        schema = handler.generate_schema(hint)
        keys[field.name] = core_schema.typed_dict_field(schema, required=is_needed(field))
    strict = core_schema.CoreConfig(strict=True)
    inner = core_schema.typed_dict_schema(keys, extra_behavior="forbid", config=strict)

    def made(raw: Any, values_of: Any) -> P:
        if isinstance(raw, cls):
            return raw
        part = cls(**values_of(cls.as_written(raw)))
        part.check()
        return part

    return core_schema.no_info_wrap_validator_function(made, inner)


@lru_cache(maxsize=256)
def _adapter(cls: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(cls)


def checked(data: Any, cls: type[P]) -> P:
    """The part that plain data states. Raises pydantic's ValidationError, a ValueError."""
    # Strict mode refuses lists for tuples, and YAML has only lists: convert them. Texts are
    # printed and drawn.
    kind: Any = cls
    return _adapter(kind).validate_python(_tuples(data))


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {_tuples(k): _tuples(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_tuples(v) for v in value)
    return printable(value) if isinstance(value, str) else value


def packed(value: Any) -> Any:
    """A checked part as data for JSON. Raises ValueError for data that JSON does not restore."""
    if isinstance(value, Part):
        values = {k: packed(v) for k, v in vars(value).items()}
        return {_CLASS: _name(type(value)), **values}
    if isinstance(value, tuple):
        return [packed(v) for v in value]
    if isinstance(value, dict):
        if _CLASS in value or not all(isinstance(k, str) for k in value):
            raise ValueError("keys that are no words")
        return {k: packed(v) for k, v in value.items()}
    if not isinstance(value, str | int | float | None):
        raise ValueError(f"{type(value).__name__} is no plain value")
    return value


def unpacked(data: Any) -> Any:
    """The value of ``packed`` data. Raises LookupError where a class is not known any more."""
    if isinstance(data, list):
        return tuple(map(unpacked, data))
    if not isinstance(data, dict):
        return data
    values = {k: unpacked(v) if isinstance(v, dict | list) else v for k, v in data.items()}
    if _CLASS not in values:
        return values
    part = object.__new__(Part._classes[values.pop(_CLASS)])
    part.__dict__.update(values)
    return part


_Keys = tuple[int | str, ...]


class Figure(Part):
    """A number in SI units, its source, and a note where the source needs one."""

    value: float
    source: str
    note: str = ""


def _figure(dimension: Dimension | None) -> Any:
    """Reads a figure's value; ``dimension`` None: a plain number without unit."""

    def parse(raw: object) -> object:
        if isinstance(raw, Figure):
            return raw
        if not isinstance(raw, dict):
            raise ValueError("write a figure as {value: …, source: …}")
        if "value" in raw:
            value = raw["value"]
            if dimension is None:
                if isinstance(value, bool) or not isinstance(value, (int, float)):
                    raise ValueError(f"value {value!r} must be a plain number")
                if not 0 < value <= sys.float_info.max:
                    raise ValueError(f"value {value!r:.40} must be finite and above zero")
                value = float(value)
            else:
                value = parse_quantity(value, dimension)
            raw = {**raw, "value": value}
        return raw

    return Reads(parse)


Count = Annotated[Figure, _figure(None)]
Bytes = Annotated[Figure, _figure("bytes")]
Bandwidth = Annotated[Figure, _figure("bytes_per_s")]
FlopRate = Annotated[Figure, _figure("flop_per_s")]
Seconds = Annotated[Figure, _figure("seconds")]
Hertz = Annotated[Figure, _figure("hertz")]
Watts = Annotated[Figure, _figure("watts")]


class Sourced(Record):
    """A record whose figures cite the ``sources`` map of the same file."""

    sources: dict[str, str] = entry(min_length=1)

    def check(self) -> None:
        """Raises KeyedError where a figure's source is none of ``sources``."""
        for keys, part in _parts(self):
            source = getattr(part, "source", None) if getattr(part, "cites", False) else None
            if isinstance(source, str) and source not in self.sources:
                raise KeyedError((*keys, "source"), f"{source!r} is not in 'sources'")

    def figures(self) -> dict[str, Figure]:
        """Dotted key -> figure, for every figure of the record."""
        return {_dotted(keys): part for keys, part in _parts(self) if isinstance(part, Figure)}


def _parts(value: object, keys: _Keys = ()) -> Iterator[tuple[_Keys, Part]]:
    """Every part in ``value``, outermost first, with the path of keys to it."""
    inside: Iterable[tuple[int | str, object]] = ()
    if isinstance(value, Part):
        yield keys, value
        inside = ((f.name, getattr(value, f.name)) for f in fields_of(type(value)))
    elif isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, tuple):
        inside = enumerate(value)
    for at, item in inside:
        yield from _parts(item, (*keys, at))


def _dotted(keys: _Keys) -> str:
    return "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in keys).lstrip(".")


#: Two-sided 80 % interval: the 10th and the 90th percentile.
LOW_QUANTILE = 0.10
HIGH_QUANTILE = 0.90
#: Standard normal quantile of HIGH_QUANTILE.
Z80 = 1.2815515655446004


@dataclass(frozen=True)
class Interval:
    """A value and the bounds of 80 % of the probability around it, all in one unit.

    ``origin`` says in words where the bounds are from.
    """

    value: float
    low: float
    high: float
    origin: str

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"interval out of order: {self.low}, {self.value}, {self.high}")

    def __float__(self) -> float:
        return self.value

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else str(self)


#: Largest number of mistakes that an error message lists after the first.
_LISTED_MISTAKES = 3


def check_record(data: Any, model: type[P], text: str, file: object) -> P:
    """The record of plain data, checked.

    ``text``: the YAML text of the data, in which the line of an error is found; ``file``: its name
    in error messages. Raises DataError with file, line and key.
    """
    if not isinstance(data, dict):
        raise DataError("must be a mapping of keys to values", file=file, line=1)
    from pydantic import ValidationError

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
