"""One clause of an issue: what was asked, and how to compute whether it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simcore.base.units import PERCENT

if TYPE_CHECKING:
    from validate.must_hold.tables import Tables


@dataclass(frozen=True)
class Found:
    """What a clause came to; ``text``: the figure, and what belongs beside it."""

    holds: bool
    text: str
    value: float | None = None


@dataclass(frozen=True)
class Clause:
    """A line of the table. ``issue``: who asked; ``compute`` takes the tables that all share."""

    name: str
    asked: str
    issue: str
    compute: Callable[[Tables], Found]


def percent(value: float) -> str:
    """``7.6 %``."""
    return f"{value * PERCENT:.1f} %"


def at_most(limit_frac: float, value: float | None, beside: str = "") -> Found:
    """Holds where the share is no larger than the limit."""
    return _judged(value is not None and value <= limit_frac, value, beside)


def at_least(limit_frac: float, value: float | None, beside: str = "") -> Found:
    """Holds where the share is no smaller than the limit."""
    return _judged(value is not None and value >= limit_frac, value, beside)


def between(low_frac: float, high_frac: float, value: float | None, beside: str = "") -> Found:
    """Holds where the share lies within both limits."""
    return _judged(value is not None and low_frac <= value <= high_frac, value, beside)


def _judged(holds: bool, value: float | None, beside: str) -> Found:
    text = "no row" if value is None else percent(value)
    return Found(holds, f"{text}{f' ({beside})' if beside else ''}", value)


def rows(score: Mapping[str, Any]) -> str:
    """``1,148 rows``."""
    return f"{score['n']:,} rows"
