"""Every result as plain text of 80 columns: what ``print`` and the command line show."""

from __future__ import annotations

from functools import singledispatch

from simcore.base.units import GIGA, format_seconds
from simcore.engine.memory_timeline import MemoryTimeline
from simcore.engine.result import Comparison, MemoryResult, Prediction
from simcore.engine.scaling import Scaling
from simcore.engine.sweep import Sweep
from simcore.engine.timeline import Timeline
from simcore.report.names import told_apart
from simcore.report.scaling import render_scaling
from simcore.report.sweep import render_sweep
from simcore.report.tables import table
from simcore.report.terms import memory_label, time_label
from simcore.report.text import render
from simcore.report.words import figure, gigabytes, percent


@singledispatch
def text_of(result: object) -> str:
    """The text of a result."""
    raise TypeError(f"{type(result).__name__} has no text")


text_of.register(Prediction, render)
text_of.register(Scaling, render_scaling)
text_of.register(Sweep, render_sweep)


@text_of.register
def _memory(m: MemoryResult) -> str:
    rows = [
        [memory_label(k), f"{v / GIGA:,.2f} GB", percent(v / m.device_bytes)]
        for k, v in sorted(m.terms.items(), key=lambda t: -t[1])
    ]
    verdict = "FITS" if m.fits else "NO"
    head = (
        f"{verdict}: {gigabytes(m.device_bytes)} of {gigabytes(m.capacity_bytes)} GB a GPU, "
        f"80 % between {gigabytes(m.low_bytes)} and {gigabytes(m.high_bytes)}; peak in {m.moment}"
    )
    return f"{head}\n\n{table(['term', 'memory', 'share'], rows, right=(1, 2))}\n"


@text_of.register
def _over_step(t: MemoryTimeline) -> str:
    rows = [
        ["allocated at most", f"{t.peak_allocated_bytes / GIGA:,.2f} GB"],
        ["reserved at most", f"{t.peak_reserved_bytes / GIGA:,.2f} GB"],
        ["outside the allocator", f"{t.outside_bytes / GIGA:,.2f} GB"],
        ["device limit", f"{t.limit_bytes / GIGA:,.2f} GB"],
        ["events of the step", f"{len(t.allocated):,}"],
    ]
    verdict = "fits" if t.fits else "runs out of memory"
    head = f"{t.model} on {t.cluster}: {verdict}"
    return f"{head}\n\n{table(['memory over one step', ''], rows, right=(1,))}\n"


@text_of.register
def _timeline(t: Timeline) -> str:
    end = float(t.makespan_s[0])
    busy: dict[tuple[str, str], float] = {}
    for i, task in enumerate(t.graph.tasks):
        key = (task.stream, task.term)
        busy[key] = busy.get(key, 0.0) + float(t.finish_s[i, 0] - t.start_s[i, 0])
    rows = [
        [stream, time_label(term), format_seconds(s), percent(s / end) if end else "-"]
        for (stream, term), s in busy.items()
        if s > 0
    ]
    head = f"one step: {format_seconds(end)}, {len(t.graph.tasks):,} tasks"
    return f"{head}\n\n{table(['stream', 'work', 'time', 'of the step'], rows, right=(2, 3))}\n"


@text_of.register
def _comparison(c: Comparison) -> str:
    rows = [list(row) for row in comparison_rows(c)]
    head = ["", *(", ".join(words) for words in told_apart(c.predictions))]
    return table(head, rows, right=range(1, len(head))) + "\n"


def comparison_rows(c: Comparison) -> list[tuple[str, ...]]:
    """(what, one value a prediction) in the order of the report."""

    def row(what: str, values: list[str]) -> tuple[str, ...]:
        return (what, *values)

    ps = c.predictions
    rows = [
        row("fits", ["yes" if p.fits else "NO" for p in ps]),
        row("memory a GPU", [f"{gigabytes(p.memory.device_bytes)} GB" for p in ps]),
        row("device limit", [f"{gigabytes(p.memory.capacity_bytes)} GB" for p in ps]),
        row("step time", [format_seconds(p.step_time_s.value) for p in ps]),
        row("80 % from", [format_seconds(p.step_time_s.low) for p in ps]),
        row("80 % to", [format_seconds(p.step_time_s.high) for p in ps]),
        row("samples/s", [figure(p.samples_per_s) for p in ps]),
        row("samples a step", [f"{p.global_batch:,}" for p in ps]),
        row("speed-up", [f"{figure(p.speedup_vs_1gpu)} x" for p in ps]),
        row("efficiency", [percent(p.scaling_efficiency_frac) for p in ps]),
        row("MFU", [percent(p.mfu_frac) for p in ps]),
        row("bound by", [p.bound_by for p in ps]),
        row("strategy", [" ".join(filter(None, (p.strategy, p.layout))) for p in ps]),
        row("precision", [p.precision for p in ps]),
        row("micro-batch", [f"{p.micro_batch:,}" for p in ps]),
    ]
    if any(p.run_time_s for p in ps):
        rows.append(row("run", [format_seconds(p.run_time_s) if p.run_time_s else "-" for p in ps]))
    return rows
