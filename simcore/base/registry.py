"""A named set of things of one kind, filled by explicit registration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Generic, TypeVar

from simcore.base.errors import UnknownName

T = TypeVar("T")


class Registry(Generic[T]):
    """Name -> entry. Raises ValueError for a name registered twice, UnknownName for an unknown one.

    ``kind``: what the entries are, for messages. ``files``: names of entries with the module that
    registers each, which is imported when its entry is first needed.
    """

    def __init__(self, kind: str, files: Mapping[str, str] | None = None) -> None:
        self.kind, self._files = kind, dict(files or {})
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
        if (found := self.get(name)) is None:
            raise UnknownName(self.kind, name, self)
        return found

    def get(self, name: str) -> T | None:
        """The entry of a name, or None where there is none."""
        if name in self._files and name not in self._entries:
            import_module(self._files[name])
        return self._entries.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._files, *self._entries]))

    def __len__(self) -> int:
        return len({*self._files, *self._entries})
