"""The words that describe a job, shared by every command that predicts one.

``predict`` declares them once; other commands take over its options with ``takes_job``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar, get_type_hints

from simcore.cli.values import whole

Command = TypeVar("Command", bound=Callable[..., Any])

#: Parameters of ``predict`` that do not describe the job: what to do with it, and how to show it.
OTHERS = (
    "ctx", "model", "gpus", "steps", "epochs", "emit", "as_json", "trace", "memory_snapshot",
    "memory_plot", "plot", "plot_kind", "scaling", "watch", "explain",
)  # fmt: skip


@lru_cache(maxsize=1)
def job_words() -> tuple[str, ...]:
    """The words of ``simcore.api`` that ``predict`` declares as options, besides model and gpus."""
    from simcore.cli.predict import predict

    return tuple(p for p in inspect.signature(predict).parameters if p not in OTHERS)


def job_options(words: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """The options of ``simcore.api`` that words of the command line mean.

    What ``Options`` has as ``int | None`` is a whole number from 1; ``micro_batch`` may be "max"
    and is read further in.
    """
    from simcore.engine.request import Options

    options = {k: v for k, v in words.items() if k in job_words()}
    for name, kind in get_type_hints(Options).items():
        if name in options and kind == int | None:
            options[name] = whole(name.replace("_", "-"), options[name], problems)
    if options.get("inputs") is not None:
        options["inputs"] = tuple(options["inputs"]) or None
    return options


def takes_job(source: Callable[..., Any]) -> Callable[[Command], Command]:
    """Give a command that ends in ``**job`` the options of ``source`` that describe a job."""

    def decorate(command: Command) -> Command:
        own = get_type_hints(command, include_extras=True)
        job = get_type_hints(source, include_extras=True)
        parameters = [
            p.replace(annotation=own[p.name])
            for p in inspect.signature(command).parameters.values()
            if p.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        parameters += [
            p.replace(annotation=job[p.name], kind=inspect.Parameter.KEYWORD_ONLY)
            for p in inspect.signature(source).parameters.values()
            if p.name not in OTHERS
        ]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate
