"""Attributes replaced for a while, and put back in reverse order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MISSING = object()


class Patches:
    """A context manager: what ``set`` and ``wrap`` replace is put back when it ends."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace ``owner.name``."""
        self._undo.append((owner, name, vars(owner).get(name, _MISSING)))
        setattr(owner, name, value)

    def wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """Replace the function ``owner.name`` by ``around(function, *args, **kwargs)``.

        Does nothing where ``owner`` has no such attribute.
        """
        plain = getattr(owner, name, None)
        if plain is None:
            return

        def call(*args: Any, **kwargs: Any) -> Any:
            return around(plain, *args, **kwargs)

        call.__name__ = getattr(plain, "__name__", name)
        call.__doc__ = getattr(plain, "__doc__", None)
        self.set(owner, name, call)

    def __enter__(self) -> Patches:
        return self

    def __exit__(self, *_: object) -> None:
        for owner, name, before in reversed(self._undo):
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        self._undo.clear()
