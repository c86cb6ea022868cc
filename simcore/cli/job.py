"""The options of a job for commands: their parameters and values come from the option table.

The decorator ``takes_job`` gives these options to a command that ends in ``**job``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Annotated, Any, TypeVar, get_type_hints

from simcore.cli import names
from simcore.cli.options import option as typer_option
from simcore.cli.values import with_zero, with_zeros
from simcore.strategy.options import OPTIONS, Option
from simcore.strategy.options.values import read_options

Command = TypeVar("Command", bound=Callable[..., Any])


def job_words() -> tuple[str, ...]:
    """Names of the command line's options of a job, except its model and its GPUs."""
    return tuple(OPTIONS.typed())


def repeated_words() -> tuple[str, ...]:
    """Names of the options of a job whose flag is repeated for further values."""
    return tuple(o.name for o in OPTIONS.typed().values() if o.repeated)


def _given(words: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a job among a command's arguments; an empty repeated option becomes None."""
    typed = OPTIONS.typed()
    found = {k: v for k, v in words.items() if k in typed}
    for name, option in typed.items():
        if option.repeated and name in found:
            found[name] = tuple(found[name] or ()) or None
    return found


def job_options(words: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """The options for ``simcore.api``, from the arguments of a command.

    For a wrong value the option is None and an error message is added to ``problems``.
    """
    options = _given(words)
    stage = options.pop("zero", None)
    options["strategy"] = with_zero(words.get("strategy"), stage, problems)
    read, wrong = read_options(options)
    problems += wrong
    return {name: read.get(name) for name in options}


def grid_options(words: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """The axes for ``simcore.api``, from the arguments of a command; ``api`` parses the grids."""
    options = _given(words)
    stages = options.pop("zero", None)
    options["strategy"] = with_zeros(words.get("strategy"), stages, problems)
    return options


@lru_cache(maxsize=8)
def _parameters(_version: int, several: bool) -> tuple[inspect.Parameter, ...]:
    """The table's options as parameters of a command; ``several``: each takes several values."""
    return tuple(_parameter(option, several) for option in OPTIONS.typed().values())


def _parameter(option: Option, several: bool) -> inspect.Parameter:
    metavar = option.several if several else option.kind.metavar
    info = typer_option(option.typed, metavar, option.help, names.of_option(option))
    kind: Any = list[str] | None if option.repeated else str | None
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=None,
        annotation=Annotated[kind, info],
    )  # fmt: skip


def takes_job(
    only: Collection[str] | None = None, *, axes: bool = False
) -> Callable[[Command], Command]:
    """A decorator that adds the options of a job to a command that ends in ``**job``.

    ``only``: names of the options to add (default: all); options that the command declares itself
    are not added. ``axes``: whether each option takes a list of values, as in a sweep.
    """

    def decorate(command: Command) -> Command:
        own = get_type_hints(command, include_extras=True)
        first = [
            p.replace(annotation=own[p.name])
            for p in inspect.signature(command).parameters.values()
            if p.kind is not inspect.Parameter.VAR_KEYWORD
        ]

        def sign() -> None:
            parameters = [
                *first,
                *(
                    p
                    for p in _parameters(OPTIONS.version, axes)
                    if p.name not in own and (only is None or p.name in only)
                ),
            ]
            command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
            command.__annotations__ = {p.name: p.annotation for p in parameters}

        OPTIONS.when_changed(sign)
        return command

    return decorate
