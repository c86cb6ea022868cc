"""Compares the figures of measured tables with recorded ones: ``python -m validate.drift``.

    --all            also every table whole (a minute or two), not only samples (seconds)
    --record         write what differs into validate/figures.csv
    --reason TEXT    why figures moved; --record needs it unless all that differs is new
    --jobs N         number of processes that share the rows of large tables (default: one per
                     processor)

A figure is the mean error of one quantity over one group of rows, with the share of rows inside
the interval. It may move by its tolerance, either way; beyond, or with another number of rows, it
stops until it is recorded with a reason. A figure within its tolerance keeps its record, so that
small moves add up. Tables of ``$SIMCORE_TABLES`` that are not there are named and not compared.
Exit code 0: every figure is as recorded; 1: at least one is not; 2: the arguments are invalid.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from simcore.base.atomic import write_text
from simcore.base.units import PERCENT
from simcore.validate import unnamed as known
from simcore.validate.case import Case
from simcore.validate.judge import Verdict, judge
from simcore.validate.metrics import QUANTITIES, Score
from simcore.validate.processes import default_jobs
from simcore.validate.table import read_table

_HERE = Path(__file__).parent
FIGURES = _HERE / "figures.csv"
_COLUMNS = (
    "table", "group", "quantity", "n", "error_percent", "inside_percent", "recorded", "before",
    "reason",
)  # fmt: skip
#: Points by which a mean error may move: over at least this many rows, and over fewer.
_MANY_ROWS, _MANY_POINTS, _FEW_POINTS = 100, 0.3, 1.0
#: Points by which the share inside may move, or one row where that is more.
_INSIDE_POINTS = 2.0
#: Groups of fewer rows have no figure of their own; they count in the whole table's.
_LEAST_ROWS = 10
_WHOLE = "all rows"


@dataclass(frozen=True)
class Figure:
    """Mean error over ``n`` rows and share inside the interval; nothing inside for shares of fits.

    ``recorded``: day of the record; ``before``: the figure that it replaced, and why.
    """

    n: int
    error_percent: float
    inside_percent: float | None
    recorded: str = ""
    before: str = ""
    reason: str = ""

    def __str__(self) -> str:
        inside = "" if self.inside_percent is None else f", {self.inside_percent:.1f} % inside"
        return f"{self.error_percent:.2f} % of {self.n:,}{inside}"

    def near(self, record: Figure) -> bool:
        """Whether this figure is the recorded one within the tolerance."""
        points = _MANY_POINTS if self.n >= _MANY_ROWS else _FEW_POINTS
        inside = max(_INSIDE_POINTS, 1.01 * PERCENT / self.n)
        moved_inside = (self.inside_percent or 0.0) - (record.inside_percent or 0.0)
        return (
            self.n == record.n
            and round(abs(self.error_percent - record.error_percent), 2) <= points
            and round(abs(moved_inside), 2) <= inside
        )


#: Table, group of rows and quantity.
Key = tuple[str, str, str]
Figures = Mapping[Key, Figure]


@dataclass(frozen=True)
class Measured:
    """A table to compare: a file of this folder or of ``$SIMCORE_TABLES``, grouped ``by`` columns.

    ``one_in``: the sample takes one row in this many, by a hash of their ids (0: none).
    ``change``: turns a row's case into the job that is predicted.
    """

    file: str
    by: tuple[str, ...] = ()
    one_in: int = 1
    change: Callable[[Case], Case] | None = None

    @property
    def name(self) -> str:
        """The table's name among the figures."""
        change = f", {self.change.__name__.replace('_', ' ')}" if self.change else ""
        return self.file + change

    @property
    def path(self) -> Path:
        """The file, which may not exist."""
        own = _HERE / self.file
        return own if own.exists() else Path(os.environ.get("SIMCORE_TABLES", "")) / self.file


TABLES = (
    Measured("steps/llm.csv", ("arch", "source"), one_in=8),
    Measured("steps/llm.csv", ("arch",), one_in=0, change=known.by_program),
    Measured("steps/llm.csv", ("arch",), one_in=0, change=known.unnamed),
    Measured("steps/llm_fits_or_not.csv", one_in=20),
    Measured("steps/ddp.csv", ("family",), one_in=30),
    Measured("steps/mlperf_v6.csv", ("arch",)),
    Measured("steps/bridge_hybrid.csv"),
    Measured("steps/tpu.csv"),
    Measured("steps/megatron_memory.csv"),
    Measured("held_out/published.csv", one_in=3),
    Measured("cards/h200-2026-11-27/steps.csv", ("bound",), one_in=2),
    *(Measured(f"tables/{path.name}") for path in sorted((_HERE / "tables").glob("*.csv"))),
)


def figures_of(table: Measured, one_in: int, jobs: int = 1) -> dict[Key, Figure]:
    """The figures of one row in so many of a table."""
    read, name = read_table(table.path), table.name
    if table.change:
        read = read.changed(table.change)
    if one_in > 1:
        name += f", 1 row in {one_in}"
        cases = (c for c in read.cases if zlib.crc32(c.id.encode()) % one_in == 0)
        read = replace(read, cases=tuple(cases), skipped=())
    verdict = judge([read], jobs=jobs)
    return {(name, group, what): f for group, what, f in _groups(verdict, table.by)}


def _groups(verdict: Verdict, by: Sequence[str]) -> Iterator[tuple[str, str, Figure]]:
    for quantity in QUANTITIES:
        if (score := verdict.score(quantity)).n:
            yield _WHOLE, quantity, _figure(score)
    fits = verdict.fits()
    for what, n, found in (
        ("ran, said not to fit", fits["ran"], fits["fits_recall_frac"]),
        ("out of memory, said to fit", fits["out_of_memory"], fits["out_of_memory_found_frac"]),
    ):
        if n and found is not None:
            yield _WHOLE, what, Figure(int(n), round(PERCENT * (1.0 - found), 2), None)
    for column in by:
        for value, scores in verdict.groups(column).items():
            for quantity in QUANTITIES:
                if scores[quantity].n >= _LEAST_ROWS:
                    yield f"{column} {value}", quantity, _figure(scores[quantity])


def _figure(score: Score) -> Figure:
    assert score.mape_frac is not None and score.coverage80_frac is not None
    error, inside = (round(PERCENT * x, 2) for x in (score.mape_frac, score.coverage80_frac))
    return Figure(score.n, error, inside)


def read_figures(path: Path) -> Figures:
    """The recorded figures of a file; none where there is no file."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as stream:
        return {
            (r["table"], r["group"], r["quantity"]): Figure(
                int(r["n"]), float(r["error_percent"]),
                float(r["inside_percent"]) if r["inside_percent"] else None,
                r["recorded"], r["before"], r["reason"],
            )
            for r in csv.DictReader(stream)
        }  # fmt: skip


def write_figures(path: Path, figures: Figures) -> None:
    """Write figures as a table with one line for each, in the order of their names."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for key, f in sorted(figures.items()):
        inside = "" if f.inside_percent is None else f.inside_percent
        writer.writerow([*key, f.n, f.error_percent, inside, f.recorded, f.before, f.reason])
    write_text(path, stream.getvalue())


def differences(found: Figures, recorded: Figures) -> dict[Key, str]:
    """For each figure that is not as recorded, how; of the tables that were looked at."""
    tables = {table for table, _, _ in found}
    said = {}
    for key in sorted({*found, *(k for k in recorded if k[0] in tables)}):
        now, was = found.get(key), recorded.get(key)
        if now is None:
            said[key] = f"MISSING, recorded as {was}"
        elif was is None:
            said[key] = f"NEW {now}"
        elif not now.near(was):
            word = "WORSE" if now.error_percent > was.error_percent else "MOVED"
            said[key] = f"{word} {now}; recorded {was}"
    return said


def updated(found: Figures, recorded: Figures, reason: str) -> Figures:
    """The record with what differs replaced; the rest of it stays as it was recorded."""
    out, day = dict(recorded), datetime.now(UTC).date().isoformat()
    for key in differences(found, recorded):
        if key in found:
            before = str(recorded[key]) if key in recorded else ""
            out[key] = replace(
                found[key], recorded=day, before=before, reason=reason if before else ""
            )
        else:
            del out[key]
    return out


def _drift(found: Figures, recorded: Figures) -> str:
    """The whole table's mean errors in a line, each with its drift in points."""
    parts = []
    for key, now in found.items():
        if key[1] == _WHOLE:
            was = recorded.get(key)
            drift = f" ({now.error_percent - was.error_percent:+.2f})" if was else ""
            parts.append(f"{key[2].replace('_', ' ')} {now.error_percent:.2f} %{drift}")
    return f"{next(iter(found))[0]}: {', '.join(parts)}"


def _compared(recorded: Figures, *, whole: bool, jobs: int) -> dict[Key, Figure]:
    """Present figures of samples, with ``whole`` of whole tables too; prints a line for each."""
    found: dict[Key, Figure] = {}
    for table in TABLES:
        for one_in in sorted({table.one_in, 1} if whole else {table.one_in}, reverse=True):
            if not one_in:
                continue
            if not table.path.exists():
                sys.stdout.write(f"{table.name}: not compared, SIMCORE_TABLES has no such file\n")
                break
            if own := figures_of(table, one_in, jobs):
                sys.stdout.write(_drift(own, recorded) + "\n")
                sys.stdout.flush()
            found |= own
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--reason", default="")
    parser.add_argument("--jobs", type=int, default=default_jobs())
    options = parser.parse_args(arguments)
    if options.reason and not options.record:
        parser.error("--reason goes with --record")
    say, recorded = sys.stdout.write, read_figures(FIGURES)
    found = _compared(recorded, whole=options.all, jobs=options.jobs)
    differing = differences(found, recorded)
    for (name, group, quantity), how in differing.items():
        say(f"{how}: {name}, {group}, {quantity.replace('_', ' ')}\n")
    if options.record:
        if not options.reason and any(key in recorded for key in differing):
            say("not recorded: say with --reason why these figures moved\n")
            return 1
        write_figures(FIGURES, updated(found, recorded, options.reason))
        say(f"{len(differing)} of {len(found)} figures recorded\n")
        return 0
    say(f"{len(found) - len(differing)} of {len(found)} figures are as recorded\n")
    if differing:
        say("If it is meant: python -m validate.drift --all --record --reason 'why they moved'\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
