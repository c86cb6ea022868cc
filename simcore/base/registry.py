"""A named set of things of one kind, filled by explicit registration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from simcore.base.errors import UnknownName

T = TypeVar("T")


class Registry(Generic[T]):
    """Name -> entry. Raises ValueError for a name registered twice, UnknownName for an unknown one.

    ``kind``: what the entries are, for messages.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that registers an entry under a name: ``@ARCHS.register("dit")``."""

        def add(entry: T) -> T:
            if name in self._entries:
                raise ValueError(f"{self.kind} {name!r} is registered twice")
            self._entries[name] = entry
            return entry

        return add

    @contextmanager
    def registered(self, name: str, entry: T) -> Iterator[T]:
        """An entry that there is within a ``with`` block alone."""
        self.register(name)(entry)
        try:
            yield entry
        finally:
            del self._entries[name]

    def __getitem__(self, name: str) -> T:
        try:
            return self._entries[name]
        except KeyError:
            raise UnknownName(self.kind, name, self._entries) from None

    def get(self, name: str) -> T | None:
        """The entry of a name, or None where there is none."""
        return self._entries.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
