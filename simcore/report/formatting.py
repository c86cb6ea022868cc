"""Figures and lines as people read them: three digits, units named, 80 columns."""

from __future__ import annotations

import re
import textwrap
from math import floor, log10

from simcore.base.units import DAY, GIGA, HOUR, KILO, MEGA, PERCENT, format_seconds

#: Labelled sentences about a result, in order.
Facts = list[tuple[str, str]]
WIDTH = 80
#: Width of the words at the left edge (FITS, STEP…).
EDGE = 12
#: Blanks at which a line must not break.
_GLUE = re.compile(r" (?=\(default\))|(?<=\bMFU) |(?<=\d) (?=(?:ns|us|ms|s|min|h|d|GB|GiB|%)\b|%)")


def figure(value: float) -> str:
    """Three significant digits without an exponent up to a billion: ``4,330``, ``30.1``."""
    size = abs(value)
    if size >= KILO**3:
        return f"{value:.2e}"
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    if 0 < size < 0.01:  # as many behind the point as three digits need
        digits = 2 - floor(log10(size))
    return f"{value:,.{digits}f}"


def percent(frac: float, *, signed: bool = False) -> str:
    """A share as text: ``71 %``; below ten with one digit behind the point."""
    value = frac * PERCENT
    digits = 0 if abs(value) >= 9.95 or value == 0 else 1
    return f"{value:{'+' if signed else ''}.{digits}f} %"


def share(frac: float | None) -> str:
    """``12 %``, or a dash where there is no figure."""
    return "-" if frac is None else percent(frac)


def nearly_all(frac: float) -> str:
    """A share near one: ``99.6 %``, which what is lacking from it must not contradict."""
    return f"{frac * PERCENT:.1f} %" if 0.99 <= frac < 0.9995 else percent(frac)


def gigabytes(n_bytes: float) -> str:
    """Decimal gigabytes, without the unit."""
    return figure(n_bytes / GIGA)


def days(seconds: float) -> str:
    """A duration as text: ``27.4 d``, or ``31.2 h`` below two days."""
    if seconds >= 2 * DAY:
        return f"{figure(seconds / DAY)} d"
    return f"{figure(seconds / HOUR)} h" if seconds >= HOUR else format_seconds(seconds)


def energy(n_kwh: float) -> str:
    """An energy as text: ``121 MWh``, or ``11.0 kWh`` below one MWh."""
    return f"{figure(n_kwh / KILO)} MWh" if n_kwh >= KILO else f"{figure(n_kwh)} kWh"


def money(dollars: float) -> str:
    """An amount of dollars as text: ``$2.31M``, ``$412k``, ``$88.2``."""
    for size, unit in ((GIGA, "G"), (MEGA, "M"), (KILO, "k")):
        if dollars >= size:
            return f"${figure(dollars / size)}{unit}"
    return f"${figure(dollars)}"


def odds(prob: float) -> str:
    """A probability as text: ``57 %``; near its ends ``> 99 %`` and ``< 1 %``."""
    if prob > 0.99:
        return "> 99 %"
    return "< 1 %" if prob < 0.01 else f"{prob * PERCENT:.0f} %"


def plural(unit: str) -> str:
    """``clip`` to ``clips``; a word that ends in s stays."""
    return unit if unit.endswith("s") else unit + "s"


def counted(n: int, unit: str) -> str:
    """``1 clip``, ``1,024 clips``."""
    return f"{n:,} {unit if n == 1 else plural(unit)}"


def labelled(label: str, text: str, limit: int | None = None) -> list[str]:
    """``text`` behind ``label``; cut to ``limit`` lines with an ellipsis."""
    lines = wrapped(text, WIDTH - EDGE, limit)
    return [f"{label if i == 0 else '':<{EDGE}}{line}" for i, line in enumerate(lines)]


def wrapped(text: str, width: int, limit: int | None = None) -> list[str]:
    """Wrapped text in which a figure stays with its unit and "(default)" with its word."""
    glued = _GLUE.sub("\0", text)
    lines = textwrap.wrap(glued, width, max_lines=limit, placeholder=" ...", break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]
