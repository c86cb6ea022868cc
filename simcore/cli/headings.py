"""Sorts the options of a command under headings, for the help of commands with many options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from simcore.strategy.options import OPTIONS
from simcore.strategy.options.option import HEADINGS

#: Commands with fewer options list them without headings.
FEW = 25
#: The heading of options that do not describe the job.
OWN = "Options"


def headings() -> tuple[str, ...]:
    """All headings, in the order of the help."""
    return (HEADINGS[0], OWN, *HEADINGS[1:])


def heading_of(name: str) -> str:
    """The heading of a parameter of a command."""
    option = OPTIONS.get(name)
    return OWN if option is None or option.part == "length" else option.heading


def under_headings(params: Iterable[Any]) -> Iterator[tuple[str, list[Any]]]:
    """(heading, its parameters) for the parameters of a command; one heading for few parameters."""
    params = list(params)
    if len(params) < FEW:
        yield OWN, params
        return
    place = {option.name: i for i, option in enumerate(OPTIONS)}
    for heading in headings():
        found = [p for p in params if heading_of(p.name) == heading]
        yield heading, sorted(found, key=lambda p: place.get(p.name, -1))
