"""What is looked up once while one question is answered, and what is computed once it is asked for.

One question may take many predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cached_property, partial, wraps
from typing import Any, Generic, TypeVar, TypeVarTuple

Ts = TypeVarTuple("Ts")
R = TypeVar("R")
T = TypeVar("T")

#: What was looked up for the question that is being answered, by function and arguments.
_found: ContextVar[dict[Any, Any] | None] = ContextVar("_found", default=None)


@contextmanager
def one_question() -> Iterator[None]:
    """A context in which ``once_a_question`` holds; a question within another is part of it."""
    outer = _found.get()
    token = _found.set({} if outer is None else outer)
    try:
        yield
    finally:
        _found.reset(token)


def once_a_question(function: Callable[[*Ts], R]) -> Callable[[*Ts], R]:
    """The function, called once for equal arguments while one question is answered.

    Between questions its result may change, as that of reading a file does. Arguments are hashable
    and given by position.
    """

    @wraps(function)
    def call(*args: *Ts) -> R:
        found = _found.get()
        if found is None:
            return function(*args)
        key = (function, args)
        if key not in found:
            found[key] = function(*args)
        return found[key]

    return call


class Later(Generic[T]):
    """What ``make`` returns, computed once, when ``value`` is first read.

    ``make`` runs with the context variables of the moment at which this was created, so what
    was looked up for the question at hand stays known. A copy or pickle holds the computed value.
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
