"""One requirement of an issue, and how to compute whether it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simcore.base.units import PERCENT

if TYPE_CHECKING:
    from validate.must_hold.tables import Tables


@dataclass(frozen=True)
class Found:
    """The result of a clause. ``text``: the figure and a remark, such as its number of rows."""

    holds: bool
    text: str
    value: float | None = None


@dataclass(frozen=True)
class Clause:
    """A requirement. ``asked``: its limit as text. ``issue``: the issue or document that set it.

    ``compute``: returns the result, given the predicted tables that all clauses share.
    """

    name: str
    asked: str
    issue: str
    compute: Callable[[Tables], Found]


def percent(value: float) -> str:
    """A fraction as text, such as ``7.6 %``."""
    return f"{value * PERCENT:.1f} %"


def at_most(limit_frac: float, value: float | None, beside: str = "") -> Found:
    """A result that holds if the value is at most the limit; ``beside``: a remark on the figure."""
    return _judged(value is not None and value <= limit_frac, value, beside)


def at_least(limit_frac: float, value: float | None, beside: str = "") -> Found:
    """A result that holds if the value is at least the limit."""
    return _judged(value is not None and value >= limit_frac, value, beside)


def between(low_frac: float, high_frac: float, value: float | None, beside: str = "") -> Found:
    """A result that holds if the value is between the limits, or equal to one of them."""
    return _judged(value is not None and low_frac <= value <= high_frac, value, beside)


def _judged(holds: bool, value: float | None, beside: str) -> Found:
    text = "no row" if value is None else percent(value)
    return Found(holds, f"{text}{f' ({beside})' if beside else ''}", value)


def rows(score: Mapping[str, Any]) -> str:
    """The number of rows of a score as text, such as ``1,148 rows``."""
    return f"{score['n']:,} rows"
