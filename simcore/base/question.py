"""What is looked up once while one question is answered, however many predictions that takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar, TypeVarTuple

Ts = TypeVarTuple("Ts")
R = TypeVar("R")

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
        result: R = found[key]
        return result

    return call
