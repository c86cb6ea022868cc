"""Signatures and docstrings of functions that take a job's options, made from the option table.

``inspect.signature`` and ``help`` show every option with its type and default. ``make_request``
refuses unknown keywords and suggests the nearest.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from simcore.strategy.options import OPTIONS, Option
from simcore.strategy.options.option import HEADINGS
from simcore.strategy.options.values import shown, written_out
from simcore.workload.permission import trusts_call

P = ParamSpec("P")
R = TypeVar("R")
Function = TypeVar("Function", bound=Callable[..., Any])

_WIDTH, _COLUMN = 92, 22
_ONE = "None means the default of the model, the training program or the cluster."
_MANY = "each takes a value, a sequence of values or a grid as text; those marked (one) one value."


def takes_options(*, several: bool = False) -> Callable[[Function], Function]:
    """A decorator that adds the table's options to the signature and docstring of a function.

    The function ends in ``**options``. ``several``: whether it accepts several values per option.
    """

    def decorate(function: Function) -> Function:
        own = inspect.signature(function)
        first = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
        text = inspect.cleandoc(function.__doc__ or "")
        taken = frozenset(p.name for p in first)

        def sign() -> None:
            parameters = [p for p in _parameters(OPTIONS.version, several) if p.name not in taken]
            function.__signature__ = own.replace(parameters=[*first, *parameters])  # type: ignore[attr-defined]
            function.__doc__ = f"{text}\n\n{_help(OPTIONS.version, several)}"

        OPTIONS.when_changed(sign)
        return function

    return decorate


def takes_job(at: int = 0) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator of a function whose ``at``-th argument is a model, which a person typed.

    The model may also be an object, a module or a config, and ``inputs`` tensors (``objects``).
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        trusted = trusts_call(at)(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            kwargs = written_out(kwargs)  # type: ignore[assignment]
            model = args[at] if len(args) > at else kwargs.get("model")
            if isinstance(model, str | Path) and kwargs.get("inputs") is None:
                return trusted(*args, **kwargs)
            from simcore.api.objects import with_objects

            values, words = with_objects(args, kwargs, at)
            return trusted(*values, **words)

        return call

    return decorate


@lru_cache(maxsize=4)
def _parameters(_version: int, several: bool) -> tuple[inspect.Parameter, ...]:
    return tuple(
        inspect.Parameter(
            option.name, inspect.Parameter.KEYWORD_ONLY, default=None,
            annotation=_type(option, several),
        )
        for option in OPTIONS.keywords().values()
    )  # fmt: skip


def _type(option: Option, several: bool) -> Any:
    one = option.kind.python
    return one | Sequence[Any] if several and option.axis is not None else one


@lru_cache(maxsize=4)
def _help(_version: int, several: bool) -> str:
    """The help text of all options: one paragraph per heading, in two columns."""
    found = [f"Options: {_MANY if several else _ONE}"]
    for heading in HEADINGS:
        options = [o for o in OPTIONS.keywords().values() if o.heading == heading]
        lines = [line for o in options for line in _lines(o, several)]
        if lines:
            found.append("\n".join([f"{heading}:", "", *lines]))
    return "\n\n".join(found) + "\n"


def _lines(option: Option, several: bool) -> list[str]:
    unit = f" [{option.unit}]" if option.unit else ""
    one = " (one)" if several and option.axis is None else ""
    text = f"{option.help_text.rstrip('.')}.{unit}{one}"
    if option.unsaid is not None and "default" not in f"{option.help_text} {option.more}".lower():
        text += f" Default: {shown(option.unsaid)}."
    if option.more:
        text += f" {option.more}"
    wrapped = textwrap.wrap(
        text, _WIDTH - _COLUMN, break_long_words=False, break_on_hyphens=False
    )  # fmt: skip
    first = f"{option.name:<{_COLUMN - 4}}    {wrapped[0]}"
    return [first, *(f"{'':<{_COLUMN}}{line}" for line in wrapped[1:])]


__all__ = ["takes_job", "takes_options"]
