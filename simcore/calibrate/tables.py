"""Reads measured tables as columns, and names every bad field by file and line.

A table is a CSV file, gzipped or not. The caller chooses whether bad rows are skipped or refused.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.errors import DataError, refuse_bad
from simcore.base.untrusted import MOST_TABLE_BYTES, inflated, rows_of

T = TypeVar("T")
OnBad: TypeAlias = Literal["skip", "refuse"]


@dataclass
class Table:
    """The columns of one file.

    ``lines`` [rows] are the line numbers, ``good`` [rows] marks the valid rows; ``problems`` says
    what is wrong with the others, and with ``n_cut`` more that have not all their fields.
    """

    path: Path
    columns: dict[str, list[str]]
    lines: NDArray[np.intp]
    good: NDArray[np.bool_]
    problems: list[str] = field(default_factory=list)
    n_cut: int = 0

    def __len__(self) -> int:
        return len(self.lines)

    def text(self, name: str, default: str = "") -> list[str]:
        """The fields of a column; ``default`` in each row if the table has no such column."""
        fields = self.columns.get(name)
        return [default] * len(self) if fields is None else fields

    def bad(self, row: int | np.integer[Any], why: str) -> None:
        """Mark a row as bad, for the reason ``why``."""
        if self.good[row]:
            self.good[row] = False
            self.problems.append(f"{self.path.name}:{self.lines[row]}: {why}")

    def number(self, name: str, default: float | None = None, low: float = 0.0) -> Array:
        """A column as numbers [rows]; blank fields are ``default``, bad rows hold 1.

        A row is marked bad if its field is not a number, not finite or not above ``low``, or is
        blank without a default.
        """
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

    def read(self, items: Iterable[T], skipped: Counter[str], on_bad: OnBad) -> RowsRead[T]:
        """What the table's reader made of it.

        Raises DataError with the bad rows if ``on_bad`` is "refuse" and there are any.
        """
        if on_bad == "refuse":
            refuse_bad("measurements", self.problems, file=self.path)
        return RowsRead(
            tuple(items), len(self) + self.n_cut, skipped + Counter(self.problems),
            tuple(self.problems),
        )  # fmt: skip


@dataclass(frozen=True)
class RowsRead(Generic[T]):
    """What rows of one or more tables are, by their reader.

    ``n_rows``: their number; ``skipped`` counts those left out by reason; ``problems`` names those
    that are invalid.
    """

    items: tuple[T, ...] = ()
    n_rows: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    problems: tuple[str, ...] = ()

    def __add__(self, other: RowsRead[T]) -> RowsRead[T]:
        return RowsRead(
            self.items + other.items, self.n_rows + other.n_rows,
            self.skipped + other.skipped, self.problems + other.problems,
        )  # fmt: skip


def _number(text: str, blank: float = np.nan) -> float:
    try:
        return float(text) if text else blank
    except ValueError:
        return float("nan")


def open_text(path: Path) -> tuple[str, bool]:
    """(text of a CSV file, gzipped or not; whether its end is missing).

    Raises DataError if the file cannot be read.
    """
    try:
        raw, cut = inflated(path, MOST_TABLE_BYTES)
        return raw.decode("utf-8", errors="replace" if cut else "strict"), cut
    except UnicodeDecodeError as err:
        raise DataError(f"cannot be read: {err}", file=path) from None


def read_table(path: Path) -> Table:
    """The columns of one file; rows of the wrong length and a missing end are in ``problems``.

    Raises DataError if the file cannot be read.
    """
    text, cut = open_text(path)
    reader = csv.reader(io.StringIO(text))
    found = rows_of(reader, path)
    header: list[str] = next(found, [])
    rows: list[list[str]] = []
    lines: list[int] = []
    problems = []
    for row in found:
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
    good = np.ones(len(rows), bool)
    return Table(path, columns, np.array(lines, dtype=np.intp), good, problems, len(problems))


def mark_repeats(table: Table, key: Sequence[Sequence[object]], judged: Sequence[bool]) -> None:
    """Mark each row bad that repeats the shape of an earlier one.

    ``key``: the columns that identify a shape; ``judged`` [rows]: the rows to look at.
    """
    seen: dict[tuple[object, ...], int] = {}
    for row, one in enumerate(zip(*key, strict=True)):
        if not (judged[row] and table.good[row]):
            continue
        first = seen.setdefault(one, row)
        if first != row:
            table.bad(row, f"the same shape as line {table.lines[first]}")


def collection_of(source: str) -> str:
    """The key in ``assumed.SOURCES`` for a text of the source column."""
    name = source.split("/")[0].split()[0] if source.strip() else "unnamed"
    return {"AIC": "aic", "aiconfigurator": "aic"}.get(name, name.lower())
