"""What a page is made of: tables, pictures, sections; plain values that a template lays out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from simcore.base.errors import UsageError


@dataclass(frozen=True)
class Table:
    """``right`` are columns of figures; the first cell of a row names it."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Picture:
    """An SVG element and what it shows."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it; ``label`` names it among the links on top."""

    key: str
    heading: str
    lines: Sequence[str] = ()
    items: Sequence[str] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    label: str = ""


@dataclass(frozen=True)
class Card:
    """The answer in short: a verdict, its facts, and what else is to be seen."""

    title: str
    subtitle: str = ""
    good: bool | None = None
    verdict: str = ""
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    notes: Sequence[str] = field(default=())


def picture(kind: str, data: Any, caption: str) -> Picture:
    """A plot as an element. Raises UsageError without matplotlib."""
    from simcore.report.plots import draw, svg_element

    figure = draw(kind, data)
    prefix = "s" + sha256(f"{kind} {caption}".encode()).hexdigest()[:8]
    return Picture(svg_element(figure, caption, prefix), caption)


def pictures(*asked: tuple[str, Any, str]) -> tuple[Picture, ...]:
    """The plots (kind, data, caption); none where matplotlib is not installed."""
    try:
        return tuple(picture(*words) for words in asked)
    except UsageError:
        return ()


def numeric(*columns: int) -> frozenset[int]:
    """Columns of figures."""
    return frozenset(columns)
