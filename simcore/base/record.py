"""Frozen dataclasses whose classes cost next to nothing to declare.

The dataclasses of Python's library write and compile six methods for each class while it is
imported: half a millisecond to one and a half, of which a prediction needs 140. The classes here
share their methods, which read the fields of the instance that they are called for.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from functools import lru_cache
from operator import attrgetter
from reprlib import recursive_repr
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(**how: bool) -> Callable[[type], type]:
        """A decorator as ``dataclasses.dataclass`` with ``frozen=True``, which must be given.

        ``how``: ``kw_only``, ``eq``, ``repr`` and ``init``, as there. ``fields``, ``replace`` and
        ``asdict`` of ``dataclasses`` take its instances. Instances have no slots.
        """
        return lambda cls: declared(cls, **how)


def declared(
    cls: type, *, frozen: bool, kw_only: bool = False, eq: bool = True, repr: bool = True,
    init: bool = True,
) -> type:  # fmt: skip
    """The class with its fields and the methods that the decorator asks for."""
    if not frozen:
        raise TypeError(f"{cls.__name__}: dataclasses that change are those of Python's library")
    fields = dict(_inherited(cls))
    for name, kind in inspect.get_annotations(cls).items():
        if not str(kind).startswith(("ClassVar", "typing.ClassVar")):
            fields[name] = _field(cls, name, kind, kw_only)
    methods: dict[str, Any] = {"__setattr__": _refuse_change, "__delattr__": _refuse_change}
    if init:
        methods |= {"__init__": _init, "__signature__": _Signature()}
    if repr:
        methods["__repr__"] = _repr
    if eq:
        methods |= {"__eq__": same_fields, "__hash__": same_hash}
    for name, method in methods.items():
        if name not in cls.__dict__ or (name == "__hash__" and cls.__hash__ is None):
            setattr(cls, name, method)
    cls.__dataclass_fields__ = fields  # type: ignore[attr-defined]
    cls.__dataclass_params__ = SimpleNamespace(frozen=True)  # type: ignore[attr-defined]
    cls._shape = _Shape(cls, fields, init)  # type: ignore[attr-defined]
    return cls


def _inherited(cls: type) -> Iterator[tuple[str, dataclasses.Field[Any]]]:
    for base in cls.__mro__[-1:0:-1]:
        yield from base.__dict__.get("__dataclass_fields__", {}).items()


def _field(cls: type, name: str, kind: Any, kw_only: bool) -> dataclasses.Field[Any]:
    """The field of an annotated name; a default stays at the class, as with the library's."""
    written = cls.__dict__.get(name, dataclasses.MISSING)
    field = (
        written if isinstance(written, dataclasses.Field) else dataclasses.field(default=written)
    )
    if field.default is not dataclasses.MISSING:
        setattr(cls, name, field.default)
    elif written is not dataclasses.MISSING:
        delattr(cls, name)
    field.name, field.type, field.kw_only = name, kind, kw_only
    vars_of: Any = field
    vars_of._field_type = dataclasses._FIELD  # type: ignore[attr-defined]  # ``fields`` asks for it
    return field


class _Shape:
    """What the methods of a class need to know about its fields."""

    def __init__(self, cls: type, fields: dict[str, dataclasses.Field[Any]], init: bool) -> None:
        missing = dataclasses.MISSING
        self.by_order = tuple(f.name for f in fields.values() if f.init and not f.kw_only)
        self.given = frozenset(f.name for f in fields.values() if f.init)
        self.defaults = {n: f.default for n, f in fields.items() if f.default is not missing}
        self.factories = tuple(
            (n, f.default_factory) for n, f in fields.items() if f.default_factory is not missing
        )
        self.names = tuple(fields)
        self.every = frozenset(fields)
        #: Whether an instance is nothing but the fields that its constructor takes.
        self.plain = init and len(self.given) == len(fields)
        self.shown = tuple(f.name for f in fields.values() if f.repr)
        self.compared = _values(tuple(f.name for f in fields.values() if f.compare))
        self.hashed = _values(
            tuple(n for n, f in fields.items() if (f.compare if f.hash is None else f.hash))
        )
        self.after = getattr(cls, "__post_init__", None)


def _values(names: tuple[str, ...]) -> Callable[[object], Any]:
    """A function that returns the values of these fields of an instance as one that compares."""
    if len(names) > 1:
        return attrgetter(*names)
    return (lambda it: (getattr(it, names[0]),)) if names else (lambda it: ())


def _init(self: Any, /, *given: Any, **named: Any) -> None:
    """Fields in their order, then by name. Raises TypeError for missing, unknown or double ones."""
    shape: _Shape = self._shape
    values = self.__dict__
    values.update(shape.defaults)
    values.update(named)
    known = named.keys() <= shape.given
    if given:
        by_order = shape.by_order[: len(given)]
        values.update(zip(by_order, given, strict=False))
        known = known and len(given) <= len(by_order) and named.keys().isdisjoint(by_order)
    for name, make in shape.factories:
        if name not in values:
            values[name] = make()
    if not known or len(values) != len(shape.names):
        raise _misuse(type(self).__name__, shape, given, named)
    if shape.after is not None:
        shape.after(self)


def _misuse(name: str, shape: _Shape, given: tuple[Any, ...], named: dict[str, Any]) -> TypeError:
    """The error for arguments that are not those of the class."""
    if len(given) > len(shape.by_order):
        return TypeError(f"{name} takes at most {len(shape.by_order)} values without a name")
    by_order = shape.by_order[: len(given)]
    for field in named:
        if field not in shape.given or field in by_order:
            return TypeError(f"{name}: field {field!r} is unknown or given twice")
    have = {*by_order, *named, *shape.defaults, *dict(shape.factories)}
    missing = [f for f in (*shape.by_order, *sorted(shape.given)) if f not in have]
    return TypeError(f"{name} needs {missing[0]!r}")


def _refuse_change(self: object, name: str, value: object = None) -> None:
    raise dataclasses.FrozenInstanceError(f"{type(self).__name__} cannot be changed: {name}")


@recursive_repr()
def _repr(self: Any) -> str:
    told = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._shape.shown)
    return f"{type(self).__qualname__}({told})"


def same_fields(self: Any, other: object) -> Any:
    """Whether both are of one class and their compared fields are equal."""
    shape: _Shape = self._shape
    if type(other) is not type(self):
        return NotImplemented
    return shape.compared(self) == shape.compared(other)


def same_hash(self: Any) -> int:
    """The hash of the compared fields."""
    shape: _Shape = self._shape
    return hash(shape.hashed(self))


def replace(record: T, **changes: Any) -> T:
    """A copy with some fields changed, as by ``dataclasses.replace`` in a fifth of its time.

    Of a dataclass of Python's library it is that function's.
    """
    shape: _Shape | None = getattr(record, "_shape", None)
    if shape is None or not shape.plain:
        return cast("T", dataclasses.replace(cast("Any", record), **changes))
    if not changes.keys() <= shape.given:
        raise _misuse(type(record).__name__, shape, (), {**vars(record), **changes})
    made = object.__new__(type(record))
    own = vars(record)  # with what cached properties have computed, which may change
    values = made.__dict__
    for name in shape.names:
        values[name] = own[name]
    values.update(changes)
    if shape.after is not None:
        shape.after(made)
    return made


@lru_cache(maxsize=4000)
def first_equal(value: T) -> T:
    """The first of all equal values that were asked for: equal ones are then the same object.

    Records that are parts of many keys are compared in no time so.
    """
    return value


class _Signature:
    """The signature of a class, made when ``inspect.signature`` asks for it."""

    def __get__(self, it: object, cls: type) -> Any:
        parameter, missing = inspect.Parameter, dataclasses.MISSING
        fields = [f for f in cls.__dataclass_fields__.values() if f.init]  # type: ignore[attr-defined]
        return inspect.Signature([
            parameter(
                f.name,
                parameter.KEYWORD_ONLY if f.kw_only else parameter.POSITIONAL_OR_KEYWORD,
                default=f.default if f.default is not missing else (
                    parameter.empty if f.default_factory is missing else f.default_factory
                ),
                annotation=f.type,
            )
            for f in sorted(fields, key=lambda f: f.kw_only)
        ])  # fmt: skip


class Same(Generic[T]):
    """A key equal only to keys of the same object ``it``, which it keeps alive."""

    __slots__ = ("it",)

    def __init__(self, it: T) -> None:
        self.it = it

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.it is other.it
