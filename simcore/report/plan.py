"""A plan as text of 80 columns: the best options, why, with which risk, and the sensitivities."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from math import isfinite

from simcore.base.units import GIGA, KILO, PERCENT, format_count, format_seconds
from simcore.planning.constraints import Relaxation
from simcore.planning.goal import CONFIDENCE, Goal
from simcore.planning.moments import minute
from simcore.planning.planner import Option, Plan, kwh
from simcore.report.formatting import (
    WIDTH,
    days,
    energy,
    figure,
    gigabytes,
    labelled,
    money,
    nearly_all,
    odds,
    percent,
    wrapped,
)
from simcore.report.front_chart import front_chart
from simcore.report.sweep import reasons
from simcore.report.tables import fitted
from simcore.report.text_of import text_of


@text_of.register
def render_plan(p: Plan) -> str:
    """The whole plan as text of 80 columns."""
    lines = [*_head(p), ""]
    if p.best:
        lines += [*option_table(p.best), "", *_why(p), ""]
        lines += _first(p.best[0], p)
        lines += [*_front(p), *_sensitivity(p)]
    else:
        lines += _impossible(p)
    lines += ["", *_sources(p)]
    if not p.best:
        lines += ["", *reasons(p.invalid, p.n_points)]
    return "\n".join(lines).rstrip() + "\n"


def _between(g: Goal) -> str:
    """The start and the end of the run, if the deadline was given as a date; otherwise empty."""
    return f" ({minute(g.begins)} to {minute(g.ends)})" if g.begins and g.ends else ""


def _head(p: Plan) -> list[str]:
    g = p.goal
    if g.tokens is not None:
        length = f"{format_count(g.tokens)} tokens = {format_count(p.samples or 0)} samples"
    elif g.steps is not None:
        length = f"{g.steps:,.0f} steps"
    else:
        length = f"{format_count(p.samples or 0)} samples"
    limits = []
    if g.deadline_s is not None:
        limits.append(f"within {days(g.deadline_s)}{_between(g)}")
    if g.budget_usd is not None:
        limits.append(f"for at most {money(g.budget_usd)}")
    if g.power_w is not None:
        limits.append(f"at most {figure(g.power_w / KILO)} kW")
    if g.max_gpus is not None:
        limits.append(f"at most {g.max_gpus:,} GPUs")
    limits += [f"at most {n:,} {gpu}" for gpu, n in g.available]
    if g.margin_frac:
        limits.append(f"{percent(g.margin_frac)} of memory free")
    if g.confidence is not None:
        limits.append(f"{percent(g.confidence)} sure")
    elif g.limits_time_or_cost:
        limits.append(f"{percent(CONFIDENCE)} sure (default)")
    lines = labelled("RUN", f"{p.model}, {length}")
    lines += labelled("LIMITS", ", ".join(limits) or "none")
    lines += labelled(
        "SPACE",
        f"{p.n_points:,} combinations of layout, batch and cluster: {p.n_valid:,} are valid, "
        f"{p.n_feasible:,} of them fit and meet all limits",
    )
    if p.unpriced:
        lines += labelled("WARNING", sentence_of_unpriced(p.unpriced))
    return lines


def sentence_of_unpriced(gpus: Sequence[str]) -> str:
    """Which GPU types a plan leaves out for want of a price, and how to keep them."""
    given = " ".join(f"--price {gpu}=DOLLARS" for gpu in gpus)
    return (
        f"{', '.join(gpus)} left out: no price is known (give {given}, or --objective time "
        "without a budget)"
    )


#: The most characters of the columns that name the cluster, and how an option trains.
_TEXTS = {1: 20, 2: 26}


def option_table(options: Sequence[Option]) -> list[str]:
    """The lines of a table of ranked options, at most 80 columns wide.

    If it is too wide, the number of GPUs is left out first, then the batch.
    """
    header = ["", "cluster", "how", "batch", "step", "time", "cost", "GPUs", "in time"]
    rows = [
        [
            str(i + 1),
            o.cluster,
            how(o),
            f"{o.micro_batch}x{o.grad_accum}",
            format_seconds(o.step_time_s),
            days(o.time_s),
            "-" if o.cost_usd is None else money(o.cost_usd),
            f"{o.n_gpus:,}",
            "-" if o.deadline_prob is None else odds(o.deadline_prob),
        ]
        for i, o in enumerate(options)
    ]
    return fitted(header, rows, WIDTH, texts=_TEXTS, spare=(7, 3))


def how(o: Option) -> str:
    """Strategy, parallel degrees and recompute of an option as short text."""
    parts = [o.form.strategy, *str(o.form.layout).split()]
    if o.form.recompute != "none":
        parts.append(f"rc-{o.form.recompute}")
    return " ".join(parts)


def _why(p: Plan) -> list[str]:
    lines = [] if len(p.best) < 2 else ["of these:"]
    for i, o in enumerate(p.best):
        lines += [f"  {i + 1}  {part}" if n == 0 else f"     {part}"
                  for n, part in enumerate(wrapped(o.why, WIDTH - 5))]  # fmt: skip
    return lines


def _first(o: Option, p: Plan) -> list[str]:
    """The best option in full: settings, step, run, risk and goodput."""
    prediction = o.prediction
    # A model's default may be to recompute, so the line says "no recompute" explicitly.
    recompute = "" if o.form.recompute != "none" else ", no recompute"
    lines = labelled(
        "TAKE",
        f"{o.cluster}, {how(o)}{recompute}, {o.form.precision}, micro-batch {o.micro_batch} "
        f"x accum {o.grad_accum} = {o.global_batch:,} samples a step, {o.n_steps:,.0f} steps",
    )
    if o.odds < CONFIDENCE:
        lines += labelled("", _certainty(o, p))
    if prediction is not None:
        t = prediction.step_time_s
        lines += labelled(
            "STEP",
            f"{format_seconds(t.value)}, 80 % between {format_seconds(t.low)} and "
            f"{format_seconds(t.high)}; MFU {percent(prediction.mfu_frac)}; "
            f"bound by {prediction.bound_by}; "
            f"memory {figure(o.memory_bytes / GIGA)} of {figure(o.capacity_bytes / GIGA)} GB",
        )
        low, high = t.low / t.value, t.high / t.value
        cost = "" if o.cost_usd is None else (
            f", {money(o.cost_usd)} (80 %: {money(o.cost_usd * low)} to {money(o.cost_usd * high)})"
        )  # fmt: skip
        lines += labelled(
            "RUN",
            f"{days(o.time_s)} (80 %: {days(o.time_s * low)} to {days(o.time_s * high)}){cost}, "
            f"{energy(kwh(o.energy_j))}, rated {figure(o.power_w / KILO)} kW",
        )
    risks = []
    if o.deadline_prob is not None:
        risks.append(f"{odds(o.deadline_prob)} to meet the deadline")
    if o.budget_prob is not None:
        risks.append(f"{odds(o.budget_prob)} to stay within the budget")
    if risks:
        lines += labelled("RISK", " and ".join(risks) + ", from the interval of the step time")
    g = o.goodput
    if g is not None and g.run_s is not None and g.failures:
        lines += labelled(
            "GOODPUT",
            f"{nearly_all(g.goodput_frac)} of the time is useful: a failure every "
            f"{format_seconds(g.mtbf_s)} ({_expected(g.failures)}), a checkpoint "
            f"({figure(g.checkpoint_bytes / GIGA)} GB, {format_seconds(g.save_s)}) every "
            f"{format_seconds(g.interval_s)}, {format_seconds(g.restart_s)} to restart",
        )
    return lines


def _certainty(o: Option, p: Plan) -> str:
    """How uncertain it is that an option meets its limits, and what certainty costs."""
    flip = "little more than a coin flip: " if o.odds < 0.75 else ""
    text = f"{flip}only {odds(o.odds)} sure to meet the limits"
    if p.surer is None:
        return f"{text}; nothing in the space is {percent(CONFIDENCE)} sure"
    cost, first = p.surer.of("cost"), o.of("cost")
    change = f", {money(cost)} ({percent(cost / first - 1.0, signed=True)})" if (
        isfinite(cost) and isfinite(first)
    ) else ""  # fmt: skip
    return (
        f"{text}; {odds(p.surer.odds)} sure: {p.surer.cluster}, {how(p.surer)}, "
        f"{days(p.surer.time_s)}{change}"
    )


def _expected(failures: float) -> str:
    """The number of failures as text: ``120 in all``, or ``0.16 expected`` for a short run."""
    return f"{failures:,.0f} in all" if failures >= 10.0 else f"{figure(failures)} expected"


def _front(p: Plan) -> list[str]:
    if len(p.front) < 2:
        return []
    shown = p.front if len(p.front) <= 6 else [
        p.front[round(i * (len(p.front) - 1) / 5)] for i in range(6)
    ]  # fmt: skip
    text = "; ".join(
        f"{days(o.time_s)} {money(o.cost_usd) if o.cost_usd is not None else f'{o.n_gpus} GPUs'} "
        f"({o.cluster})"
        for o in shown
    )
    more = f" ({len(p.front)} in all, --json)" if len(shown) < len(p.front) else ""
    priced = all(o.cost_usd is not None for o in p.front)
    points = [(o.time_s, o.cost_usd or 0.0 if priced else float(o.n_gpus)) for o in p.front]
    taken = next((i for i, o in enumerate(p.front) if o.cluster == p.best[0].cluster), None)
    drawn = front_chart(points, days, money if priced else lambda n: f"{n:,.0f} GPUs", marked=taken)
    legend = ["  # the option above" if taken is not None else ""] if drawn else []
    return [*labelled("PARETO", f"{text}{more}"), *drawn, *filter(None, legend)]


def _sensitivity(p: Plan) -> list[str]:
    base = p.best[0].of(p.objective)
    if not isfinite(base):
        return []
    parts = []
    for s in p.sensitivities:
        if s.best is None:
            parts.append(f"{s.change}: nothing would meet all limits")
            continue
        change = s.best / base - 1.0
        where = "" if s.same else f" ({s.cluster})"
        if abs(change) < 0.0005:
            parts.append(f"{s.change}: no change{where}")
        else:
            parts.append(f"{s.change}: {change * PERCENT:+.1f} % {p.objective}{where}")
    return labelled("WHAT IF", "; ".join(parts))


def _impossible(p: Plan) -> list[str]:
    if not p.n_valid:
        return ["IMPOSSIBLE: no combination of the space is valid."]
    lines = ["IMPOSSIBLE: nothing meets all limits."]
    if not p.relaxations:
        more = p.goal.max_gpus is not None or p.goal.available
        lines += labelled(
            "RELAX",
            "no way within these GPUs holds the model: more of them, or larger ones"
            if more else "no change of the limits would help: no GPU here holds the model",
        )  # fmt: skip
        if p.leanest is not None:
            lines += labelled("", _leanest(p.leanest))
        if p.fixes:
            lines += labelled("", f"what makes it fit (samples/s then): {'; '.join(p.fixes)}", 4)
    for i, r in enumerate(p.relaxations):
        lines += labelled("RELAX" if i == 0 else "  or", _relax(r, p.goal))
    for name, n in p.blocked.items():
        of = p.n_timed if name in _OF_TIME else p.n_valid
        lines += labelled("", f"{name} by itself rules out {n:,} of {of:,} points")
    return lines


def _leanest(o: Option) -> str:
    """One sentence on the option that needs the least memory, which is still too much."""
    return (
        f"the leanest way needs {gigabytes(o.memory_bytes)} of {gigabytes(o.capacity_bytes)} GB a "
        f"GPU: {o.cluster}, {how(o)}, micro-batch {o.micro_batch}"
    )


#: Factor on a relaxed limit, so that the rounded value in the text still suffices.
_MORE = 1.0005
#: Limits that only points with a computed time can violate.
_OF_TIME = ("deadline", "budget")


def _relax(r: Relaxation, goal: Goal) -> str:
    parts = []
    for name, kind, limit, needed in r.changes:
        more = needed / limit
        change = f"x{more:.3g}" if more >= 2.0 else f"{(more - 1.0) * PERCENT:+.3g} %"
        to = _amount(kind, needed, up=True)
        if name == "deadline" and goal.begins:
            to += f", {minute(goal.begins + timedelta(seconds=needed * _MORE))}"
        parts.append(f"{name} from {_amount(kind, limit)} to {to} ({change})")
    return " and ".join(parts)


def _amount(kind: str, value: float, *, up: bool = False) -> str:
    """A limit as text. With ``up`` the value is rounded up, so that the text's value suffices."""
    if kind == "time":
        return days(value * (_MORE if up else 1.0))
    if kind == "money":
        return money(value * (_MORE if up else 1.0))
    if kind == "power":
        return f"{figure(value / KILO)} kW"
    if kind == "odds":
        return percent(value)
    if kind == "share":
        return f"{percent(value)} of its capacity"
    return f"{value:,.0f}"


def _sources(p: Plan) -> list[str]:
    return [line for label, text in _origins(p) for line in labelled(label, text)]


def _origins(p: Plan) -> list[tuple[str, str]]:
    """(label, text) of the sources and the assumptions of a plan."""
    return [
        *(("source", f"{name}: {source}") for name, source in p.sources),
        *(("assumed", assumption) for assumption in p.assumptions),
    ]


def notes_of(p: Plan) -> list[str]:
    """The relaxations that would make an impossible plan possible, its sources and assumptions."""
    relaxations = [f"relax: {_relax(r, p.goal)}" for r in p.relaxations]
    return [*relaxations, *(f"{label}: {text}" for label, text in _origins(p))]
