"""A value that is computed when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from functools import cached_property, partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Later(Generic[T]):
    """What ``make`` returns, computed once, when ``value`` is first read.

    ``make`` runs with the context variables of the moment at which this was created, such as the
    models that were traced for the question at hand. A copy or pickle holds the computed value.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make, self._context = make, copy_context()

    @cached_property
    def value(self) -> T:
        """The value. Raises whatever ``make`` raises."""
        return self._context.run(self._make)

    def __reduce__(self) -> tuple[Any, ...]:
        return Later, (partial(_same, self.value),)


def _same(value: T) -> T:
    return value
