"""Sections of the validation report beside its tables: facts without a source, selftests run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from simcore.base.errors import DataError
from simcore.base.units import PERCENT, format_seconds
from simcore.strategy.programs import PROGRAMS, StatedFact


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


INFERRED_TITLE = "Facts of programs without a source"
_INFERRED_HEAD = """\
These facts of `programs_db/` are inferred and still to be verified: the program's own
code was not at hand, or does not state them. Some were inferred from rows of the tables
above, so the errors of these rows look better than they should.
"""


def inferred_facts() -> Iterator[StatedFact]:
    """The facts that records of programs mark ``origin: inferred, to verify``, by program."""
    for record in PROGRAMS.all():
        yield from (StatedFact(record.name, fact) for fact in record.facts if fact.get("origin"))
        for name, release in record.releases.items():
            of = f"{record.name}@{name}"
            yield from (StatedFact(of, fact) for fact in release.facts if fact.get("origin"))


def inferred() -> str:
    """A table of these facts as Markdown: program, fact, what it is inferred from."""
    rows = []
    for fact in inferred_facts():
        values = ", ".join(
            f"{subject}.{key} = {_shown(value)}" if key else f"no {subject}"
            for subject, key, value in fact.values()
        )
        rows.append([fact.of, values, " ".join(str(fact.fact.get("note", "-")).split())])
    return f"{_INFERRED_HEAD}\n{markdown_table(['program', 'fact', 'inferred from'], rows)}"


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_shown(v)}" for k, v in value.items())
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


LOOP_TITLE = "Closed loop: networks trained on the machine that was calibrated"

_LOOP_HEAD = """\
`simcore selftest --json` calibrates a machine by its own benchmarks, predicts a step of four
networks that calibration has not seen, on one process and on two (DDP over gloo), and then trains
them. ZeRO-1 and FSDP are run and not counted: they are PyTorch's, the predictions are DeepSpeed's.
It holds where the median error of the counted steps is at most 8 % and seven of eight lie inside
their 80 % interval (runs up to 2026-11-23: 15 %, six). Runs are listed whether they hold or not. Up
to the seventh run, how much ranks slow each other was not fitted: the fit was refused wherever half
of the calls had been interrupted, which is true of nearly all ranks that fill a machine. Since then
the fit includes the time that other processes took. From the 23rd run on errors are those of times
stated at the speed that the device had in the calibration, by pulses taken beside both; in brackets
the median error of the times as measured.
"""


def read_run(path: Path) -> dict[str, Any]:
    """The output of one ``simcore selftest --json``. Raises DataError for another file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        raise DataError(f"is no run of simcore selftest: {err}", file=path) from None
    if not isinstance(found, dict) or not {"rows", "holds", "conditions"} <= found.keys():
        raise DataError("is no run of simcore selftest: it has no rows", file=path)
    return found


def _cell(row: dict[str, Any]) -> str:
    if "measured_s" not in row:
        return str(row.get("note", "-"))
    inside = "" if row["inside"] else ", outside"
    return f"{row['error_frac'] * PERCENT:+.0f} %{inside}"


def _medians(run: dict[str, Any]) -> str:
    """The median error and, where times were stated at another speed, that as measured."""
    measured = run.get("median_measured_error_frac")
    told = "" if measured is None else f" ({measured * PERCENT:.1f} %)"
    return f"{run['median_error_frac'] * PERCENT:.1f} %{told}"


def closed_loop(paths: Sequence[Path]) -> str:
    """All runs as one section in Markdown: a table of runs, and one with a row a step."""
    runs = [read_run(path) for path in paths]
    kept = []
    for path, run in zip(paths, runs, strict=True):
        conditions = run["conditions"]
        kept.append([
            path.stem,
            f"{conditions.get('processor', '-')}, {conditions.get('clock', '-')}",
            str(conditions.get("torch", "-")),
            _medians(run),
            f"{run['inside']} of {run['steps']}",
            "holds" if run["holds"] else "does not hold",
            "; ".join(run.get("calibration_notes", ())) or "-",
        ])  # fmt: skip
    steps = []
    for i, row in enumerate(runs[0]["rows"]):
        ranks = f"{row['ranks']} {row['kind']}" + ("" if row["counted"] else ", not counted")
        last = _times(runs[-1]["rows"][i])
        steps.append([row["net"], ranks, last, *(_cell(run["rows"][i]) for run in runs)])
    head = ["run", "processor", "torch", "median error", "inside", "holds", "notes"]
    of_steps = ["network", "ranks", "last run", *(p.stem for p in paths)]
    return (
        f"{_LOOP_HEAD}\n{markdown_table(head, kept)}\nErrors of the predicted step, by run:\n\n"
        f"{markdown_table(of_steps, steps)}"
    )


def _times(row: dict[str, Any]) -> str:
    """The predicted time with its interval, then the measured one."""
    if "measured_s" not in row:
        return "-"
    predicted, low, high, measured = (
        format_seconds(row[f"{k}_s"]) for k in ("predicted", "low", "high", "measured")
    )
    return f"{predicted} ({low} to {high}), measured {measured}"
