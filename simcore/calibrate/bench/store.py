"""Raw measurements on disk: one CSV file per table, with a row appended after each case.

The columns are those of the measured op tables, so that ``simcore validate ops`` reads them,
followed by columns that say how each figure was measured. A row is flushed to the disk before the
next case begins: an interruption loses at most the case that was running.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Final, Literal

from simcore.base.errors import DataError, InvalidConfig
from simcore.base.record import dataclass
from simcore.base.units import MICRO
from simcore.base.untrusted import rows_of
from simcore.calibrate.bench.case import Measured, text
from simcore.calibrate.bench.pulse import KINDS

BadRows = Literal["refuse", "skip"]

#: Kind of a pulse -> the column of the pulse that was taken beside a row.
PULSES: Final = {kind: f"{kind}_pulse_us" for kind in KINDS}
#: Columns of every table that say how a row was measured.
_HOW: Final = ("mode", "cache", "ranks_at_once", "sd_log", "calls", "disturbed_frac",
               *PULSES.values())  # fmt: skip
#: Table -> its columns; the first ones are those of the measured op tables.
TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "gemm": ("gpu", "dtype", "op", "m", "n", "k", "batch", "layout", "time_us", "timing",
             "power_w", "kernel", "source", *_HOW),
    "attention": ("gpu", "dtype", "batch", "heads", "kv_heads", "seq_q", "seq_kv", "head_dim",
                  "v_head_dim", "causal", "pass", "time_us", "timing", "kernel", "source", *_HOW),
    "memory_bound": ("gpu", "dtype", "op", "rows", "cols", "elements", "bytes", "time_us",
                     "timing", "source", *_HOW),
    "conv": ("gpu", "dtype", "batch", "cin", "cout", "kernel_size", "in_hw", "stride", "pad",
             "groups", "layout", "time_us", "pass", "timing", "source", *_HOW),
    "collectives": ("source", "gpu_type", "gpus", "nodes", "intra_link", "inter_link",
                    "collective", "algo", "size_bytes", "time_us", "busbw_GBps", "notes", *_HOW),
    "host": ("gpu", "op", "bytes", "count", "time_us", "value_bytes", "source", *_HOW),
    "steps": ("gpu", "net", "batch", "ranks", "strategy", "time_us", "source", *_HOW),
}  # fmt: skip
#: Columns that tables of earlier releases lack; there they count as blank.
_LATER: Final = {"conv": ("groups", "layout")}
_LATER_IN_ALL: Final = tuple(PULSES.values())
#: Columns that hold the result of a case or how it was measured; the others identify the case.
_RESULT: Final = frozenset(
    {"time_us", "timing", "power_w", "kernel", "source", "busbw_GBps", "notes", "value_bytes",
     *_HOW}
)  # fmt: skip
SOURCE: Final = "simcore calibrate"


@dataclass(frozen=True)
class RawRow:
    """One row read from a file: its cells, seconds, and ``where`` it is (file and line).

    ``slower``: kind of pulse -> how many times longer it took beside the row than in the middle of
    the calibration (``calibrate.machine.one_speed``).
    """

    table: str
    cells: Mapping[str, str]
    seconds: float
    sd_log: float
    where: str
    slower: Mapping[str, float] = field(default_factory=dict)

    def number(self, column: str) -> float:
        """The value of a cell as a number."""
        return float(self.cells[column])

    @property
    def pulse(self) -> dict[str, float]:
        """Seconds by kind of the pulse beside the row; empty where none was taken."""
        return {k: float(self.cells[c]) * MICRO for k, c in PULSES.items() if self.cells.get(c)}

    @property
    def key(self) -> tuple[str, ...]:
        """The key of the row's case, equal to its ``Case.key``."""
        named = (f"{k}={v}" for k, v in sorted(self.cells.items()) if k not in _RESULT and v != "")
        return (self.table, self.cells["mode"], self.cells["cache"], *named)


class Store:
    """A folder with the raw tables of one calibration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, table: str) -> Path:
        """The file of a table, which need not exist."""
        return self.folder / f"{table}.csv"

    def add(self, found: Measured, ranks: int) -> None:
        """Append one result; it is on the disk when this returns. ``ranks``: ranks of the run.

        Raises ValueError for a column that the table does not have.
        """
        case = found.case
        columns = TABLES[case.table]
        if unknown := set(case.columns) - set(columns):
            raise ValueError(f"table {case.table} has no column {sorted(unknown)}")
        state = "cold" if case.cold else "warm"
        cells: dict[str, str | int | float] = {
            **dict.fromkeys(columns, ""),
            **case.columns,
            **found.values,
            "time_us": f"{found.seconds / MICRO:.6g}",
            "source": SOURCE,
            "mode": case.mode,
            "cache": state,
            "ranks_at_once": 1 if case.mode == "alone" else ranks,
            "sd_log": f"{found.sd_log:.3g}",
            "calls": found.calls,
            "disturbed_frac": f"{found.disturbed_frac:.2g}",
        }
        if "timing" in columns:
            cells["timing"] = f"{state}_{found.how}"
        path = self.path(case.table)
        new = not path.exists()
        if not new:  # an earlier release may have begun it, with fewer columns
            with path.open(encoding="utf-8", newline="") as file:
                columns = tuple(next(csv.reader(file), columns))
        self.folder.mkdir(parents=True, exist_ok=True)
        line = io.StringIO()
        writer = csv.writer(line, lineterminator="\n")
        if new:
            writer.writerow(columns)
        writer.writerow([text(cells[c]) for c in columns])
        with path.open("a", encoding="utf-8") as file:
            file.write(line.getvalue())
            file.flush()
            os.fsync(file.fileno())

    def clear(self) -> None:
        """Delete the tables of an earlier run."""
        for table in TABLES:
            self.path(table).unlink(missing_ok=True)

    def rows(self, bad: BadRows = "refuse") -> tuple[list[RawRow], list[str]]:
        """The valid rows, and the problems of the others with file and line.

        Of several rows of one case the first counts. Raises InvalidConfig with all problems if
        ``bad`` is "refuse", and DataError if a file cannot be read.
        """
        valid: list[RawRow] = []
        problems: list[str] = []
        for table in TABLES:
            if self.path(table).exists():
                for row in self._read(table):
                    (problems if isinstance(row, str) else valid).append(row)  # type: ignore[arg-type]
        by_key: dict[tuple[str, ...], RawRow] = {}
        for row in valid:
            if row.key in by_key:
                problems.append(f"{row.where}: the same case as {by_key[row.key].where}")
            by_key.setdefault(row.key, row)
        if problems and bad == "refuse":
            raise InvalidConfig(problems)
        return list(by_key.values()), problems

    def _read(self, table: str) -> Iterator[RawRow | str]:
        path = self.path(table)
        try:
            content = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as err:
            raise DataError(f"cannot be read: {err}", file=path) from None
        reader = csv.DictReader(io.StringIO(content))
        later = (*_LATER.get(table, ()), *_LATER_IN_ALL)
        missing = {c for c in later if c not in (reader.fieldnames or ())}
        wanted = tuple(c for c in TABLES[table] if c not in missing)
        if tuple(reader.fieldnames or ()) != wanted:
            raise DataError(
                f"has other columns than a raw {table} table: measure again", file=path, line=1
            )
        blank = dict.fromkeys(missing, "")
        for cells in rows_of(reader, path):
            yield _checked(table, cells | blank, f"{path}:{reader.line_num}", content)


def _checked(table: str, cells: Mapping[str, str | None], where: str, content: str) -> RawRow | str:
    if None in cells or None in cells.values():
        return f"{where}: is cut short or has too many cells"
    plain = {k: v or "" for k, v in cells.items()}
    for column in ("time_us", "sd_log"):
        try:
            value = float(plain[column])
        except ValueError:
            return f"{where}: {column} {plain[column]!r} is not a number"
        if not math.isfinite(value) or value < 0 or (column == "time_us" and value == 0):
            return f"{where}: {column} {plain[column]!r} must be finite and above zero"
    if plain["mode"] not in ("alone", "together", "lockstep"):
        return f"{where}: mode {plain['mode']!r} is not one of alone, together, lockstep"
    if plain["source"] != SOURCE:
        return f"{where}: source {plain['source']!r}: columns are shifted, or not simcore's row"
    for column in set(_NUMBERS) & set(plain):
        if plain[column] and not _positive(plain[column]):
            return f"{where}: {column} {plain[column]!r} must be a number above zero"
    return RawRow(table, plain, float(plain["time_us"]) * MICRO, float(plain["sd_log"]), where)


_NUMBERS: Final = (
    "m", "n", "k", "batch", "heads", "seq_q", "seq_kv", "head_dim", "cin", "cout", "kernel_size",
    "in_hw", "stride", "groups", "elements", "bytes", "size_bytes", "gpus", "ranks", "count",
    "calls", *PULSES.values(),
)  # fmt: skip


def _positive(cell: str) -> bool:
    try:
        return 0 < float(cell) < math.inf
    except ValueError:
        return False
