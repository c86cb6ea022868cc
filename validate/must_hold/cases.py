"""Clauses about jobs that people described in public: whether they run, and their memory and time.

``validate/corpora/cases`` has the jobs, each as commands that a user can type, and what their
sources report: ``cases.yaml`` those that the project was given, ``launch_lines.yaml`` those that
programs' own documentation starts, ``second_round.yaml`` those of other programs and models,
``fresh_lines.yaml`` launch lines of which nothing had been seen, ``blind_lines.yaml`` more of
them, in programs that nothing here had been read from, and ``issue_lines.yaml`` those that people
asked about in issues.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from simcore.base.database import read_yaml
from simcore.base.errors import DataError, SimcoreError
from simcore.base.units import GIGA, parse_quantity
from simcore.strategy.dialects import read_launch
from simcore.validate.case import Case
from simcore.validate.formats import typed
from simcore.validate.formats.row_rules import corpora_folder
from simcore.validate.judge import Judged, judge
from simcore.validate.metrics import Scored
from simcore.validate.table import Table
from validate.must_hold.card import holds_80
from validate.must_hold.clause import Clause, Found, percent
from validate.must_hold.tables import Tables

#: Names of measured memory in the file of cases, and what each is in ``Case.measured``.
_PEAKS = {
    "allocated": "peak_allocated_bytes",
    "reserved": "peak_reserved_bytes",
    "device": "peak_shown_bytes",
}
_KEYS = {"command", "runs", "step", *_PEAKS}
#: The files, by what clauses call their cases: of how many cases how many are to be right.
_LEAST_RIGHT = {
    "cases": (18, 20),
    "launch lines": (29, 32),
    "second round": (17, 19),
    "fresh lines": (10, 11),
    "blind lines": (6, 6),
    "issue lines": (15, 17),
}


@dataclass(frozen=True)
class PublicCase:
    """A job that its author described: its ``runs``, and the ``files`` that their commands name."""

    name: str
    source: str
    runs: tuple[Case, ...]
    files: Mapping[str, str]
    note: str = ""


@dataclass(frozen=True)
class Outcome:
    """A case as predicted. A run that the command line refuses has its reason in ``refused``."""

    case: PublicCase
    judged: tuple[Judged, ...]
    refused: tuple[tuple[str, str], ...]

    @property
    def right(self) -> bool:
        """Whether each run is said to fit if it ran, and not to fit if it was out of memory.

        A job that ran and is said to be tight counts as right.
        """
        return not self.refused and all(
            j.memory.fits or j.memory.tight if j.case.measured["ran"]
            else not j.memory.fits
            for j in self.judged
        )  # fmt: skip


def cases_file(called: str = "cases") -> Path:
    """A file of cases of the project, by what clauses call it: ``second round``."""
    return corpora_folder() / "cases" / f"{called.replace(' ', '_')}.yaml"


def read_cases(path: Path) -> tuple[PublicCase, ...]:
    """The cases of a file. Raises DataError for a key or command that is not understood."""
    return tuple(_public(entry, path) for entry in read_yaml(path)["cases"])


def _public(entry: Mapping[str, Any], path: Path) -> PublicCase:
    if unknown := sorted({*entry} - {"name", "source", "runs", "files", "note"}):
        raise DataError(f"{entry.get('name')}: no case has {', '.join(unknown)}", file=path)
    runs = tuple(
        _run(f"{entry['name']}, run {n}", run, path) for n, run in enumerate(entry["runs"], 1)
    )
    return PublicCase(
        entry["name"], entry["source"], runs, entry.get("files") or {}, entry.get("note", "")
    )


def _run(name: str, run: Mapping[str, Any], path: Path) -> Case:
    if unknown := sorted({*run} - _KEYS):
        raise DataError(f"{name}: no run has {', '.join(unknown)}", file=path)
    try:
        case = typed.FORMAT.read(name, {"simcore_arguments": run["command"], "step_ms": ""})
    except ValueError as err:
        raise DataError(f"{name}: {err}", file=path) from None
    assert isinstance(case, Case)
    measured = {"ran": float(run["runs"])}
    if "step" in run:
        measured["step_time_s"] = parse_quantity(run["step"], "seconds")
    measured |= {_PEAKS[k]: parse_quantity(run[k], "bytes") for k in _PEAKS if k in run}
    return replace(case, table="cases", measured=measured)


@contextmanager
def beside(files: Mapping[str, str]) -> Iterator[None]:
    """A folder with these files as the current one."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def _with_model(run: Case) -> Case:
    """A run with the model that its launch line names, where its command names none."""
    if run.model:
        return run
    with suppress(SimcoreError):  # a line that cannot be read: the prediction says so
        return replace(run, model=read_launch(str(run.options["launch"])).model)
    return run


def outcome_of(case: PublicCase) -> Outcome:
    """A case with the predictions of its runs."""
    with beside(case.files):
        runs = tuple(map(_with_model, case.runs))
        verdict = judge([Table(cases_file(), "commands", runs, ())])
    return Outcome(case, verdict.judged, verdict.skipped)


@lru_cache(maxsize=len(_LEAST_RIGHT))
def outcomes(called: str) -> tuple[Outcome, ...]:
    """Every case of a file of the project, predicted."""
    return tuple(outcome_of(case) for case in read_cases(cases_file(called)))


def _figure(scored: Scored) -> str:
    memory = scored.quantity == "peak_memory"
    unit, scale = ("GB", GIGA) if memory else ("s", 1.0)
    values = [v / scale for v in (scored.predicted, scored.low, scored.high, scored.measured)]
    one, low, high, told = (f"{v:.3g}" for v in values)
    inside = "" if scored.low <= scored.measured <= scored.high else ", outside"
    return f"{scored.counts or 'step'} {one} {unit} ({low} to {high}), reported {told}{inside}"


def lines_of(outcome: Outcome) -> list[str]:
    """Lines that say a case's verdict, and each figure with its interval beside the report."""
    lines = [f"{'right' if outcome.right else 'WRONG':6}{outcome.case.name}"]
    for j in outcome.judged:
        memory = j.memory
        said = "runs" if memory.fits else "is tight" if memory.tight else "does not fit"
        told = "ran" if j.case.measured["ran"] else "out of memory"
        needs = f"needs {memory.least_bytes / GIGA:.1f} of {memory.capacity_bytes / GIGA:.1f} GB"
        lines.append(f"      {said} ({needs}), {told}; " + "; ".join(map(_figure, j.scored)))
    lines += [f"      {name}: {why}" for name, why in outcome.refused]
    return lines


def _verdicts(called: str) -> Clause:
    least, of = _LEAST_RIGHT[called]

    def compute(_t: Tables) -> Found:
        found = outcomes(called)
        right = sum(o.right for o in found)
        text = "\n".join([f"{right} of {len(found)}", *(x for o in found for x in lines_of(o))])
        return Found(right >= least, text, right)

    return Clause(f"{called}: right verdicts", f"at least {least} of {of}", "29", compute)


def _scored(called: str, quantity: str) -> Sequence[Scored]:
    return [
        s for o in outcomes(called) for j in o.judged for s in j.scored if s.quantity == quantity
    ]


def _inside(called: str, quantity: str) -> Clause:
    def compute(_t: Tables) -> Found:
        scored = _scored(called, quantity)
        inside = [s.low <= s.measured <= s.high for s in scored]
        if not inside:
            return Found(True, "none stated", 0)
        share = sum(inside) / len(inside)
        return Found(holds_80(sum(inside), len(inside)), f"{percent(share)} ({len(inside)})", share)

    what = {"peak_memory": "memory", "step_time": "steps"}[quantity]
    return Clause(f"{called}: {what} inside 80 %", "as 80 %", "29", compute)


CLAUSES = tuple(
    clause
    for called in _LEAST_RIGHT
    for clause in (_verdicts(called), _inside(called, "peak_memory"), _inside(called, "step_time"))
)
