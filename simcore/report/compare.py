"""Options side by side in 80 columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence

from simcore.base.units import GIGA, format_seconds
from simcore.engine.result import Prediction
from simcore.planning.compare import Column, Comparison
from simcore.planning.energy import SOURCE
from simcore.report.formatting import WIDTH, figure, gigabytes, percent, plural, wrapped
from simcore.report.sentences import beyond_all, fragmentation, lost_bytes, more, strategy
from simcore.report.text_of import text_of

_LABEL = 14
#: Options that stand side by side at most; more begin a second block.
_ACROSS = 4


@text_of.register
def render_comparison(c: Comparison) -> str:
    """The whole answer as text."""
    lines = wrapped(f"{c.model}", WIDTH)
    if c.defaults:
        lines += wrapped(f"defaults: {', '.join(c.defaults)}", WIDTH)
    for start in range(0, len(c.columns), _ACROSS):
        lines += ["", *_block(c.columns[start : start + _ACROSS], c.sample_unit)]
    told = [line for words in sources(c) for line in _indented(*words)]
    return "\n".join([*lines, "", *verdict(c), *told]).rstrip() + "\n"


def _block(columns: Sequence[Column], unit: str) -> list[str]:
    width = (WIDTH - _LABEL) // max(len(columns), 2) - 1
    lines = _row("", [" ".join([c.cluster, c.words]) for c in columns], width)
    lines.append("-" * min(WIDTH, _LABEL + len(columns) * (width + 1)))
    for label, cells in rows_of(columns, unit):
        lines += _row(label, cells, width) if cells else [label]
    return lines


Cell = Callable[[Column, Prediction], str]


def rows_of(columns: Sequence[Column], unit: str) -> Iterator[tuple[str, list[str]]]:
    """(what, one value a column), in order; a heading has no values.

    Of what cannot be, the first row says why.
    """
    units = plural(unit)
    there = [c.prediction for c in columns if c.prediction is not None]
    helps: list[tuple[str, Cell | None]] = []
    if any(p.faster for p in there):
        helps.append(("faster with", lambda _c, p: _faster(p)))
    if not all(p.fits for p in there):
        helps.append(("fits with", lambda _c, p: _fix(p)))
    rows: list[tuple[str, Cell | None]] = [
        ("fits", lambda _c, p: _fits(p)),
        ("memory", lambda _c, p: f"{figure(p.memory.device_bytes / GIGA)} of "
                                 f"{figure(p.memory.capacity_bytes / GIGA)} GB"),
        ("step", lambda _c, p: format_seconds(p.step_time_s.value)),
        ("  80 % within", lambda _c, p: _range(p.step_time_s.low, p.step_time_s.high)),
        (f"{units}/s", lambda _c, p: figure(p.samples_per_s)),
        ("  per GPU", lambda _c, p: figure(p.samples_per_s / p.n_gpus)),
        ("speed-up", lambda c, _p: "-" if c.speedup is None else f"{figure(c.speedup)} x"),
        ("efficiency", lambda _c, p: percent(p.scaling_efficiency_frac)),
        ("batch a step", lambda _c, p: f"{p.global_batch:,} ({p.micro_batch}x{p.grad_accum})"),
        ("MFU", lambda _c, p: percent(p.mfu_frac)),
        ("bound by", lambda _c, p: p.bound_by.split(" (")[0]),
        *helps,
        ("strategy", lambda _c, p: " ".join(filter(None, (strategy(p), p.layout)))),
        ("precision", lambda _c, p: p.precision),
        (f"a million {units}:", None),
        ("  GPU-hours", lambda c, _p: _spent(c, c.gpu_h_per_million)),
        ("  cost", lambda c, _p: _spent(c, c.usd_per_million, "$")),
        ("  GPU energy", lambda c, _p: _spent(c, c.kwh_per_million, unit=" kWh")),
    ]  # fmt: skip
    if any(fragmentation(p.memory) for p in there):
        rows.insert(2, ("  fragmented", lambda _c, p: f"{gigabytes(lost_bytes(p.memory))} GB"))
    if any(p.run_time_s for p in there):
        rows.append(("run", lambda _c, p: format_seconds(p.run_time_s) if p.run_time_s else "-"))
    for label, cell in rows:
        if cell is None:
            yield label, []
            continue
        yield label, [
            cell(c, c.prediction) if c.prediction is not None
            else c.reason if label == "fits" else ""
            for c in columns
        ]  # fmt: skip


def _row(label: str, cells: Sequence[str], width: int) -> list[str]:
    """A row whose cells wrap; the label stands on the first line."""
    parts = [textwrap.wrap(_breakable(c), width) or [""] for c in cells]
    height = max(map(len, parts))
    lines = []
    for i in range(height):
        text = " ".join((p[i] if i < len(p) else "").ljust(width) for p in parts)
        lines.append(f"{label if i == 0 else '':<{_LABEL}}{text}".rstrip())
    return lines


def _breakable(text: str) -> str:
    return re.sub(r"\+(?=\d+x)", "+ ", text)


def _fits(p: Prediction) -> str:
    if p.fits:
        return f"yes, {percent(p.memory.margin_frac)} left"
    return "NO: too large"


def _faster(p: Prediction) -> str:
    """The change of this column's own job that gains most."""
    return f"{p.faster[0].change} ({more(p.faster[0].gain_frac)})" if p.faster else "-"


def _fix(p: Prediction) -> str:
    """What makes a job fit that does not, and its samples a second then."""
    if p.fits:
        return "-"
    return p.fixes[0] if p.fixes else "nothing that was tried"


def _range(low_s: float, high_s: float) -> str:
    """Both ends of an interval; the unit once where it is the same."""
    low, high = format_seconds(low_s), format_seconds(high_s)
    number, _, unit = low.partition(" ")
    return f"{number} - {high}" if unit == high.partition(" ")[2] else f"{low} - {high}"


def _spent(c: Column, value: float | None, sign: str = "", unit: str = "") -> str:
    """A job that does not fit spends nothing."""
    if not c.fits:
        return "-"
    return "price unknown" if value is None else f"{sign}{figure(value)}{unit}"


def verdict(c: Comparison) -> list[str]:
    """Which is fastest, and which cheapest, of those that fit."""
    return [f"{label:<10}{name}" for label, name in winners(c)] or ["None of them fits."]


def winners(c: Comparison) -> list[tuple[str, str]]:
    """(fastest, its name), (cheapest, its name) of those that fit; empty where none does."""
    fit = [x for x in c.columns if x.fits and x.prediction is not None]
    if not fit:
        return []
    fastest = max(fit, key=lambda x: x.prediction.samples_per_s if x.prediction else 0.0)
    found = [("fastest", name_of(fastest))]
    priced = [x for x in fit if x.usd_per_million is not None]
    if priced:
        cheapest = min(priced, key=lambda x: x.usd_per_million or 0.0)
        of = "" if len(priced) == len(fit) else " (of those with a price)"
        found.append(("cheapest", f"{name_of(cheapest)}{of}"))
    return found


def name_of(c: Column) -> str:
    """The cluster and the words that tell a column from the others."""
    return " ".join(filter(None, [c.cluster, c.words]))


def sources(c: Comparison) -> list[tuple[str, str]]:
    """(what, where its figures are from): the library that nobody named, prices and energy; why an
    efficiency is above one."""
    assumed = dict.fromkeys(
        text.removeprefix("software: ")
        for x in c.columns if x.prediction is not None
        for text in x.prediction.assumptions if text.startswith("software: ")
    )  # fmt: skip
    told = [
        *(("assumed", text) for text in assumed),
        *(("price", f"{k}: {v}") for k, v in c.price_sources.items()),
        ("energy", SOURCE),
    ]
    reasons = (beyond_all(x.prediction) for x in c.columns if x.prediction is not None)
    return [*told, *(("above 1", f"efficiency: {why}") for why in dict.fromkeys(reasons) if why)]


def _indented(label: str, text: str) -> list[str]:
    parts = wrapped(text, WIDTH - 10)
    return [f"{label if i == 0 else '':<10}{part}" for i, part in enumerate(parts)]
