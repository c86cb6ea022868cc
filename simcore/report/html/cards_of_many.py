"""Cards of results about several jobs or options: sweeps, comparisons, plans, fleets, goodput."""

from __future__ import annotations

from collections.abc import Sequence

from simcore.base.units import GIGA, format_seconds
from simcore.planning.compare import Comparison
from simcore.planning.fleet import Fleet
from simcore.planning.goodput import Goodput
from simcore.planning.planner import Option, Plan
from simcore.planning.sweep import SweepResult
from simcore.report.compare import name_of, rows_of, sources, verdict, winners
from simcore.report.formatting import days, figure, money, plural
from simcore.report.html.cards import card_of
from simcore.report.html.parts import Card, Picture, pictures
from simcore.report.operation import fleet_facts, goodput_facts
from simcore.report.plan import how, notes_of
from simcore.report.sweep import advice, words_of
from simcore.report.tables import Table


@card_of.register
def _sweep(s: SweepResult) -> Card:
    rows = [
        (
            p.cluster,
            f"{p.n_gpus:,}",
            ", ".join(words_of(p)),
            f"{p.micro_batch} x {p.grad_accum}",
            format_seconds(p.step_time_s),
            f"{p.memory_bytes / GIGA:.1f} GB",
            figure(p.samples_per_s),
        )
        for p in s.best
    ]
    head = ("cluster", "GPUs", "how", "batch", "step", "memory", "samples/s")
    caption = "samples a second against GPUs or memory, with the Pareto front of what fits"
    shown: tuple[Picture, ...] = ()
    if s.batches:
        shown = pictures(("pareto", s, caption))
    return Card(
        title=f"{s.n_done:,} configurations",
        facts=[
            *_best(s),
            *advice(s),
            ("possible", f"{s.n_evaluated:,}"),
            ("fit", f"{s.n_fit:,}"),
            *([("points in", s.output)] if s.output else []),
        ],
        tables=(Table(f"the best that fits, by {s.ranked_by}", head, rows, (1, 3, 4, 5, 6)),)
        if rows
        else (),
        pictures=shown,
        notes=[f"left out {n:,}: {why}" for why, n in s.invalid.items()],
    )


def _best(s: SweepResult) -> list[tuple[str, str]]:
    """("best", text) of the first-ranked point; ("fits", "none") if every point is too large."""
    if not s.best:
        return [("fits", "none")] if s.n_evaluated else []
    p = s.best[0]
    how = " ".join([p.form.strategy, *str(p.form.layout).split()])
    batch = f"micro-batch {p.micro_batch} x accum {p.grad_accum}"
    return [("best", f"{p.cluster}, {how}, {batch}: {figure(p.samples_per_s)} samples/s")]


def comparison_table(c: Comparison) -> Table:
    """A table with one column per option; an indented label gets that of its heading in front."""
    head = ("quantity", *map(name_of, c.columns))
    rows, heading = [], ""
    for label, cells in rows_of(c.columns, c.unit):
        if not cells:
            heading = label.rstrip(":") + ", "
        elif label.startswith("  "):
            rows.append((heading + label.strip(), *cells))
        else:
            heading = f"{label}, "
            rows.append((label, *cells))
    return Table("side by side", head, rows, range(1, len(head)))


def comparison_notes(c: Comparison) -> list[str]:
    """Lines that name the fastest and the cheapest option, and the sources of the figures."""
    return [*(" ".join(line.split()) for line in verdict(c)), *(f"{k}: {v}" for k, v in sources(c))]


@card_of.register
def _comparison(c: Comparison) -> Card:
    predictions = list(c.predictions)
    return Card(
        title=" or ".join(dict.fromkeys(map(name_of, c.columns))),
        subtitle=c.model,
        facts=_facts(c),
        tables=(comparison_table(c),),
        pictures=pictures(
            ("time", predictions, "step time by term, side by side"),
            ("memory", predictions, "memory of the fullest GPU by term, side by side"),
        ),
        notes=comparison_notes(c),
    )


def _facts(c: Comparison) -> list[tuple[str, str]]:
    """(label, text): the fastest with its throughput, the cheapest, and the options too large."""
    units = plural(c.unit)
    rate = {
        name_of(x): x.prediction.work_per_s if c.counts_tokens else x.prediction.samples_per_s
        for x in c.columns
        if x.prediction is not None
    }
    best = [
        (label, f"{name}: {figure(rate[name])} {units}/s" if label == "fastest" else name)
        for label, name in winners(c)
    ]
    return [
        *best,
        *(("does not fit", name_of(x)) for x in c.columns if not x.fits and x.prediction),
    ]


def _options(caption: str, options: Sequence[Option]) -> Table:
    head = ("cluster", "GPUs", "how", "batch", "step", "time", "cost", "why")
    rows = [
        (
            o.cluster,
            f"{o.n_gpus:,}",
            how(o),
            f"{o.micro_batch} x {o.grad_accum}",
            format_seconds(o.step_time_s),
            days(o.time_s),
            "-" if o.cost_usd is None else money(o.cost_usd),
            o.why,
        )
        for o in options
    ]
    return Table(caption, head, rows, (1, 3, 4, 5, 6))


@card_of.register
def _plan(p: Plan) -> Card:
    """The best options; for an impossible plan, the notes say which limits would have to move."""
    tables = [_options("the best of each cluster", p.best)] if p.best else []
    caption = "time to train against cost, with the Pareto front of what meets all limits"
    return Card(
        title=f"{p.model}: the least {p.objective}",
        good=p.feasible,
        verdict="All limits can be met" if p.feasible else "Nothing meets all limits",
        facts=[
            ("points", f"{p.n_points:,}"),
            ("valid", f"{p.n_valid:,}"),
            ("within all limits", f"{p.n_feasible:,}"),
        ],
        tables=tables,
        pictures=pictures(("trade-off", p, caption)) if p.front else (),
        notes=notes_of(p),
    )


@card_of.register
def _fleet(f: Fleet) -> Card:
    (_, title), *facts = fleet_facts(f)
    return Card(title=title, facts=facts)


@card_of.register
def _goodput(g: Goodput) -> Card:
    caption = "share of the time that is useful, against the checkpoint interval"
    return Card(
        title=f"goodput on {g.cluster}",
        facts=goodput_facts(g),
        pictures=pictures(("goodput", g, caption)),
        notes=[f"{name}: {source}" for name, source in g.sources],
    )


__all__ = ["card_of", "comparison_notes", "comparison_table"]
