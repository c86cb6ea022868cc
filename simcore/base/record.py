"""Immutable values of named fields whose classes cost next to nothing to declare.

A frozen dataclass writes and compiles its methods while it is imported, half a millisecond each:
too much for a dozen classes that every command loads before it does anything.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar, dataclass_transform


@dataclass_transform(frozen_default=True)
class Record:
    """A value with the fields that its class annotates, in their order; defaults as written there.

    ``class Point(Record, kw_only=True)`` takes its fields by name only. Raises TypeError for fields
    that are missing, unknown or given twice, AttributeError for one that is set later.
    """

    _fields: ClassVar[tuple[str, ...]] = ()
    _kw_only: ClassVar[bool] = False

    def __init_subclass__(cls, *, kw_only: bool = False) -> None:
        cls._fields = tuple(
            name
            for name, kind in cls.__annotations__.items()
            if not str(kind).startswith("ClassVar")
        )
        cls._kw_only = kw_only

    def __init__(self, *given: Any, **named: Any) -> None:
        """Fields in their order, then by name."""
        fields = self._fields
        if len(given) > (0 if self._kw_only else len(fields)):
            raise TypeError(f"{type(self).__name__} takes fewer values without a name")
        values = dict(zip(fields, given, strict=False))
        for name, value in named.items():
            if name in values or name not in fields:
                raise TypeError(f"{type(self).__name__}: field {name!r} is unknown or given twice")
            values[name] = value
        for name in fields:
            if name not in values and not hasattr(type(self), name):
                raise TypeError(f"{type(self).__name__} needs {name!r}")
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed: {name}")

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{type(self).__name__}({told})"


T = TypeVar("T")


class Same(Generic[T]):
    """A key equal only to keys of the same object ``it``, which it keeps alive."""

    __slots__ = ("it",)

    def __init__(self, it: T) -> None:
        self.it = it

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.it is other.it
