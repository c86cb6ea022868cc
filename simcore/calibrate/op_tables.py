"""Measured op tables as columns, with every bad field named by file and line.

A table is a CSV, gzipped or not. Bad rows are skipped or refused, as the caller chooses.
"""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.errors import DataError
from simcore.calibrate.curve_fits import Array

OnBad: TypeAlias = Literal["skip", "refuse"]
#: Bad rows that a refusal spells out.
SHOWN = 10


@dataclass
class Table:
    """Columns of one file. ``good`` masks rows; ``problems`` says what is wrong with the others."""

    path: Path
    columns: dict[str, list[str]]
    lines: NDArray[np.intp]
    good: NDArray[np.bool_]
    problems: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.lines)

    def text(self, name: str, default: str = "") -> list[str]:
        """A column's fields, stripped; ``default`` where the table has no such column."""
        found = self.columns.get(name)
        return [default] * len(self) if found is None else found

    def bad(self, row: int | np.integer[Any], why: str) -> None:
        """Take a row out and say why."""
        if self.good[row]:
            self.good[row] = False
            self.problems.append(f"{self.path.name}:{self.lines[row]}: {why}")

    def number(self, name: str, default: float | None = None, low: float = 0.0) -> Array:
        """A column as numbers; a field that is none, not finite or not above ``low`` is bad."""
        fields = self.text(name)
        try:
            values = np.array(fields, dtype=float)
        except ValueError:
            values = np.array([_number(f) for f in fields])
            for row in np.flatnonzero(np.isnan(values) & self.good):
                text = fields[row]
                if not text and default is not None:
                    values[row] = default
                elif not text:
                    self.bad(row, f"{name} is blank")
                elif _number(text, blank=1.0) != _number(text, blank=1.0) and text.lower() != "nan":
                    self.bad(row, f"{name}: {text!r} is not a number")
        for row in np.flatnonzero(~(np.isfinite(values) & (values > low)) & self.good):
            self.bad(row, f"{name}: {fields[row]!r} must be finite and above {low:g}")
        values[~self.good] = 1.0
        return values

    def settle(self, on_bad: OnBad) -> None:
        """Raises DataError naming the bad rows, where they are to be refused."""
        if on_bad == "refuse" and self.problems:
            more = len(self.problems) - SHOWN
            tail = f"; and {more} more" if more > 0 else ""
            raise DataError(f"bad measurements: {'; '.join(self.problems[:SHOWN])}{tail}",
                            file=self.path)  # fmt: skip


def _number(text: str, blank: float = np.nan) -> float:
    try:
        return float(text) if text else blank
    except ValueError:
        return float("nan")


def open_text(path: Path) -> tuple[str, bool]:
    """The text of a CSV, gzipped or not, and whether its end is missing. Raises DataError."""
    try:
        raw = path.read_bytes()
    except OSError as err:
        raise DataError(f"cannot be read: {err.strerror}", file=path) from None
    cut = False
    try:
        if path.suffix == ".gz":
            inflate = zlib.decompressobj(wbits=31)
            raw = inflate.decompress(raw)
            cut = not inflate.eof
        return raw.decode("utf-8", errors="replace" if cut else "strict"), cut
    except (zlib.error, UnicodeDecodeError) as err:
        raise DataError(f"cannot be read: {err}", file=path) from None


def read_table(path: Path) -> Table:
    """Columns of one file; rows of the wrong length and a missing end are among its problems."""
    text, cut = open_text(path)
    reader = csv.reader(io.StringIO(text))
    header = next(reader, [])
    rows: list[list[str]] = []
    lines: list[int] = []
    problems = []
    for row in reader:
        if not row:
            continue
        if len(row) != len(header):
            problems.append(
                f"{path.name}:{reader.line_num}: has {len(row)} of {len(header)} fields"
            )
            continue
        rows.append(row)
        lines.append(reader.line_num)
    if cut:
        problems.append(f"{path.name}:{reader.line_num}: the file ends early")
    columns = {
        name.strip(): [f.strip() for f in fields]
        for name, fields in zip(header, zip(*rows, strict=True) if rows else [()] * len(header),
                                strict=True)
    }  # fmt: skip
    return Table(path, columns, np.array(lines, dtype=np.intp), np.ones(len(rows), bool), problems)


def mark_repeats(table: Table, key: Sequence[Sequence[object]], judged: Sequence[bool]) -> None:
    """A shape listed twice: the later row is bad. ``key``: columns that tell rows apart."""
    seen: dict[tuple[object, ...], int] = {}
    for row, one in enumerate(zip(*key, strict=True)):
        if not (judged[row] and table.good[row]):
            continue
        first = seen.setdefault(one, row)
        if first != row:
            table.bad(row, f"the same shape as line {table.lines[first]}")


def collection_of(source: str) -> str:
    """The table's source column to a key of SOURCES."""
    name = source.split("/")[0].split()[0] if source.strip() else "unnamed"
    return {"AIC": "aic", "aiconfigurator": "aic"}.get(name, name.lower())
