"""Single results as cards: the facts that the command line prints, as tables and plots."""

from __future__ import annotations

from functools import singledispatch

from simcore.answer.result import Prediction
from simcore.answer.scaling import Scaling
from simcore.base.units import format_seconds
from simcore.memory.over_time import MemoryTimeline
from simcore.memory.result import MemoryResult
from simcore.report.formatting import Facts, counted, figure, gigabytes, percent, plural
from simcore.report.html.parts import Card, pictures
from simcore.report.sentences import FACTS, LIMITS, advice, noun, strategy, verdict, what
from simcore.report.tables import Table
from simcore.report.terms import COMPUTE_PARTS, HIDDEN, time_label
from simcore.report.text_of import memory_table, over_step_facts, work_table
from simcore.step.graph import Timeline


@singledispatch
def card_of(result: object) -> Card:
    """The card of a result. Raises TypeError for a type that has none."""
    raise TypeError(f"{type(result).__name__} has no card")


def verdict_of(m: MemoryResult, device: str = "GPU") -> str:
    """One sentence that says whether the job fits in memory, and with which margin."""
    word = "Fits" if m.fits else "Tight" if m.tight else "Does not fit"
    return f"{word}: {verdict(m, device)[1]}"


def facts_of(p: Prediction) -> Facts:
    """The labelled sentences that the command line prints: step, throughput, limits, advice."""
    sentences = [(label, sentence(p)) for label, sentence, _ in (*FACTS, *LIMITS)]
    return [
        *((k, text) for k, text in sentences if text),
        *(("advice", text) for text in advice(p)),
    ]


def time_table(p: Prediction) -> Table:
    """A table of the terms of the step time that are not zero."""
    step = p.step_time_s.value
    rows = [
        (
            ("– " if k in COMPUTE_PARTS else "") + time_label(k),
            format_seconds(v),
            "overlapped" if k == HIDDEN else percent(v / step),
        )
        for k, v in p.time_s.items()
        if v > 0
    ]
    return Table("where the time of a step goes", ("term", "time", "share"), rows, (1, 2))


def settings_line(p: Prediction) -> str:
    """Layout, strategy, precision, optimizer, recompute, offload and batch in one line."""
    parts = [p.layout, strategy(p), p.precision, p.optimizer]
    parts.append("no recompute" if p.recompute == "none" else f"recompute {p.recompute}")
    if p.offload != "none":
        parts.append(f"offload {p.offload}")
    batch = (
        f"micro-batch {p.micro_batch:,} x accum {p.grad_accum:,} x {p.data_ranks:,} = "
        f"{counted(p.global_batch, p.sample_unit)} a step"
    )
    return f"{', '.join(filter(None, parts))}; {batch}"


def title_of(p: Prediction) -> str:
    """The model, its size and the cluster."""
    return f"{what(p)}, on {p.cluster}"


@card_of.register
def _prediction(p: Prediction) -> Card:
    notes = [*(f"default: {d}" for d in p.defaults), *(f"assumed: {a}" for a in p.assumptions)]
    return Card(
        title=title_of(p),
        subtitle=settings_line(p),
        good=p.fits,
        verdict=verdict_of(p.memory, noun(p)),
        facts=facts_of(p),
        tables=(time_table(p), memory_table(p.memory)),
        pictures=pictures(
            ("overview", [p], f"time and memory of {p.model} on {p.cluster}, by term")
        ),
        notes=notes,
    )


@card_of.register
def _memory(m: MemoryResult) -> Card:
    return Card(
        title="memory of the fullest GPU",
        good=m.fits,
        verdict=verdict_of(m),
        facts=[
            ("80 % between", f"{gigabytes(m.low_bytes)} and {gigabytes(m.high_bytes)} GB"),
            ("allocated", f"{gigabytes(m.allocated_bytes)} GB"),
            ("reserved", f"{gigabytes(m.reserved_bytes)} GB"),
        ],
        tables=(memory_table(m),),
        pictures=pictures(("memory", m, "memory of the fullest GPU at its peak, by term")),
    )


@card_of.register
def _over_step(t: MemoryTimeline) -> Card:
    return Card(
        title=f"memory over one step: {t.model} on {t.cluster}",
        good=t.fits,
        verdict="Fits" if t.fits else "Runs out of memory",
        facts=over_step_facts(t),
        pictures=pictures(
            ("memory-over-step", t, f"memory of {t.model} on {t.cluster} over one step")
        ),
    )


@card_of.register
def _timeline(t: Timeline) -> Card:
    return Card(
        title="one step",
        facts=[("length", format_seconds(float(t.makespan_s[0])))],
        tables=(work_table(t),),
        pictures=pictures(("timeline", t, "when each stream works in one step")),
    )


def scaling_table(s: Scaling) -> Table:
    """A table with one row per cluster of a scaling curve."""
    measured = {m.n_gpus: m for m in s.measured}
    rows = []
    for p in s.points:
        point = measured.get(p.n_gpus)
        rows.append(
            (
                p.cluster,
                f"{p.n_gpus:,}",
                figure(p.samples_per_s.value),
                figure(p.speedup.value),
                f"{figure(p.speedup.low)} to {figure(p.speedup.high)}",
                percent(p.efficiency_frac.value),
                f"{figure(point.speedup)} ({point.source})" if point else "",
                "yes" if p.fits else "no",
            )
        )
    head = ("cluster", "GPUs", f"{plural(s.sample_unit)}/s", "speed-up", "80 %", "efficiency",
            "measured", "fits")  # fmt: skip
    over = {m.over for m in s.measured}
    caption = f"{s.model} on more GPUs, micro-batch {s.micro_batch:,} at every size"
    if "predicted" in over:
        caption += "; measured: speed-up over the predicted rate of one GPU"
    return Table(caption, head, rows, (1, 2, 3, 4, 5, 6))


@card_of.register
def _scaling(s: Scaling) -> Card:
    last = s.points[-1]
    return Card(
        title=f"{s.model} on {s.gpu}, {s.strategy}",
        facts=[
            ("GPUs", f"{last.n_gpus:,}"),
            ("speed-up", f"{figure(last.speedup.value)} x"),
            ("efficiency", percent(last.efficiency_frac.value)),
        ],
        tables=(scaling_table(s),),
        pictures=pictures(
            ("scaling", s, f"speed-up and efficiency of {s.model} on {s.gpu} against GPUs")
        ),
    )
