"""Options of a job under headings, in the help of commands that have many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from simcore.strategy.options import OPTIONS
from simcore.strategy.options.option import HEADINGS

#: Commands of fewer options list them as they are.
FEW = 25
#: The heading of a command's own options, behind the job's.
OWN = "Options"


def headings() -> tuple[str, ...]:
    """All headings, in the order of the help."""
    return (HEADINGS[0], OWN, *HEADINGS[1:])


def heading_of(name: str) -> str:
    """The heading under which a parameter of a command stands."""
    option = OPTIONS.get(name)
    return OWN if option is None or option.part == "length" else option.heading


def under_headings(params: Iterable[Any]) -> Iterator[tuple[str, list[Any]]]:
    """(heading, its parameters) of a command; one heading where it has few."""
    params = list(params)
    if len(params) < FEW:
        yield OWN, params
        return
    place = {option.name: i for i, option in enumerate(OPTIONS)}
    for heading in headings():
        found = [p for p in params if heading_of(p.name) == heading]
        yield heading, sorted(found, key=lambda p: place.get(p.name, -1))
