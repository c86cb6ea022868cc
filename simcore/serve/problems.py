"""The problems of a request: one sentence for each, and the control to show it at."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field

from simcore.base.errors import (
    DataError,
    SimcoreError,
    UnknownName,
    UsageError,
    nearest,
)
from simcore.base.names import printable
from simcore.serve.query import set_up
from simcore.strategy.options import OPTIONS, Option, word_meant


class Problem(BaseModel):
    """One mistake in a request."""

    field: str = Field(description="the parameter that is wrong; empty where several are involved")
    message: Annotated[str, AfterValidator(printable)] = Field(
        description="one sentence, with the nearest valid choice where known"
    )


class Problems(BaseModel):
    """All mistakes in a request."""

    problems: list[Problem]


def field_of(message: str) -> str:
    """The parameter that an error message is about; empty where it cannot be recognised.

    First the beginning of the message is compared with the option's name and patterns, then the
    rest of it. If several options match, the one with the longest match is returned.
    """
    if (unknown := re.match(r"unknown ([a-z0-9-]+) '", message)) is not None:
        word = unknown[1].replace("-", "_")
        if word in set_up().model_fields:  # the names in the message are not searched
            return word
    return _about(OPTIONS.version, message)


#: Patterns of messages about parameters that are not options of a job.
_OTHERS = {"dialect": (r"^unknown dialect",)}


@lru_cache(maxsize=512)
def _about(version: int, message: str) -> str:
    """The field with the longest match at the beginning of the message, else anywhere in it."""
    begins, holds = _patterns(version)
    found = [(m[0], field) for field, p in begins if (m := p.match(message))]
    found = found or [(m[0], field) for field, p in holds if (m := p.search(message))]
    return max(found, key=lambda match: len(match[0]), default=("", ""))[1]


Patterns = tuple[tuple[str, re.Pattern[str]], ...]


def _patterns_of(option: Option) -> tuple[str, ...]:
    """Patterns of messages about an option: its flag, where that is not its name, and its own."""
    return (f"^{re.escape(option.flag)}\\b", *option.messages) if option.flag else option.messages


@lru_cache(maxsize=2)
def _patterns(_version: int) -> tuple[Patterns, Patterns]:
    """(field, pattern) for the beginning of messages, and for any place in them."""
    begins: list[tuple[str, re.Pattern[str]]] = []
    holds: list[tuple[str, re.Pattern[str]]] = []
    known = {o.name: _patterns_of(o) for o in OPTIONS if o.control is not None} | _OTHERS
    for name, patterns in known.items():
        own = name.replace("_", "[-_]")
        begins.append((name, re.compile(rf"(?:--)?{own}\b")))
        if "_" in name:
            holds.append((name, re.compile(own)))
        for text in patterns:
            (begins if text.startswith("^") else holds).append((name, re.compile(text)))
    return tuple(begins), tuple(holds)


def of_error(err: SimcoreError) -> Problems:
    """The problems in an error of simcore."""
    if isinstance(err, UnknownName) and err.kind in set_up().model_fields:
        return Problems(problems=[Problem(field=err.kind, message=str(err))])
    if isinstance(err, DataError):
        return Problems(problems=[Problem(field="", message=str(err))])
    return Problems(problems=[Problem(field=field_of(s), message=s) for s in err.sentences])


def of_validation(errors: Iterable[Mapping[str, Any]], known: Sequence[str]) -> Problems:
    """The problems in FastAPI's validation errors, in the wording of the command line.

    ``known``: the valid parameters.
    """
    found = []
    for error in errors:
        field = str(error["loc"][-1]) if error["loc"] else ""
        found.append(Problem(field=field if field in known else "", message=_say(error, known)))
    return Problems(problems=found)


def _say(error: Mapping[str, Any], known: Sequence[str]) -> str:
    field = str(error["loc"][-1]) if error["loc"] else "request"
    flag = f"--{field.replace('_', '-')}"
    kind, limits = error["type"], error.get("ctx") or {}
    if (sentence := _by_the_table(field, error.get("input"))) is not None:
        return sentence
    given = repr(error.get("input"))
    given = given if len(given) <= 60 else given[:57] + "..."
    if kind == "value_error":
        return str(limits["error"])
    if kind == "missing":
        return f"{flag} is missing"
    if kind == "extra_forbidden":
        meant = word_meant(field, "", known) or next(map(repr, nearest(field, known, 1)), "")
        hint = f": did you mean {meant}?" if meant else ""
        return f"unknown parameter {field[:60]!r}{hint}"
    if kind.startswith(("int_", "float_")):
        return f"{flag} {given} is not a {'whole ' if kind.startswith('int_') else ''}number"
    if kind == "greater_than_equal":
        return f"{flag} must be at least {limits['ge']:,}, not {given}"
    if kind == "less_than_equal":
        return f"{flag} must be at most {limits['le']:,.0f}, not {given}"
    if kind == "greater_than":
        return f"{flag} must be above {limits['gt']:g}, not {given}"
    if kind == "finite_number":
        return f"{flag} must be finite, not {given}"
    if kind == "string_too_short":
        return f"{flag} is empty"
    if kind == "string_too_long":
        return f"{flag} is longer than {limits['max_length']} characters"
    text = str(error.get("msg", "is not valid"))
    return f"{flag}: {text[:1].lower()}{text[1:]}"


def _by_the_table(field: str, value: object) -> str | None:
    """The option table's message about a wrong value; None where it accepts the value, and for
    other fields.
    """
    option = OPTIONS.get(field)
    if option is None or option.part != "option" or not isinstance(value, str):
        return None
    try:
        option.read(value)
    except UsageError as err:
        return str(err)
    return None
