"""What is wrong with a request: one clear sentence each, and the control that it is about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, Field

from simcore.base.errors import (
    DataError,
    InvalidConfig,
    SimcoreError,
    UnknownName,
    UsageError,
    nearest,
)
from simcore.serve.query import set_up
from simcore.strategy.options import OPTIONS
from simcore.strategy.options.synonyms import word_meant


class Problem(BaseModel):
    """One thing that is wrong."""

    field: str = Field(description="the parameter that it is about; empty where it is several")
    message: str = Field(description="one sentence, with the nearest valid choice where known")


class Problems(BaseModel):
    """Everything that is wrong with a request, at once."""

    problems: list[Problem]


def field_of(message: str) -> str:
    """The parameter that a sentence of simcore is about; empty where no word tells.

    A sentence begins with the option's name, or with other words of its own; else it holds such
    words somewhere. Of several options that with the longest words counts.
    """
    if (unknown := re.match(r"unknown ([a-z0-9-]+) '", message)) is not None:
        word = unknown[1].replace("-", "_")
        if word in set_up().model_fields:  # whatever the known names are called
            return word
    return _about(OPTIONS.version, message)


#: Sentences about what is no option of a job.
_OTHERS = {"dialect": (r"^unknown dialect",)}


@lru_cache(maxsize=512)
def _about(version: int, message: str) -> str:
    """The field whose words are the longest at the beginning, else anywhere in the sentence."""
    begins, holds = _patterns(version)
    found = [(m[0], field) for field, p in begins if (m := p.match(message))]
    found = found or [(m[0], field) for field, p in holds if (m := p.search(message))]
    return max(found, key=lambda match: len(match[0]), default=("", ""))[1]


Patterns = tuple[tuple[str, re.Pattern[str]], ...]


@lru_cache(maxsize=2)
def _patterns(_version: int) -> tuple[Patterns, Patterns]:
    """Of each field: how sentences about it begin, and what they hold wherever it stands."""
    begins: list[tuple[str, re.Pattern[str]]] = []
    holds: list[tuple[str, re.Pattern[str]]] = []
    known = {o.name: o.told_by for o in OPTIONS if o.control is not None} | _OTHERS
    for name, told_by in known.items():
        own = name.replace("_", "[-_]")
        begins.append((name, re.compile(rf"(?:--)?{own}\b")))
        if "_" in name:
            holds.append((name, re.compile(own)))
        for text in told_by:
            (begins if text.startswith("^") else holds).append((name, re.compile(text)))
    return tuple(begins), tuple(holds)


def of_error(err: SimcoreError) -> Problems:
    """Every violation of an error as a problem."""
    sentences: Sequence[str] = err.violations if isinstance(err, InvalidConfig) else (str(err),)
    if isinstance(err, UnknownName) and err.kind in set_up().model_fields:
        return Problems(problems=[Problem(field=err.kind, message=str(err))])
    if isinstance(err, DataError):
        return Problems(problems=[Problem(field="", message=str(err))])
    return Problems(problems=[Problem(field=field_of(s), message=s) for s in sentences])


def of_validation(errors: Iterable[Mapping[str, Any]], known: Sequence[str]) -> Problems:
    """FastAPI's findings in the words of the command line."""
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
        return f"{flag} is longer than {limits['max_length']} letters"
    text = str(error.get("msg", "is not valid"))
    return f"{flag}: {text[:1].lower()}{text[1:]}"


def _by_the_table(field: str, value: object) -> str | None:
    """What the table says of a wrong value; None where it would take it, and of other fields."""
    option = OPTIONS.get(field)
    if option is None or option.part != "option" or not isinstance(value, str):
        return None
    try:
        option.read(value)
    except UsageError as err:
        return str(err)
    return None
