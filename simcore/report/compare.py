"""A comparison of several options as text: one column per option, 80 characters wide."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence

from simcore.answer.result import Prediction
from simcore.base.units import GIGA, format_seconds
from simcore.planning.compare import TOKEN, Column, Comparison
from simcore.planning.run import SOURCE
from simcore.report.formatting import WIDTH, figure, gigabytes, percent, plural, wrapped
from simcore.report.sentences import fragmentation, lost_bytes, more, strategy
from simcore.report.text_of import text_of

#: Characters of the row labels at the left.
_LABEL = 14
#: The largest number of options in one block of columns; further options start a second block.
_ACROSS = 4


@text_of.register
def render_comparison(c: Comparison) -> str:
    """The whole comparison as text of 80 columns."""
    lines = wrapped(f"{c.model}", WIDTH)
    if c.defaults:
        lines += wrapped(f"defaults: {', '.join(c.defaults)}", WIDTH)
    for start in range(0, len(c.columns), _ACROSS):
        lines += ["", *_block(c.columns[start : start + _ACROSS], c.unit)]
    source_lines = [line for words in sources(c) for line in _indented(*words)]
    return "\n".join([*lines, "", *verdict(c), *source_lines]).rstrip() + "\n"


def _block(columns: Sequence[Column], unit: str) -> list[str]:
    width = (WIDTH - _LABEL) // max(len(columns), 2) - 1
    lines = _row("", [" ".join([c.cluster, c.words]) for c in columns], width)
    lines.append("-" * min(WIDTH, _LABEL + len(columns) * (width + 1)))
    for label, cells in rows_of(columns, unit):
        lines += _row(label, cells, width) if cells else [label]
    return lines


#: The text of one cell from an option and its prediction.
Cell = Callable[[Column, Prediction], str]


def rows_of(columns: Sequence[Column], unit: str) -> Iterator[tuple[str, list[str]]]:
    """(label, one value per column) of every row, in order; a heading has no values.

    ``unit`` is what throughput and cost count: "token", or what one sample is, such as "image". A
    column without a prediction has its reason
    in the first row and is empty below.
    """
    units = plural(unit)
    tokens = unit == TOKEN

    def rate(p: Prediction) -> float:
        return p.work_per_s if tokens else p.samples_per_s

    def each(c: Column, of_samples: float | None) -> float | None:
        return c.per_million_tokens(of_samples) if tokens else of_samples

    predictions = [c.prediction for c in columns if c.prediction is not None]
    advice: list[tuple[str, Cell | None]] = []
    if any(p.faster for p in predictions):
        advice.append(("faster with", lambda _c, p: _faster(p)))
    if not all(p.fits for p in predictions):
        advice.append(("fits with", lambda _c, p: _fix(p)))
    rows: list[tuple[str, Cell | None]] = [
        ("fits", lambda _c, p: _fits(p)),
        ("memory", lambda _c, p: f"{figure(p.memory.device_bytes / GIGA)} of "
                                 f"{figure(p.memory.capacity_bytes / GIGA)} GB"),
        ("step", lambda _c, p: format_seconds(p.step_time_s.value)),
        ("  80 % within", lambda _c, p: _range(p.step_time_s.low, p.step_time_s.high)),
        (f"{units}/s", lambda _c, p: figure(rate(p))),
        ("  per GPU", lambda _c, p: figure(rate(p) / p.n_gpus)),
        ("speed-up", lambda c, _p: "-" if c.speedup is None else f"{figure(c.speedup)} x"),
        ("efficiency", lambda _c, p: percent(p.scaling_efficiency_frac)),
        ("batch a step", lambda _c, p: f"{p.global_batch:,} ({p.micro_batch}x{p.grad_accum})"),
        ("MFU", lambda _c, p: percent(p.mfu_frac)),
        ("bound by", lambda _c, p: p.bound_by.split(" (")[0]),
        *advice,
        ("strategy", lambda _c, p: " ".join(filter(None, (strategy(p), p.layout)))),
        ("precision", lambda _c, p: p.precision),
        (f"a million {units}:", None),
        ("  GPU-hours", lambda c, _p: _spent(c, each(c, c.gpu_h_per_million))),
        ("  cost", lambda c, _p: _spent(c, each(c, c.usd_per_million), "$")),
        ("  GPU energy", lambda c, _p: _spent(c, each(c, c.kwh_per_million), unit=" kWh")),
    ]  # fmt: skip
    if any(fragmentation(p.memory) for p in predictions):
        rows.insert(2, ("  fragmented", lambda _c, p: f"{gigabytes(lost_bytes(p.memory))} GB"))
    if any(p.run_time_s for p in predictions):
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
    """The lines of a row whose cells wrap to ``width``; the label is on the first line."""
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
    """The change to this job that raises its throughput most, with the gain."""
    return f"{p.faster[0].change} ({more(p.faster[0].gain_frac)})" if p.faster else "-"


def _fix(p: Prediction) -> str:
    """The first change that makes a job fit, with its throughput then; "-" if it fits already."""
    if p.fits:
        return "-"
    return p.fixes[0] if p.fixes else "nothing that was tried"


def _range(low_s: float, high_s: float) -> str:
    """Both ends of an interval as text; a unit that both share is written once."""
    low, high = format_seconds(low_s), format_seconds(high_s)
    number, _, unit = low.partition(" ")
    return f"{number} - {high}" if unit == high.partition(" ")[2] else f"{low} - {high}"


def _spent(c: Column, value: float | None, sign: str = "", unit: str = "") -> str:
    """A cost or an energy as text; "-" for a job that does not fit in memory."""
    if not c.fits:
        return "-"
    return "price unknown" if value is None else f"{sign}{figure(value)}{unit}"


def verdict(c: Comparison) -> list[str]:
    """Lines that name the fastest and the cheapest of the options that fit."""
    return [f"{label:<10}{name}" for label, name in winners(c)] or ["None of them fits."]


def winners(c: Comparison) -> list[tuple[str, str]]:
    """("fastest", name) and ("cheapest", name) of the options that fit; empty if none fits.

    Only options with a price can be the cheapest.
    """
    fit = [x for x in c.columns if x.fits and x.prediction is not None]
    if not fit:
        return []

    def rate(x: Column) -> float:
        assert x.prediction is not None
        return x.prediction.work_per_s if c.counts_tokens else x.prediction.samples_per_s

    def cost(x: Column) -> float:
        each = x.per_million_tokens(x.usd_per_million) if c.counts_tokens else x.usd_per_million
        return each or 0.0

    fastest = max(fit, key=rate)
    winning = [("fastest", name_of(fastest))]
    priced = [x for x in fit if x.usd_per_million is not None]
    if priced:
        cheapest = min(priced, key=cost)
        of = "" if len(priced) == len(fit) else " (of those with a price)"
        winning.append(("cheapest", f"{name_of(cheapest)}{of}"))
    return winning


def name_of(c: Column) -> str:
    """The name of a column: its cluster and the settings in which it differs from the others."""
    return " ".join(filter(None, [c.cluster, c.words]))


def sources(c: Comparison) -> list[tuple[str, str]]:
    """(label, text) of what the figures rest on.

    These are the training library that was assumed, and the sources of prices and energy.
    """
    assumed = dict.fromkeys(
        text.removeprefix("software: ")
        for x in c.columns if x.prediction is not None
        for text in x.prediction.assumptions if text.startswith("software: ")
    )  # fmt: skip
    return [
        *(("assumed", text) for text in assumed),
        *(("price", f"{k}: {v}") for k, v in c.price_sources.items()),
        ("energy", SOURCE),
    ]


def _indented(label: str, text: str) -> list[str]:
    parts = wrapped(text, WIDTH - 10)
    return [f"{label if i == 0 else '':<10}{part}" for i, part in enumerate(parts)]
