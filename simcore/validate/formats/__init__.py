"""Readers of measured tables: simcore's own format, and published tables that data describes.

The columns of a table tell its format. This module has what the readers share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from simcore.base.errors import BadQuantity
from simcore.base.record import dataclass
from simcore.base.units import parse_quantity
from simcore.strategy.options import OPTIONS, Switch, Whole
from simcore.strategy.options.kinds import SWITCH
from simcore.strategy.programs import program_named
from simcore.validate.case import Case, Skipped
from simcore.workload.models import Scalar, setting_defaults

Row = dict[str, str]


@dataclass(frozen=True)
class Format:
    """A format of measured tables.

    ``needs``: a table that has all of these columns is of this format. ``read``: turns a row's name
    and cells into a job with its measurements, or into the reason why the row is skipped.
    """

    name: str
    needs: frozenset[str]
    read: Callable[[str, Row], Case | Skipped]


def number(row: Row, column: str, *, at_least: float = 0.0) -> float | None:
    """A cell as a finite number; None if it is blank.

    Raises ValueError, which names the column, for other text and for a number below ``at_least``.
    """
    text = row.get(column, "")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        hint = _without_unit(column, text)
        raise ValueError(f"{column}: {text!r} is not a number{hint}") from None
    if not math.isfinite(value) or value < at_least:
        raise ValueError(f"{column}: {text!r} must be finite and at least {at_least:g}")
    return value


def _without_unit(column: str, text: str) -> str:
    """How to write the number in ``text`` if it has a comma, or a unit in a column of seconds."""
    if text.count(",") == 1 and text.replace(",", "").isdigit():
        return f": write {text.replace(',', '.')}, or {text.replace(',', '')} if that is meant"
    if not column.endswith("_s") or column.endswith("_per_s"):
        return ""
    try:
        return f": write {parse_quantity(text, 'seconds'):g}, in seconds"
    except BadQuantity:
        return ""


def whole(row: Row, column: str, default: int | None = None) -> int:
    """A cell as a whole number of at least 1; ``default`` if it is blank.

    Raises ValueError for any other cell, and for a blank one without a default.
    """
    value = number(row, column)
    if value is None:
        if default is None:
            raise ValueError(f"{column} is blank")
        return default
    if value != int(value) or value < 1:
        raise ValueError(f"{column}: {row[column]!r} must be a whole number of at least 1")
    return int(value)


def option_value(name: str, text: str) -> int | bool | str:
    """A cell as the value of an option: a whole number, a switch, or its text, which is not read.

    Raises ValueError, which names the option, for another value of a number or a switch.
    """
    kind = OPTIONS[name].kind
    if isinstance(kind, Switch):
        if text.lower() not in SWITCH:
            raise ValueError(f"{name}: {text!r} must be on or off")
        return SWITCH[text.lower()]
    if not isinstance(kind, Whole) or (kind.or_max and text == "max"):
        return text
    value = number({name: text}, name, at_least=kind.least or 0.0)
    if value is None or value != int(value):
        raise ValueError(f"{name}: {text!r} must be a whole number")
    return int(value)


def with_defaults(arch: str, settings: Mapping[str, Scalar], software: str) -> dict[str, Scalar]:
    """The settings, plus the architecture's default for each one that the library would change.

    The result is sorted by name. With the defaults stated, a prediction with ``software`` keeps
    them instead of taking the library's own settings.
    """
    runs = program_named(software).runs
    usual = {k: v for k, v in setting_defaults(arch).items() if runs and k in runs.settings}
    return dict(sorted({**usual, **settings}.items()))


def present(**figures: float | None) -> dict[str, float]:
    """The figures that are not None."""
    return {k: v for k, v in figures.items() if v is not None}
