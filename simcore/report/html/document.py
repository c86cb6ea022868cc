"""The content of a report on one job on one cluster or several, section by section."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from simcore.answer.result import Explanation, Prediction
from simcore.answer.scaling import Scaling
from simcore.answer.views import Roofline, Swing
from simcore.base.record import dataclass
from simcore.base.units import format_seconds, format_si
from simcore.memory.over_time import MemoryTimeline
from simcore.planning.compare import Comparison
from simcore.report.formatting import figure, percent
from simcore.report.html.cards import (
    facts_of,
    scaling_table,
    settings_line,
    title_of,
    verdict_of,
)
from simcore.report.html.cards_of_many import comparison_notes, comparison_table
from simcore.report.html.parts import Card, Section, picture
from simcore.report.sentences import advice, faster, noun, strategy
from simcore.report.tables import Table
from simcore.report.terms import HIDDEN, memory_label, time_label
from simcore.report.text import by_influence

#: The number of ops that the roofline's table lists.
_OPS = 12


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The figures of one record of the database: rows of (figure, value, source), and notes."""

    name: str
    rows: tuple[tuple[str, str, str], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ClusterResults:
    """The results for one cluster. A result that is not available is None; ``gaps`` says why.

    ``sensitivity`` is the step time in seconds and its change with each resource.
    """

    prediction: Prediction
    explanations: tuple[Explanation, ...] = ()
    scaling: Scaling | None = None
    memory: MemoryTimeline | None = None
    roofline: Roofline | None = None
    sensitivity: tuple[float, tuple[Swing, ...]] | None = None
    gaps: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The input of a report: one entry of ``clusters`` per cluster, and the rest for all of them.

    ``compared`` sets several clusters side by side. ``given`` are the (option, value) that the
    user chose.
    """

    version: str
    command: str
    clusters: tuple[ClusterResults, ...]
    compared: Comparison | None = None
    sources: tuple[Sources, ...] = ()
    given: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Document:
    """The content that the page template lays out. ``made`` says how the figures came about."""

    title: str
    made: Sequence[str]
    command: str
    cards: Sequence[Card]
    sections: Sequence[Section]


def document(facts: Facts) -> Document:
    """The title, cards and sections of the report on ``facts``."""
    first = facts.clusters[0].prediction
    clusters = ", ".join(dict.fromkeys(t.prediction.cluster for t in facts.clusters))
    several = len(facts.clusters) > 1
    sections: list[Section] = []
    if facts.compared is not None:
        sections.append(_side_by_side(facts.compared))
    sections += [_inputs(facts), _assumptions(facts)]
    for results in facts.clusters:
        for part in (_time, _memory, _scaling, _what_if, _ops, _measured, _gaps):
            section = part(results, several)
            if section is not None:
                sections.append(_of_cluster(section, results, several))
    if facts.sources:
        sections.append(_sources(facts))
    named = {"compared", "inputs", "assumptions", "sources"}
    sections = [
        replace(s, label=s.heading) if not several or s.key in named else s for s in sections
    ]
    return Document(
        title=f"{first.model_full_name} on {clusters}",
        made=(
            f"Predicted by simcore {facts.version}, not measured. Intervals hold 80 %.",
            *facts.notes,
        ),
        command=facts.command,
        cards=[_card(t.prediction, several) for t in facts.clusters],
        sections=sections,
    )


def _card(p: Prediction, several: bool) -> Card:
    """The verdict and the main figures; tables and plots are in sections of the report."""
    return Card(
        title=p.cluster if several else title_of(p),
        subtitle=settings_line(p),
        good=p.fits,
        verdict=verdict_of(p.memory, noun(p)),
        facts=facts_of(p),
    )


def _of_cluster(section: Section, results: ClusterResults, several: bool) -> Section:
    """``section`` with its cluster in the heading and key, if the report has several clusters.

    Of a cluster's sections only the first, on time, has a link at the top of the page.
    """
    if not several:
        return section
    cluster = results.prediction.cluster
    key = "".join(c if c.isalnum() else "-" for c in cluster)
    return replace(
        section,
        key=f"{section.key}-{key}",
        heading=f"{section.heading}: {cluster}",
        label=cluster if section.key == "time" else "",
    )


def _side_by_side(compared: Comparison) -> Section:
    predictions = list(compared.predictions)
    return Section(
        "compared",
        "Side by side",
        items=comparison_notes(compared),
        tables=(comparison_table(compared),),
        pictures=(
            picture("time", predictions, "step time by term, side by side"),
            picture("memory", predictions, "memory of the fullest GPU by term, side by side"),
        ),
    )


def _inputs(facts: Facts) -> Section:
    """The settings of the job: each one's value, and whether it was given, derived or default."""
    p = facts.clusters[0].prediction
    default = {d.split()[0] for d in p.defaults}
    given = {flag.replace("_", "-") for flag, _ in facts.given}
    rows = [
        ("model", f"{p.model} ({p.model_full_name})", "given"),
        ("trained parameters", f"{p.n_params:,}", "model file"),
        *(
            [("frozen parameters", f"{p.n_frozen_params:,}", "model file")]
            * (p.n_frozen_params > 0)
        ),
        *(
            (
                f"cluster {i}" if len(facts.clusters) > 1 else "cluster",
                t.prediction.cluster,
                "given",
            )
            for i, t in enumerate(facts.clusters, 1)
        ),
    ]
    for flag, value in (
        ("strategy", strategy(p)),
        ("layout", p.layout),
        ("precision", p.precision),
        ("optimizer", p.optimizer),
        ("recompute", p.recompute),
        ("offload", p.offload),
        ("micro-batch", f"{p.micro_batch:,}"),
        ("grad-accum", f"{p.grad_accum:,}"),
    ):
        if value:
            chosen = flag in given
            plain = flag in default or (flag == "offload" and not chosen)
            by = "default" if plain else "given" if chosen else "derived"
            rows.append((flag, value, by))
    shown = {r[0] for r in rows} | {"gpus"}
    rows += [(k, v, "given") for k, v in facts.given if k.replace("_", "-") not in shown]
    table = Table("what was predicted", ("setting", "value", "chosen by"), rows)
    return Section("inputs", "Inputs and defaults", tables=(table,))


def _assumptions(facts: Facts) -> Section:
    clusters: dict[str, list[str]] = {}
    for results in facts.clusters:
        for text in results.prediction.assumptions:
            clusters.setdefault(text, []).append(results.prediction.cluster)
    items = [
        text
        if len(clusters[text]) == len(facts.clusters)
        else f"{text} ({', '.join(clusters[text])})"
        for text in by_influence(clusters)
    ]
    lines = ["What the job does not state and the prediction assumes, the most influential first."]
    return Section("assumptions", "Assumptions", lines, items)


def _terms(
    results: ClusterResults,
    group: str,
    values: dict[str, float],
    value: Callable[[float], str],
    total: float,
) -> Table:
    """A table of the terms of time or memory, each with its formula and source.

    ``value`` formats a term of ``values``; ``total`` is what the shares are taken of.
    """
    by_term = {e.term: e for e in results.explanations}
    label = time_label if group == "time" else memory_label
    rows = []
    for key, v in sorted(values.items(), key=lambda t: -t[1]):
        e = by_term.get(f"{group}.{key}")
        share = "overlapped" if key == HIDDEN else percent(v / total)
        rows.append((label(key), value(v), share, e.formula if e else "", e.source if e else ""))
    return Table(
        f"{group} by term, with formula and where its figures come from",
        ("term", "value", "share", "formula", "source"), rows, (1, 2),
    )  # fmt: skip


def _time(results: ClusterResults, several: bool) -> Section:
    """Where the step's time goes. With several clusters the comparison already has the bars."""
    p = results.prediction
    values = {k: v for k, v in p.time_s.items() if v > 0 and k != "compute"}
    pictures = []
    if not several:
        pictures.append(picture("time", [p], f"step time of {p.model} on {p.cluster}, by term"))
    if p.timeline is not None:
        caption = f"when each stream works in one step of {p.model} on {p.cluster}"
        pictures.append(picture("timeline", p, caption))
    table = _terms(results, "time", values, format_seconds, p.step_time_s.value)
    rows = [
        *table.rows,
        *(
            (
                "80 % interval of the step",
                " to ".join(map(format_seconds, (p.step_time_s.low, p.step_time_s.high))),
                "",
                e.formula,
                e.source,
            )
            for e in results.explanations
            if e.term == "interval"
        ),
    ]
    table = replace(table, rows=rows)
    return Section("time", "Where the time goes", tables=(table,), pictures=pictures)


def _memory(results: ClusterResults, several: bool) -> Section:
    p = results.prediction
    table = _terms(
        results, "memory", p.memory.terms, lambda v: format_si(v, "B"), p.memory.device_bytes
    )
    where = f"{p.model} on {p.cluster}"
    pictures = []
    if not several:
        pictures.append(picture("memory", [p], f"memory of the fullest GPU of {where}, by term"))
    if results.memory is not None:
        caption = f"memory over the allocations of one step of {where}"
        pictures.append(picture("memory-over-step", results.memory, caption))
    lines = [f"At the peak, in {p.memory.moment}."]
    return Section("memory", "Where the memory goes", lines, tables=(table,), pictures=pictures)


def _scaling(results: ClusterResults, several: bool) -> Section | None:
    del several
    s = results.scaling
    if s is None or len(s) < 2:
        return None
    caption = f"speed-up and efficiency of {s.model} on {s.gpu} against GPUs"
    return Section(
        "scaling", "Scaling", tables=(scaling_table(s),), pictures=(picture("scaling", s, caption),)
    )


def _what_if(results: ClusterResults, several: bool) -> Section | None:
    del several
    p = results.prediction
    if results.sensitivity is None:
        return None
    centre, swings = results.sensitivity
    rows = [
        (
            s.resource,
            format_seconds(s.half_s),
            percent(s.half_s / centre - 1, signed=True),
            format_seconds(s.double_s),
            percent(s.double_s / centre - 1, signed=True),
        )
        for s in swings
    ]
    table = Table(
        "step time with half and with twice as much of one resource",
        ("resource", "half of it", "change", "twice of it", "change"), rows, (1, 2, 3, 4),
    )  # fmt: skip
    caption = f"what the step time of {p.model} on {p.cluster} depends on"
    lines = [f"Bound by {p.bound_by}.", *(f"{text[:1].upper()}{text[1:]}." for text in advice(p))]
    if changes := faster(p):
        lines.append(f"Faster, each computed: {changes}.")
    shown = (picture("sensitivity", results.sensitivity, caption),)
    return Section("what-if", "What if", lines, tables=(table,), pictures=shown)


def _ops(results: ClusterResults, several: bool) -> Section | None:
    """The slowest ops. With several clusters there is no plot: one each would pass a megabyte."""
    r = results.roofline
    if r is None or not r.ops:
        return None
    total = sum(op.time_s for op in r.ops)
    rows = [
        (
            op.name,
            op.part,
            op.kind,
            f"{op.calls:,}",
            format_seconds(op.time_s),
            percent(op.time_s / total),
            f"{format_si(op.achieved_flop_per_s, 'FLOP/s')}" if op.flop else "-",
            figure(op.intensity_flop_per_byte) if op.flop else "-",
        )
        for op in r.ops[:_OPS]
    ]
    head = ("op", "pass", "kind", "calls", "time", "share", "rate", "FLOP/byte")
    table = Table(
        f"the {len(rows)} ops that take longest in one micro-step of one GPU, of {len(r.ops)}",
        head, rows, (3, 4, 5, 6, 7),
    )  # fmt: skip
    caption = f"ops of {r.model} in {r.precision} against peak and bandwidth of {r.gpu}"
    shown = () if several else (picture("roofline", r, caption),)
    return Section("ops", "The model's ops", tables=(table,), pictures=shown)


def _measured(results: ClusterResults, several: bool) -> Section | None:
    del several
    p = results.prediction
    if not p.measured:
        return None

    def shown(quantity: str, value: float) -> str:
        return format_si(value, "B") if quantity.endswith("_bytes") else format_seconds(value)

    rows = [
        (
            row.source,
            row.quantity.removesuffix("_s").removesuffix("_bytes").replace("_", " "),
            shown(row.quantity, row.measured),
            shown(row.quantity, row.predicted),
            percent(row.error_frac, signed=True),
            row.note,
        )
        for row in p.measured
    ]
    head = ("source", "quantity", "measured", "predicted", "error", "note")
    table = Table("the same set-up, measured", head, rows, (2, 3, 4))
    return Section("measured", "Compared with measurements", tables=(table,))


def _gaps(results: ClusterResults, several: bool) -> Section | None:
    del several
    if not results.gaps:
        return None
    return Section("gaps", "What is not in this report", items=results.gaps)


def _sources(facts: Facts) -> Section:
    tables = [Table(s.name, ("figure", "value", "source"), s.rows, (1,)) for s in facts.sources]
    notes = [note for s in facts.sources for note in s.notes]
    return Section("sources", "Sources of the hardware's figures", items=notes, tables=tables)
