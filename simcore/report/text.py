"""The answer as plain text: at most 30 lines of 80 columns, whatever the model and cluster."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from simcore.base.units import GIB, GIGA, KILO, format_seconds, format_si
from simcore.engine.result import Explanation, MeasuredRow, Prediction
from simcore.report.tables import side_by_side
from simcore.report.terms import COMPUTE_PARTS, HIDDEN, memory_label, time_label
from simcore.report.words import (
    EDGE,
    WIDTH,
    figure,
    gigabytes,
    labelled,
    percent,
    plural,
    wrapped,
)

HEIGHT = 30
#: Where the memory column starts beside the time column.
_COLUMN = 40
#: A resource is worth a word when twice of it gains at least this.
_WORTH_FRAC = 0.005
_GREEN, _RED, _BOLD, _PLAIN = "\033[32m", "\033[31m", "\033[1m", "\033[0m"


def _title(p: Prediction) -> list[str]:
    what = f"{p.model_full_name}, {format_si(p.n_params, '').strip()} parameters,"
    where = f"on {p.cluster}"
    lines = [f"{what} {where}"] if len(what) + len(where) < WIDTH else [what, where]
    return [textwrap.shorten(line, WIDTH, placeholder=" ...") for line in map(_breakable, lines)]


def _breakable(text: str) -> str:
    """A word longer than a line, such as a cluster of many groups, cut to fit."""
    return " ".join(w if len(w) < WIDTH - 4 else w[: WIDTH - 10] + "..." for w in text.split())


def _settings(p: Prediction) -> list[str]:
    """What was chosen, each default marked; a default's first word is its flag."""
    default = {d.split()[0] for d in p.defaults}

    def shown(flag: str, text: str) -> str:
        return f"{text} (default)" if flag in default else text

    parts = [
        *([p.layout] if p.layout else []),
        shown("strategy", p.strategy),
        shown("precision", p.precision),
        shown("optimizer", p.optimizer),
        shown("recompute", "no recompute" if p.recompute == "none" else "recompute " + p.recompute),
    ]
    if p.offload != "none":
        parts.append(f"offload {p.offload}")
    batch = " x ".join(
        [
            shown("micro-batch", f"micro-batch {p.micro_batch:,}"),
            shown("grad-accum", f"accum {p.grad_accum:,}"),
            f"{p.data_ranks:,} {'replica' if p.layout else 'GPU'}{'s' if p.data_ranks > 1 else ''}",
        ]
    )
    unit = p.sample_unit if p.global_batch == 1 else plural(p.sample_unit)
    return [
        *wrapped(", ".join(parts), WIDTH, 2),
        *wrapped(f"{batch} = {p.global_batch:,} {unit} a step", WIDTH, 2),
    ]


def _verdict(p: Prediction) -> list[str]:
    m = p.memory
    decimal = f"{gigabytes(m.device_bytes)} of {gigabytes(m.capacity_bytes)} GB a GPU"
    binary = f"({figure(m.device_bytes / GIB)} of {figure(m.capacity_bytes / GIB)} GiB)"
    if p.fits:
        text = f"{decimal} {binary}, {percent(m.margin_frac)} left"
        if m.high_bytes > m.capacity_bytes:
            text += f"; tight: may reach {gigabytes(m.high_bytes)} GB (80 % interval)"
        lines = labelled("FITS", text)
    else:
        over = gigabytes(m.device_bytes - m.capacity_bytes)
        lines = labelled("NO", f"needs {decimal} {binary}: {over} GB too much")
        fixes = "; ".join(p.fixes) if p.fixes else "nothing that was tried (--json)"
        lines += labelled("", f"what makes it fit: {fixes}", 2)
    away = [
        f"{gigabytes(n)} GB of {what}"
        for n, what in ((m.host_bytes, "host memory"), (m.nvme_bytes, "NVMe"))
        if n > 0
    ]
    if away:
        lines += labelled("", f"and a GPU keeps {' and '.join(away)}")
    return lines


def _step(p: Prediction) -> list[str]:
    t = p.step_time_s
    low, high = format_seconds(t.low), format_seconds(t.high)
    text = f"{format_seconds(t.value)}, 80 % between {low} and {high} ({t.origin})"
    return labelled("STEP", text, 3)


def _throughput(p: Prediction) -> list[str]:
    parts = [
        f"{figure(p.samples_per_s)} {plural(p.sample_unit)}/s",
        f"{figure(p.iter_per_s)} iter/s",
        f"MFU {percent(p.mfu_frac)}",
    ]
    lines = labelled("THROUGHPUT", ", ".join(parts))
    if p.n_gpus > 1:
        one = f"one {p.single_gpu}" + (" (the fastest)" if len(p.rank_classes) > 1 else "")
        lines += labelled(
            "SPEED-UP",
            f"{figure(p.speedup_vs_1gpu)} x {one}, "
            f"{percent(p.scaling_efficiency_frac)} scaling efficiency",
            2,
        )
    return lines


def _mixed(p: Prediction) -> list[str]:
    if len(p.rank_classes) < 2:
        return []
    slow = max(p.rank_classes, key=lambda c: c.compute_s)
    fast = min(p.rank_classes, key=lambda c: c.compute_s)
    text = (
        f"{slow.gpu} ({slow.n_gpus:,} of {p.n_gpus:,}): {format_seconds(slow.compute_s)} of "
        f"compute a step, {fast.gpu} {format_seconds(fast.compute_s)}; an uneven split of the "
        f"batch would gain {percent(p.uneven_split_gain_frac)}"
    )
    return labelled("SLOWEST", text, 2)


Row = tuple[str, str, str]


def _time_rows(p: Prediction, limit: int) -> list[Row]:
    step = p.step_time_s.value
    unit, scale = ("s", 1.0) if step >= 2.0 else ("ms", 1.0 / KILO)
    digits = 1 if step / scale >= 10 else 2
    least = 0.5 * scale / 10.0**digits  # what rounds to zero is left out
    terms = {k: v for k, v in p.time_s.items() if v >= least}
    if sum(k in terms for k in COMPUTE_PARTS) == 1:  # the sum would say it twice
        terms.pop("compute", None)

    def row(key: str, seconds: float) -> Row:
        label = ("  " if key in COMPUTE_PARTS and "compute" in terms else "") + time_label(key)
        share = "-" if key == HIDDEN else percent(seconds / step)
        return label, f"{seconds / scale:,.{digits}f} {unit}", share

    rows = [row(k, v) for k, v in terms.items()]
    if len(rows) > limit:  # many terms, little room: compute stays as its sum
        rows = [row(k, v) for k, v in terms.items() if k not in COMPUTE_PARTS or k not in terms]
    return rows[:limit]


def _memory_rows(p: Prediction, limit: int) -> list[Row]:
    total = p.memory.device_bytes
    digits = 1 if total >= 100 * GIGA else 2
    least = 0.5 * GIGA / 10.0**digits
    terms = sorted(((k, v) for k, v in p.memory.terms.items() if v >= least), key=lambda t: -t[1])
    if len(terms) > limit:
        rest = terms[limit - 1 :]
        shown = [(memory_label(k), v) for k, v in terms[: limit - 1]]
        shown.append((f"{len(rest)} smaller terms", sum(v for _, v in rest)))
    else:
        shown = [(memory_label(k), v) for k, v in terms]
    return [(name, f"{v / GIGA:,.{digits}f} GB", percent(v / total)) for name, v in shown]


def _column(heading: str, rows: Sequence[Row]) -> list[str]:
    name = max((len(r[0]) for r in rows), default=0)
    value = max((len(r[1]) for r in rows), default=0)
    name = max(name, 19)
    lines = [f"  {a:<{name}} {b:>{value}} {c:>7}" for a, b, c in rows]
    return [heading, *lines]


def _breakdown(p: Prediction, limit: int) -> list[str]:
    left = _column("where the time goes", _time_rows(p, limit))
    right = _column(f"where the memory goes ({p.memory.moment})", _memory_rows(p, limit))
    return [line[:WIDTH].rstrip() for line in side_by_side(left, right, column=_COLUMN)]


def _bound(p: Prediction) -> list[str]:
    worth = [w for w in p.what_if if w.gain_frac >= _WORTH_FRAC][:3]
    gains = [
        f"x2 {'of it' if w.resource == p.bound_by else w.resource}: "
        f"{format_seconds(w.step_time_s)} ({percent(-w.gain_frac, signed=True)})"
        for w in worth
    ]
    return labelled("BOUND BY", "; ".join([p.bound_by, *gains]), 3)


def _measured_value(row: MeasuredRow, value: float) -> str:
    if "memory" in row.quantity or row.quantity.endswith("bytes"):
        return f"{gigabytes(value)} GB"
    if "time" in row.quantity or (row.quantity.endswith("_s") and "_per_" not in row.quantity):
        return format_seconds(value)
    return figure(value)


def _measured(p: Prediction) -> list[str]:
    lines: list[str] = []
    for row in p.measured[:3]:
        name = row.quantity.removesuffix("_s").removesuffix("_bytes").replace("_", " ")
        text = (
            f"{name} {_measured_value(row, row.measured)}, predicted "
            f"{_measured_value(row, row.predicted)} ({percent(row.error_frac, signed=True)}), "
            f"{row.source}{'; ' + row.note if row.note else ''}"
        )
        lines += labelled("" if lines else "MEASURED", text, 1)
    if len(p.measured) > 3:
        lines += labelled("", f"+{len(p.measured) - 3} more (--json)")
    return lines


def _run(p: Prediction) -> list[str]:
    if p.run_time_s is None or p.run_steps is None:
        return []
    return labelled("RUN", f"{format_seconds(p.run_time_s)} for {p.run_steps:,.0f} steps")


#: Assumptions that move the answer most stand first.
_WEIGHT = (".toml: ", "micro-batch", "not even", " unit: ", "network:", "node:", "data")


def by_weight(assumptions: Iterable[str]) -> list[str]:
    """Assumptions in the order of how much they usually matter."""

    def rank(text: str) -> int:
        return next((i for i, w in enumerate(_WEIGHT) if w in text), len(_WEIGHT))

    return sorted(assumptions, key=rank)


def _assumptions(p: Prediction, room: int) -> list[str]:
    """As many assumptions as ``room`` lines hold; the last line says how many are left out."""
    ranked = by_weight(p.assumptions)
    if not ranked or room < 1:
        return []
    lines: list[str] = []
    for i, text in enumerate(ranked):
        left = len(ranked) - i - 1
        more = labelled("" if lines else "ASSUMED", text)
        if len(lines) + len(more) + bool(left) <= room:
            lines += more
            continue
        note = f"+{left + 1} more (--json)"
        if not lines:
            if room == 1:
                return labelled("ASSUMED", f"{left + 1} things (--json lists them)")
            return [*labelled("ASSUMED", text, room - 1), *(labelled("", f"+{left} more (--json)")
                                                        if left else [])]  # fmt: skip
        return [*lines, *labelled("", note)]
    return lines


_HINT = "--explain TERM: formula, inputs and source   --trace FILE   --json"


def _paint(line: str, fits: bool) -> str:
    word, rest = line[:EDGE].rstrip(), line[len(line[:EDGE].rstrip()) :]
    return f"{_BOLD}{_GREEN if fits else _RED}{word}{_PLAIN}{rest}"


def render(p: Prediction, *, colour: bool = False) -> str:
    """The whole answer. Without ``colour`` it holds no escape codes."""
    head = [*_title(p), *_settings(p)]
    verdict = _verdict(p)
    facts = [*_step(p), *_throughput(p), *_mixed(p), *_run(p)]
    tail = [*_bound(p), *_measured(p)]
    outside = len(head) + len(verdict) + len(facts) + len(tail)
    # The columns leave room for their heading and one line of assumptions.
    middle = _breakdown(p, max(3, HEIGHT - outside - 2))
    spare = HEIGHT - outside - len(middle)
    gaps = 3 if spare >= 5 else 2 if spare >= 4 else 0
    hint = spare - gaps >= 3
    assumed = _assumptions(p, spare - gaps - hint)
    if colour:
        verdict = [_paint(verdict[0], p.fits), *verdict[1:]]
    blank = [""]
    lines = [
        *head,
        *(blank if gaps == 3 else []),
        *verdict,
        *facts,
        *(blank if gaps else []),
        *middle,
        *(blank if gaps else []),
        *tail,
        *assumed,
        *([_HINT] if hint else []),
    ]
    return "\n".join(lines[:HEIGHT]) + "\n"


def render_explanation(e: Explanation, related: Sequence[str] = ()) -> str:
    """Formula, inputs and source of one term in at most 19 lines."""
    lines = [f"{e.term} = {e.value}", *labelled("formula", e.formula, 5)]
    width = max((len(name) for name, _ in e.inputs), default=0)
    for i, (name, value) in enumerate(e.inputs[:8]):
        lines += labelled("" if i else "inputs", f"{name:<{width}}  {value}", 1)
    lines += labelled("source", e.source, 4)
    if related:
        lines += labelled("see also", ", ".join(related), 1)
    return "\n".join(lines) + "\n"
