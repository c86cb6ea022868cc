"""A prediction as plain text: at most 30 lines of 80 columns for any model and cluster.

What was asked for besides (the run, its cost) has further lines.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from simcore.answer.result import Explanation, Prediction
from simcore.report import sentences as say
from simcore.report.formatting import EDGE, WIDTH, labelled, wrapped
from simcore.report.tables import side_by_side

#: The largest number of lines, without those of ``sentences.ASKED``.
HEIGHT = 30
#: The column at which the memory table starts, to the right of the time table.
_COLUMN = 40
_GREEN, _RED, _BOLD, _PLAIN = "\033[32m", "\033[31m", "\033[1m", "\033[0m"


def _title(p: Prediction) -> list[str]:
    what, where = f"{say.what(p)},", f"on {p.cluster}"
    if len(what) > WIDTH:  # shorten the model's name, not the number of parameters after it
        rest = f", {say.parameters(p)},"
        what = textwrap.shorten(p.model_full_name, WIDTH - len(rest), placeholder=" ...") + rest
    lines = [f"{what} {where}"] if len(what) + len(where) < WIDTH else [what, where]
    return [textwrap.shorten(line, WIDTH, placeholder=" ...") for line in map(_breakable, lines)]


def _breakable(text: str) -> str:
    """``text`` with every word longer than a line cut, such as a cluster of many groups."""
    return " ".join(w if len(w) < WIDTH - 4 else w[: WIDTH - 10] + "..." for w in text.split())


def _settings(p: Prediction) -> list[str]:
    return [*wrapped(", ".join(say.settings(p)), WIDTH, 2), *wrapped(say.batch(p), WIDTH, 2)]


def _verdict(p: Prediction) -> list[str]:
    lines = labelled(*say.verdict(p.memory, say.noun(p)))
    for i, sentence in enumerate(say.advice(p)):
        lines += labelled("", sentence, 3 if i else 4)
    return [*lines, *(labelled("", say.elsewhere(p)) if say.elsewhere(p) else [])]


def _facts(p: Prediction, facts: Sequence[tuple[str, Any, int | None]]) -> list[str]:
    sentences = [(label.upper(), sentence(p), limit) for label, sentence, limit in facts]
    return [
        line for label, text, limit in sentences if text for line in labelled(label, text, limit)
    ]


Row = tuple[str, str, str]


def _rows(lines: Iterable[say.Line]) -> list[Row]:
    return [(("  " if x.part else "") + x.label, x.text, x.share) for x in lines]


def _time_rows(p: Prediction, limit: int) -> list[Row]:
    lines = say.time_lines(p)
    if len(lines) > limit:  # too many lines: show compute as one sum
        lines = [x for x in lines if not x.part]
    return _rows(lines)[:limit]


def _column(heading: str, rows: Sequence[Row]) -> list[str]:
    name = max((len(r[0]) for r in rows), default=0)
    value = max((len(r[1]) for r in rows), default=0)
    name = max(name, 19)
    lines = [f"  {a:<{name}} {b:>{value}} {c:>7}" for a, b, c in rows]
    return [heading, *lines]


def _breakdown(p: Prediction, limit: int) -> list[str]:
    times = _time_rows(p, limit)
    left = _column("where the time goes", times)
    # Small terms of memory leave room for assumptions.
    memory = _rows(say.memory_lines(p, max(len(times), limit - 2)))
    right = _column(f"where the memory goes ({p.memory.moment})", memory)
    return [line[:WIDTH].rstrip() for line in side_by_side(left, right, column=_COLUMN)]


def _measured(p: Prediction) -> list[str]:
    lines: list[str] = []
    for row in p.measured[:3]:
        lines += labelled("" if lines else "MEASURED", say.measured(row), 1)
    if len(p.measured) > 3:
        lines += labelled("", f"+{len(p.measured) - 3} more (--json)")
    return lines


#: Phrases that occur in assumptions, those of the most influential assumptions first.
_INFLUENCE = (
    ".toml: ", "NCCL has no such", "the language model only", "is predicted", "software:",
    "micro-batch", "not even", " unit: ", "was timed", "strategy:", "sequences of", "network:",
    "node:", "data",
)  # fmt: skip


def by_influence(assumptions: Iterable[str]) -> list[str]:
    """The assumptions, sorted by how much they usually influence the prediction."""

    def rank(text: str) -> int:
        return next((i for i, w in enumerate(_INFLUENCE) if w in text), len(_INFLUENCE))

    return sorted(assumptions, key=rank)


#: What an assumption says before its details.
_HEAD = re.compile(r"(?:(?!, https?| \(|; ).)*")


def _assumptions(p: Prediction, n_lines: int) -> list[str]:
    """The assumptions in at most ``n_lines`` lines, the most influential first and without details.

    Warnings are not repeated. Where not all have room, the last line says how many are left out.
    """
    ranked = [_HEAD.match(a)[0] for a in by_influence(p.assumptions) if a not in p.warnings]  # type: ignore[index]
    for shown in range(len(ranked), -1, -1):
        left = f"{len(ranked) - shown} more" if shown < len(ranked) else ""
        text = "; ".join([*ranked[:shown], *filter(None, [left])])
        if len(text) > n_lines * WIDTH:  # never fits
            continue
        lines = labelled("ASSUMED", f"{text} (--explain assumed)") if ranked else []
        if len(lines) <= n_lines:
            return lines
    return []


_HINT = "--explain TERM: formula, inputs and source   --trace FILE   --json"


def _paint(line: str, fits: bool) -> str:
    word, rest = line[:EDGE].rstrip(), line[len(line[:EDGE].rstrip()) :]
    return f"{_BOLD}{_GREEN if fits else _RED}{word}{_PLAIN}{rest}"


def render(p: Prediction, *, colour: bool = False) -> str:
    """The whole prediction as text. Without ``colour`` it holds no escape codes."""
    head = [*_title(p), *_settings(p)]
    verdict = _verdict(p)
    facts = _facts(p, say.FACTS)
    tail = [*_facts(p, say.LIMITS), *_measured(p)]
    outside = len(head) + len(verdict) + len(facts) + len(tail)
    height = HEIGHT + len(_facts(p, say.ASKED))
    # Two lines less: one for the tables' heading, one for assumptions.
    middle = _breakdown(p, max(3, height - outside - 2))
    spare = height - outside - len(middle)
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
    return "\n".join(lines[:height]) + "\n"


def render_assumed(p: Prediction) -> str:
    """Every assumption of a prediction in full, warnings first, then the most influential ones."""
    ranked = [*p.warnings, *(a for a in by_influence(p.assumptions) if a not in p.warnings)]
    lines = [
        f"{'  ' if i else '- '}{part}"
        for text in ranked
        for i, part in enumerate(wrapped(text, WIDTH - 2))
    ]
    return "\n".join([*lines, *(f"- default: {d}" for d in p.defaults)]) + "\n"


def render_terms(terms: Mapping[str, str]) -> str:
    """The terms that can be explained, each with its value."""
    width = max(map(len, terms))
    lines = [f"{term:<{width}}  {value}" for term, value in terms.items()]
    return "\n".join([*lines, "", "--explain TERM: its formula, inputs and source"]) + "\n"


def render_explanation(e: Explanation, related: Sequence[str] = ()) -> str:
    """The value, formula, inputs and source of one term as text of at most 19 lines.

    ``related`` are the names of terms to look at as well.
    """
    lines = [f"{e.term} = {e.value}", *labelled("formula", e.formula, 5)]
    width = max((len(name) for name, _ in e.inputs), default=0)
    for i, (name, value) in enumerate(e.inputs[:8]):
        lines += labelled("" if i else "inputs", f"{name:<{width}}  {value}", 1)
    lines += labelled("source", e.source, 4)
    if related:
        lines += labelled("see also", ", ".join(related), 1)
    return "\n".join(lines) + "\n"
