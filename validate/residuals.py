"""The residuals of intervals, fitted and tested: ``python -m validate.residuals llm.csv ddp.csv``.

Fits the widths of ``step_residual``, ``memory_residual`` and ``segments_residual`` of
hardware_db/calibrations/runtime.yaml to the blind errors of tables of measured steps, and says
what share of each source lies inside: by these widths, and by widths fitted without that source.
The tables set the widths, so only the second is a test. Central predictions are not touched.
Widths of steps hold 80 % of a source to come, each source counted once.
``memory_foreign`` is what memory of a source left out, or of a public case of a program without
figures, needs beside them, each source counted once;
``memory_kinds`` are the kinds of program with figures, and what their own rows need instead.
``assumed`` and ``memory_assumed`` are what rows need beside all that whose program is left unsaid.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from simcore.answer.residual import PARTS, part_weights
from simcore.base.figures import Z80
from simcore.calibrate.steps.spread import Errors, fit_widths, width_of_a_new_source
from simcore.hardware.estimates import Estimate
from simcore.hardware.profile import BLIND_ORIGIN, load_profile
from simcore.memory.spread import is_foreign, program_kind
from simcore.memory.terms import loose_bytes
from simcore.request.resolved import Request
from simcore.strategy.programs.mechanisms import PLAIN
from simcore.validate.case import Case
from simcore.validate.judge import Judged, judge, request_of
from simcore.validate.table import read_table
from simcore.validate.unnamed import by_program, unnamed
from simcore.workload.models import ModelRecord
from simcore.workload.resolve import resolve_model
from validate.must_hold.cases import beside, cases_file, outcome_of, read_cases

#: Parts of the variance of memory, over the square of what comes and goes within a step.
MEMORY_PARTS = ("memory_residual", "memory_residual_eager", "segments_residual")
#: Readings that hold the allocator's segments, and those that hold what lies outside it.
SEGMENTS = ("peak_reserved_bytes", "peak_shown_bytes")
OUTSIDE = ("peak_memory_bytes", "peak_shown_bytes")
READINGS = (
    "peak_memory_bytes", "peak_allocated_bytes", "peak_rank0_allocated_bytes",
    "peak_last_rank_allocated_bytes",
    "peak_reserved_bytes", "peak_shown_bytes",
)  # fmt: skip
#: A source with fewer rows has no line of its own, a kind of program with fewer no width.
LEAST_ROWS = 5
LEVEL = 0.8
#: A kind of program with fewer predicted steps has no factor; factors lie between these two.
LEAST_STEPS, FACTORS = 40, (0.3, 2.0)
#: Attention that writes scores to memory: programs of before 2023, which no library assumed is.
WRITES_SCORES = ("eager", "fused_softmax")
#: Parts that rows which name their program tell; ``assumed`` is of those that do not, ``timed`` of
#: steps on GPUs that the project's benchmarks timed.
FITTED = tuple(name for name in PARTS if name not in ("assumed", "timed"))
CARDS = Path(__file__).parent / "cards"


@dataclass(frozen=True)
class Row:
    """One error: whose, of which reading, its size, the variance known, and weights of parts.

    Of memory: over what comes and goes, of which ``held`` is how often the framework holds as
    much; where nothing does, over all that it holds, without weights. ``program``: its kind.
    """

    table: str
    source: str
    what: str
    size: float
    known: float
    weights: tuple[float, ...]
    held: float = 1.0
    program: str = ""


def step_rows(judged: Sequence[Judged], requests: Sequence[Request]) -> list[Row]:
    """Errors of ln(step time); known is the spread of the figures, no residual."""
    rows = []
    for j, request in zip(judged, requests, strict=True):
        for s in j.scored:
            if s.quantity == "step_time" and not s.flag and "step_time_s" in j.case.measured:
                sd = math.log(s.high / s.low) / (2.0 * Z80)
                of = dict(zip(PARTS, part_weights(request), strict=True))
                rows.append(Row(*_whose(j), "step", abs(math.log(s.measured / s.predicted)), sd**2,
                                tuple(of[name] for name in FITTED),
                                program=program_kind(request)))  # fmt: skip
    return rows


def memory_rows(judged: Sequence[Judged], requests: Sequence[Request]) -> list[Row]:
    """Errors of memory over what comes and goes; known is the spread outside the allocator."""
    rows = []
    for j, request in zip(judged, requests, strict=True):
        if j.case.flag:
            continue
        scored = [s for s in j.scored if s.quantity == "peak_memory"]
        # in the order in which they are judged
        readings = [k for k in READINGS if k in j.case.measured]
        memory = j.memory
        for s, key in zip(scored, readings, strict=True):
            loose = loose_bytes(memory.terms)  # else the update is fullest: state alone
            over = loose or memory.allocated_bytes
            half = (memory.high_bytes - memory.device_bytes) / Z80
            outside = max(half**2 - memory.tensors_sd_bytes**2, 0.0) if key in OUTSIDE else 0.0
            eager = request.eager_kernels
            of = (not eager, eager, key in SEGMENTS)
            rows.append(Row(*_whose(j), key.removeprefix("peak_").removesuffix("_bytes"),
                            abs(s.measured - s.predicted) / over, outside / over**2,
                            tuple(float(w and loose > 0) for w in of),
                            memory.allocated_bytes / over, program_kind(request)))  # fmt: skip
    return rows


def _whose(j: Judged) -> tuple[str, str]:
    return j.case.table, j.case.columns.get("source") or j.case.table


def errors_of(rows: Sequence[Row]) -> Errors:
    """Rows as arrays."""
    return Errors(
        np.array([r.size for r in rows]),
        np.array([r.known for r in rows]),
        np.array([r.weights for r in rows]),
    )


def fitted(
    rows: Sequence[Row], names: Sequence[str], *, for_sources: bool = False
) -> dict[str, Any]:
    """Widths, and shares inside by table and source: fitted with them, and without the source.

    ``for_sources``: widths are multiplied by what a source to come needs of widths set without it,
    each source counted once; large sources lie closer to widths that they set.
    """
    errors = errors_of(rows)
    sources = np.array([r.source for r in rows])
    names_of = list(dict.fromkeys(sources.tolist()))
    times = np.ones(len(rows))
    if len(names_of) > 1:
        for source in names_of:
            mine = sources == source
            times[mine] = errors.take(mine).needed(fit_widths(errors.take(~mine)))

    def factor(of: Any) -> float:
        return width_of_a_new_source(times[of], sources[of]) if for_sources else 1.0

    widths = fit_widths(errors) * factor(np.ones(len(rows), dtype=bool))
    inside = errors.inside(widths)
    left_out = np.zeros(len(rows), dtype=bool)
    if len(names_of) > 1:
        for source in names_of:
            mine = sources == source
            left_out[mine] = times[mine] <= factor(~mine)

    def share(of: Any) -> dict[str, float | int]:
        return {"n": int(of.sum()), "inside_frac": float(inside[of].mean()),
                "left_out_frac": float(left_out[of].mean())}  # fmt: skip

    tables = np.array([r.table for r in rows])
    kinds = np.array([f"{r.source}, {r.what}" for r in rows])
    return {
        "widths": dict(zip(names, (float(w) for w in widths), strict=True)),
        "left_out_of_sources_frac": float(
            np.mean([left_out[sources == source].mean() for source in names_of])
        ),
        "tables": {t: share(tables == t) for t in dict.fromkeys(tables.tolist())},
        "sources": {k: share(kinds == k) for k, n in Counter(kinds.tolist()).most_common()
                    if n >= LEAST_ROWS},
    }  # fmt: skip


def beyond(rows: Sequence[Row]) -> Any:
    """The width, over all that the framework holds, that each error [R] needs beside the widths
    that are fitted without its source."""
    weighed = [any(r.weights) for r in rows]
    errors, sources = errors_of(rows), np.array([r.source for r in rows])
    needed = np.zeros(len(rows))
    for source in dict.fromkeys(sources):
        mine = sources == source
        widths = fit_widths(errors.take(~mine & weighed))
        own = errors.take(mine)
        lack = np.square(own.size / Z80) - np.square(own.sd(widths))
        needed[mine] = np.sqrt(np.maximum(lack, 0.0))
    return needed / np.array([r.held for r in rows])


def public_rows() -> list[Row]:
    """Errors of memory of public cases that name a program without rows in the tables.

    Each case's source is a source. Its launch lines' cases (the other file) are not looked at: they
    test the width.
    """
    bare = load_profile().with_knobs((), "blind", BLIND_ORIGIN, 0.0)
    found = []
    for case in read_cases(cases_file()):
        outcome = outcome_of(case)
        with beside(case.files):
            for j in outcome.judged:
                request = request_of(j.case, bare)
                if is_foreign(request) and not request.software_assumed:
                    rows = memory_rows([j], [request])
                    found += [replace(r, source=case.source) for r in rows]
    return found


def foreign(
    rows: Sequence[Row], widths: Sequence[Estimate], public: Sequence[Row] = ()
) -> dict[str, Any]:
    """``memory_foreign``, what each kind of program with rows has instead, and shares left out.

    ``widths``: those of ``MEMORY_PARTS`` in force, beside which a kind's own rows and those of
    public cases (``public``) are looked at.
    ``left_out_frac``: without ``memory_foreign`` and with it, set without the source; mean of
    sources.
    """
    needed, sources = beyond(rows), np.array([r.source for r in rows])
    wide = _left_out_shares(needed, sources)
    bare = {source: float((needed[sources == source] <= 0.0).mean()) for source in wide}
    every, named = needed, sources
    if public:
        every = np.concatenate([needed, _lacking(public, widths)])
        named = np.concatenate([sources, [r.source for r in public]])
    width, lacks = width_of_a_new_source(every, named), _lacking(rows, widths)
    kinds = np.array([r.program for r in rows])
    own = {
        k: float(np.quantile(lacks[kinds == k], LEVEL, method="inverted_cdf"))
        for k, n in Counter(kinds.tolist()).items()
        if n >= LEAST_ROWS and k != PLAIN.name
    }
    return {
        "width": width,
        "kinds": {k: w for k, w in sorted(own.items()) if w < width},
        "left_out_frac": tuple(float(np.mean(list(of.values()))) for of in (bare, wide)),
        "sources": {source: (bare[source], share) for source, share in wide.items()},
    }


def _lacking(rows: Sequence[Row], widths: Sequence[Estimate]) -> Any:
    """The width over all that is held which each error [R] needs beside those that are set."""
    errors = errors_of(rows)
    known = errors.known + errors.weights @ np.square([w.value for w in widths])
    lack = np.sqrt(np.maximum(np.square(errors.size / Z80) - known, 0.0))
    return lack / np.array([r.held for r in rows])


def _left_out_shares(needed: Any, sources: Any) -> dict[str, float]:
    """The share of each source's rows [R] inside the width that is set without the source."""
    found = {}
    for source in dict.fromkeys(sources.tolist()):
        mine = sources == source
        width = width_of_a_new_source(needed[~mine], sources[~mine])
        found[source] = float((needed[mine] <= width).mean())
    return found


def assumed(files: Sequence[Path]) -> dict[str, Any]:
    """``assumed`` of ``step_residual`` and ``memory_assumed``: of rows whose program is unsaid.

    Those where a library is assumed, and of memory those whose program writes no scores.
    """
    bare = load_profile().with_knobs((), "blind", BLIND_ORIGIN, 0.0)
    named = [read_table(f) for f in files]
    verdict = judge([t.changed(unnamed) for t in named], profile_for=lambda _: bare)
    requests = [request_of(j.case, bare) for j in verdict.judged]
    taken = [(j, r) for j, r in zip(verdict.judged, requests, strict=True) if r.software_assumed]
    as_run = {(c.table, c.id): c for t in named for c in t.cases}
    today = [(j, r) for j, r in taken if not writes_scores(as_run[j.case.table, j.case.id])]
    return {
        "step_time": _beside(step_rows(*_apart(taken)), [bare.step_residual[n] for n in FITTED]),
        "memory": _beside(memory_rows(*_apart(today)),
                          [bare.memory_sd_log(n) for n in MEMORY_PARTS]),
    }  # fmt: skip


def step_kinds(files: Sequence[Path]) -> dict[str, float]:
    """``step_kinds``: by kind of program, the factor on the residual that holds 80 % of its steps.

    Each row is predicted twice, as published and by its program's name and release alone, since
    users ask either way. A further step of the kind, exchangeable with its n, is inside at the
    level 0.8 (n + 1)/n.
    """
    bare = load_profile().with_knobs((), "blind", BLIND_ORIGIN, 0.0)
    tables = [read_table(f) for f in files]
    verdict = judge([*tables, *(t.changed(by_program) for t in tables)], profile_for=lambda _: bare)
    requests = [request_of(j.case, bare) for j in verdict.judged]
    rows = [r for r in step_rows(verdict.judged, requests) if r.program != PLAIN.name]
    widths = np.array([bare.step_residual[name].value for name in FITTED])
    needed, kinds = errors_of(rows).needed(widths), np.array([r.program for r in rows])
    found = {}
    for kind, n in sorted(Counter(kinds.tolist()).items()):
        if n >= LEAST_STEPS:
            level = min(LEVEL * (n + 1) / n, 1.0)
            factor = np.quantile(needed[kinds == kind], level, method="inverted_cdf")
            found[kind] = round(float(np.clip(factor, *FACTORS)), 2)
    return found


def timed(files: Sequence[Path]) -> dict[str, Any]:
    """``timed`` of ``step_residual``: the width of such steps in the files and on the cards."""
    bare = load_profile().with_knobs((), "blind", BLIND_ORIGIN, 0.0)
    verdict = judge(
        [read_table(f) for f in (*files, *sorted(CARDS.glob("*/steps.csv")))],
        profile_for=lambda _: bare,
    )
    pairs = [(j, request_of(j.case, bare)) for j in verdict.judged]
    at = list(PARTS).index("timed")
    rows = step_rows(*_apart([(j, r) for j, r in pairs if part_weights(r)[at]]))
    plain = [replace(r, weights=(1.0,)) for r in rows]
    return {"width": float(fit_widths(errors_of(plain))[0]), "rows": len(rows)}


def writes_scores(case: Case) -> bool:
    """Whether the program of a row keeps attention's scores."""
    record = resolve_model(case.model, settings=case.options.get("settings"))
    return isinstance(record, ModelRecord) and record.settings({}).get("attention") in WRITES_SCORES


def _apart(
    taken: Sequence[tuple[Judged, Request]],
) -> tuple[list[Judged], list[Request]]:
    return [j for j, _ in taken], [r for _, r in taken]


def _beside(rows: Sequence[Row], widths: Sequence[Estimate]) -> dict[str, Any]:
    """The width that a source to come needs beside those set, over all that is held; and the share
    of each source that lies inside with a width set without it."""
    needed, sources = _lacking(rows, widths), np.array([r.source for r in rows])
    left_out = _left_out_shares(needed, sources)
    return {
        "width": width_of_a_new_source(needed, sources),
        "rows": len(rows),
        "left_out_of_sources_frac": float(np.mean(list(left_out.values()))),
        "sources": left_out,
    }


def residuals(files: Sequence[Path]) -> dict[str, Any]:
    """Both fits, of all rows of the tables."""
    bare = load_profile().with_knobs((), "blind", BLIND_ORIGIN, 0.0)
    verdict = judge([read_table(f) for f in files], profile_for=lambda _: bare)
    requests = [request_of(j.case, bare) for j in verdict.judged]
    memory = memory_rows(verdict.judged, requests)
    return {
        "step_time": fitted(step_rows(verdict.judged, requests), FITTED, for_sources=True),
        "memory": fitted([r for r in memory if any(r.weights)], MEMORY_PARTS),
        "assumed": assumed(files),
        "timed": timed(files),
        "step_kinds": step_kinds(files),
        "memory_foreign": foreign(
            memory, [bare.memory_sd_log(n) for n in MEMORY_PARTS], public_rows()
        ),
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = residuals(asked.files)
    write = sys.stdout.write
    if asked.json:
        write(json.dumps(found, indent=1) + "\n")
        return
    names = ("memory_foreign", "assumed", "timed", "step_kinds")
    other, taken, own, kinds = (found.pop(k) for k in names)
    for what, fit in found.items():
        write(f"\n{what}: " + ", ".join(f"{k} {v:.3f}" for k, v in fit["widths"].items()) + "\n")
        write(f"{'':54}{'rows':>6}{'inside':>9}{'left out':>10}\n")
        each = fit["left_out_of_sources_frac"]
        write(f"{'sources left out, each counted once':<54}{'':15}{each:>10.2f}\n")
        for name, s in {**fit["tables"], **fit["sources"]}.items():
            shares = f"{s['inside_frac']:>9.2f}{s['left_out_frac']:>10.2f}"
            write(f"{name:<54.54}{s['n']:>6}{shares}\n")
    for what, name in (("step_time", "assumed"), ("memory", "memory_assumed")):
        of = taken[what]
        write(
            f"\n{name}: {of['width']:.3f}, of {of['rows']} rows; sources left out, each "
            f"counted once: {of['left_out_of_sources_frac']:.2f}\n"
        )
        for source, inside in of["sources"].items():
            write(f"{source:<54.54}{inside:>9.2f}\n")
    write("\nstep_kinds:\n" + "".join(f"  {kind}: {f}\n" for kind, f in kinds.items()))
    write(f"\ntimed: {own['width']:.3f}, of {own['rows']} rows\n")
    write(f"\nmemory_foreign: {other['width']:.3f}\nmemory_kinds:\n")
    for kind, width in other["kinds"].items():
        write(f"  {kind}: {width:.3f}\n")
    write(f"{'memory of a source left out':<54}{'':6}{'without':>9}{'with':>10}\n")
    every = {"mean of sources": other["left_out_frac"], **other["sources"]}
    for name, (bare, wide) in every.items():
        write(f"{name:<54.54}{'':6}{bare:>9.2f}{wide:>10.2f}\n")


if __name__ == "__main__":
    main()
