"""The text of every type of result, in 80 columns, for ``print`` and the command line."""

from __future__ import annotations

from functools import singledispatch
from importlib import import_module

from simcore.answer.result import Prediction
from simcore.answer.scaling import Scaling
from simcore.base.figures import Interval
from simcore.base.units import GIGA, format_seconds
from simcore.memory.over_time import MemoryTimeline
from simcore.memory.result import MemoryResult
from simcore.report.formatting import WIDTH, Facts, figure, gigabytes, percent, plural
from simcore.report.tables import Table, table
from simcore.report.terms import memory_label, time_label
from simcore.report.text import render
from simcore.step.graph import Timeline

#: Widths of the efficiency bar in characters; the first with which the table fits is used.
BARS = (20, 16, 12, 10)


def bar(frac: Interval, width: int) -> str:
    """An efficiency as a bar such as ``==|====---``; ``width`` characters are 100 %.

    ``=`` up to the value, ``|`` at the low end of its interval, ``-`` up to the high end.
    """
    at = max(0, min(width, round(frac.value * width)))
    low = max(0, min(at, round(frac.low * width)))
    high = max(at, min(width, round(frac.high * width)))
    drawn = ["="] * at + ["-"] * (high - at)
    if 0 < low < at:
        drawn[low - 1] = "|"
    return "".join(drawn)


def render_scaling(s: Scaling) -> str:
    """The curve as text of 80 columns; ``*`` marks clusters on which the job does not fit."""
    drawn = ""
    for width in BARS:
        drawn = _table(s, width)
        if max(map(len, drawn.splitlines())) <= WIDTH:
            break
    lines = [
        f"{s.model} on {s.gpu}, {s.strategy}, micro-batch {s.micro_batch:,} at every size",
        "",
        drawn,
        "",
        "= efficiency, | and - its 80 % interval",
    ]
    for over in dict.fromkeys(m.over for m in s.measured):
        lines.append(f"measured: the speed-up over the {over} rate of one GPU")
    if any(not p.fits for p in s.points):
        lines.append("* does not fit in memory")
    return "\n".join(lines) + "\n"


def _table(s: Scaling, width: int) -> str:
    measured = {m.n_gpus: figure(m.speedup) for m in s.measured}
    head = ["GPUs", f"{plural(s.sample_unit)}/s", "speed-up", "80 %", "effic.",
            f"0{'100 %':>{width - 1}}"]  # fmt: skip
    rows = [
        [
            f"{p.n_gpus:,}{'' if p.fits else '*'}",
            figure(p.samples_per_s.value),
            figure(p.speedup.value),
            f"{figure(p.speedup.low)} to {figure(p.speedup.high)}",
            percent(p.efficiency_frac.value),
            bar(p.efficiency_frac, width),
        ]
        for p in s.points
    ]
    if measured:
        head.append("measured")
        rows = [[*row, measured.get(p.n_gpus, "")] for row, p in zip(rows, s.points, strict=True)]
    return table(head, rows, right=(0, 1, 2, 3, 4, 6))


#: Modules that render other results than predictions; they are imported when first needed.
_LATER = ("compare", "operation", "plan", "sweep")


@singledispatch
def text_of(result: object) -> str:
    """The text of a result. Raises TypeError for a type that has none."""
    unknown = text_of.dispatch(object)
    for name in _LATER:
        import_module(f"simcore.report.{name}")
    render = text_of.dispatch(type(result))
    if render is unknown:
        raise TypeError(f"{type(result).__name__} has no text")
    return render(result)


text_of.register(Prediction, render)
text_of.register(Scaling, render_scaling)


def memory_table(m: MemoryResult) -> Table:
    """The terms of memory, the largest first."""
    rows = [
        (memory_label(k), f"{v / GIGA:,.2f} GB", percent(v / m.device_bytes))
        for k, v in sorted(m.terms.items(), key=lambda t: -t[1])
    ]
    caption = f"where the memory of the fullest GPU goes, at its peak in {m.moment}"
    return Table(caption, ("term", "memory", "share"), rows, (1, 2))


@text_of.register
def _memory(m: MemoryResult) -> str:
    verdict = "FITS" if m.fits else "TIGHT" if m.tight else "NO"
    head = (
        f"{verdict}: {gigabytes(m.device_bytes)} of {gigabytes(m.capacity_bytes)} GB a GPU, "
        f"80 % between {gigabytes(m.low_bytes)} and {gigabytes(m.high_bytes)}; peak in {m.moment}"
    )
    return f"{head}\n\n{memory_table(m).text()}\n"


def over_step_facts(t: MemoryTimeline) -> Facts:
    """The highest allocated and reserved memory of a step, and the limit of the device."""
    return [
        ("allocated at most", f"{t.peak_allocated_bytes / GIGA:,.2f} GB"),
        ("reserved at most", f"{t.peak_reserved_bytes / GIGA:,.2f} GB"),
        ("outside the allocator", f"{t.outside_bytes / GIGA:,.2f} GB"),
        ("device limit", f"{t.limit_bytes / GIGA:,.2f} GB"),
        ("events of the step", f"{len(t.allocated):,}"),
    ]


@text_of.register
def _over_step(t: MemoryTimeline) -> str:
    head = f"{t.model} on {t.cluster}: {'fits' if t.fits else 'runs out of memory'}"
    return f"{head}\n\n{table(['memory over one step', ''], over_step_facts(t), right=(1,))}\n"


def work_table(t: Timeline) -> Table:
    """The time that each stream spends on each kind of work."""
    end = float(t.makespan_s[0])
    busy: dict[tuple[str, str], float] = {}
    for i, task in enumerate(t.graph.tasks):
        key = (task.stream, task.term)
        busy[key] = busy.get(key, 0.0) + float(t.finish_s[i, 0] - t.start_s[i, 0])
    rows = [
        (stream, time_label(term), format_seconds(s), percent(s / end) if end else "-")
        for (stream, term), s in busy.items()
        if s > 0
    ]
    return Table("work by stream", ("stream", "work", "time", "of the step"), rows, (2, 3))


@text_of.register
def _timeline(t: Timeline) -> str:
    head = f"one step: {format_seconds(float(t.makespan_s[0]))}, {len(t.graph.tasks):,} tasks"
    return f"{head}\n\n{work_table(t).text()}\n"
