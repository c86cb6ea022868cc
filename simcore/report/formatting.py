"""Figures, lines and names of jobs as people read them: three digits, units named, 80 columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from math import floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcore.base.units import DAY, GIGA, HOUR, KILO, MEGA, PERCENT, format_seconds

if TYPE_CHECKING:
    from simcore.answer.result import Prediction

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


#: Options of a request that need no look-up, since the prediction states what they became.
_IN_PREDICTION = {
    "model", "gpus", "nnodes", "nproc_per_node", "strategy", "precision", "recompute", "optimizer",
    "offload", "micro_batch", "grad_accum", "global_batch", "tp", "pp", "vpp", "cp", "ep",
    "sequence_parallel", "schedule", "keep_timeline", "steps", "epochs",
}  # fmt: skip


def told_apart(predictions: Sequence[Prediction]) -> list[tuple[str, ...]]:
    """For each prediction its cluster and the settings in which it differs from the others."""
    results = [
        [p.model for p in predictions],
        [p.strategy for p in predictions],
        [p.layout for p in predictions],
        [p.precision for p in predictions],
        [p.optimizer for p in predictions],
        [f"recompute {p.recompute}" for p in predictions],
        [f"offload {p.offload}" for p in predictions],
        [f"micro-batch {p.micro_batch}" for p in predictions],
        [f"accum {p.grad_accum}" for p in predictions],
    ]
    differing = [texts for texts in results if len(set(texts)) > 1]
    requests = [_other_options(p) for p in predictions]
    for option in dict.fromkeys(name for request in requests for name in request):
        shown = [_shown(option, request.get(option)) for request in requests]
        if len(set(shown)) > 1:
            differing.append(shown)
    return [
        (p.cluster, *(texts[i] for texts in differing if texts[i]))
        for i, p in enumerate(predictions)
    ]


def _other_options(p: Prediction) -> Mapping[str, Any]:
    """The requested options that the prediction does not repeat; empty if it has no request."""
    call = getattr(p, "call", None)
    options: Mapping[str, Any] = call.words if call is not None else {}
    return {k: v for k, v in options.items() if k not in _IN_PREDICTION}


def _shown(option: str, value: Any) -> str:
    """An option and its value as text; of a path only the file's name. "" without a value."""
    if value is None:
        return ""
    if isinstance(value, str) and ("/" in value or "\\" in value):
        value = Path(value).stem
    return f"{option.replace('_', '-')} {value}"
