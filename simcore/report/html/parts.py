"""The parts of a page: tables, pictures, sections and cards, as values for a template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from hashlib import sha256
from typing import Any

from simcore.base.errors import UsageError
from simcore.base.record import dataclass
from simcore.report.tables import Table


@dataclass(frozen=True)
class Picture:
    """A plot as an SVG element, and a caption that says what it shows."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Section:
    """A heading and its content.

    ``key`` is the section's anchor, ``label`` the text of its link at the top ("": no link).
    """

    key: str
    heading: str
    lines: Sequence[str] = ()
    items: Sequence[str] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    label: str = ""


@dataclass(frozen=True)
class Card:
    """A result in short: title, verdict, main facts, tables, plots and notes.

    ``good`` colours the verdict; None if there is nothing to judge.
    """

    title: str
    subtitle: str = ""
    good: bool | None = None
    verdict: str = ""
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    notes: Sequence[str] = field(default=())


def picture(kind: str, data: Any, caption: str) -> Picture:
    """A plot of ``data``; ``kind`` is one of ``plots.KINDS``.

    Raises UsageError if matplotlib is not installed.
    """
    from simcore.report.plots import draw, svg_element

    figure = draw(kind, data)
    prefix = "s" + sha256(f"{kind} {caption}".encode()).hexdigest()[:8]
    return Picture(svg_element(figure, caption, prefix), caption)


def pictures(*plots: tuple[str, Any, str]) -> tuple[Picture, ...]:
    """One picture per (kind, data, caption); none if matplotlib is not installed."""
    try:
        return tuple(picture(*plot) for plot in plots)
    except UsageError:
        return ()
