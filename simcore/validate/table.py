"""Measured tables, each read in the format that its columns imply; their rows as commands."""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from simcore.base.errors import DataError, InvalidConfig
from simcore.base.lookup import once_a_question
from simcore.base.names import between, decoded
from simcore.base.record import dataclass
from simcore.base.untrusted import bounded_bytes, rows_of
from simcore.strategy.options import command_words, word_meant
from simcore.validate.case import Case, Skipped
from simcore.validate.formats import (
    Format,
    Row,
    project,
    published,
    typed,
)
from simcore.validate.processes import in_order
from simcore.workload.settings import CodeRefused, name_in_file

#: Most rows of a table: each is a prediction of some milliseconds.
MOST_ROWS = 20_000


@dataclass(frozen=True)
class Table:
    """A table as read: its cases, and the rows that could not be used."""

    path: Path
    format: str
    cases: tuple[Case, ...]
    skipped: tuple[Skipped, ...]

    @property
    def n_rows(self) -> int:
        """Number of rows in the file."""
        return len(self.cases) + len(self.skipped)

    def changed(self, change: Callable[[Case], Case]) -> Table:
        """The table with ``change`` applied to every case."""
        return replace(self, cases=tuple(map(change, self.cases)))


def formats() -> tuple[Format, ...]:
    """Known formats, the most specific first."""
    from simcore.validate.formats.described import described_formats  # few commands read a table

    return (*described_formats(), typed.FORMAT, published.FORMAT, project.FORMAT)


def read_table(
    path: Path,
    fmt: Format | None = None,
    *,
    on_bad: Literal["refuse", "skip"] = "refuse",
    allow_code: bool = False,
    only: Mapping[str, str] = MappingProxyType({}),
    jobs: int = 1,
) -> Table:
    """Read a measured table, in format ``fmt`` if that is known.

    ``only``: columns and values of the rows that the user selects (``--only``); such rows have
    ``selected`` as a fact, so that a format need not skip them for their quality. ``jobs``:
    processes among which the rows of a large table are divided.

    Raises DataError with file and line for a file that is not a table, and for an invalid row (a
    NaN, a negative time, too few cells, a repeated id); with ``on_bad`` skip such a row is skipped
    with its line and reason. A row whose model is Python code is always skipped, unless
    ``allow_code`` permits to run the code that the table names.
    """
    text = _text(path)
    lines = text.splitlines()
    first = next((i for i, x in enumerate(lines) if x.strip() and not x.startswith("#")), None)
    if first is None:
        raise DataError("holds no table", file=path)
    reader = csv.reader(io.StringIO("\n".join(lines[first:])), delimiter=between(lines[first]))
    rows = rows_of(reader, path)
    header = [name.strip() for name in next(rows)]
    if fmt is None and (fmt := _format_of(header)) in (None, project.FORMAT):
        header = [_plain(name) for name in header]
        fmt = _format_of(header)
    if fmt is None:
        raise DataError(_no_format(header), file=path, line=first + 1)
    if len(set(header)) != len(header):
        raise DataError("a column name occurs twice in the heading", file=path, line=first + 1)
    found: list[_Cells] = []
    seen: dict[str, int] = {}
    for values in rows:
        if len(seen) > MOST_ROWS:
            raise DataError(f"has more than {MOST_ROWS:,} rows: give a part of it", file=path)
        if not any(v.strip() for v in values):
            continue
        line = first + reader.line_num
        name = f"{path.stem}:{line}"
        row, problem = dict(zip(header, (v.strip() for v in values), strict=False)), ""
        if len(values) != len(header):
            problem = f"has {len(values)} cells, not {len(header)}"
        elif (name := row.get("id") or name) in seen:
            problem = f"id {name!r} is in line {seen[name]} already"
            name = f"{name} (line {line})"
        seen.setdefault(name, line)
        if only and all(row.get(column) == value for column, value in only.items()):
            row.setdefault("selected", "yes")
        found.append(_Cells(name, line, row, problem))
    read = partial(_read, path, fmt.name, allow_code)
    cases: list[Case] = []
    skipped: list[Skipped] = []
    for at, made in zip(found, in_order(read, found, jobs), strict=True):
        if isinstance(made, str):
            if on_bad == "refuse":
                raise DataError(made, file=path, line=at.line)
            made = Skipped(at.name, f"{path.name}:{at.line}: {made}")
        if isinstance(made, Case):
            cases.append(made if made.table else replace(made, table=path.stem))
        else:
            skipped.append(made)
    if not cases and not skipped:
        raise DataError("holds no rows", file=path)
    return Table(path, fmt.name, tuple(cases), tuple(skipped))


class _Cells(NamedTuple):
    """A row of a table: its name, line and cells; ``problem``: why it cannot be read, if so."""

    name: str
    line: int
    row: Row
    problem: str


def _read(path: Path, of_format: str, allow_code: bool, at: _Cells) -> Case | Skipped | str:
    """A row as a case, why it is skipped, or what is wrong with it."""
    if at.problem:
        return at.problem
    fmt, row, where = _format_named(of_format), at.row, f"{path.name}:{at.line}"
    try:
        if fmt is project.FORMAT:  # other formats look their models up in their own lists
            row = {**row, "model": name_in_file(row["model"], where, allow_code=allow_code)}
        made = fmt.read(at.name, row)
        if fmt is typed.FORMAT and isinstance(made, Case):
            made = typed.located(made, path, where, allow_code=allow_code)
    except CodeRefused as err:
        return Skipped(at.name, str(err))
    except DataError as err:  # other tables than those of a broken corpus can be read
        return Skipped(at.name, f"the rules of its source cannot be read: {err}")
    except ValueError as err:
        return str(err)
    return made


@once_a_question
def _format_named(name: str) -> Format:
    return next(fmt for fmt in formats() if fmt.name == name)


def _format_of(header: Sequence[str]) -> Format | None:
    return next((f for f in formats() if f.needs and f.needs <= set(header)), None)


def _plain(name: str) -> str:
    """A heading as the name of a known column, such as ``step_time_s`` for ``Step Time (s)``."""
    words = name.lower().replace("/", " per ")
    called = re.sub(r"[^a-z0-9]+", "_", words).strip("_")
    return name if project.ignored_columns((called,)) else called


def _no_format(header: Sequence[str]) -> str:
    """What columns are missing: of the project's own format, unless another nearly matches."""
    found = set(header)
    nearest = min(
        filter(lambda f: f.needs, formats()),
        key=lambda f: (len(f.needs - found), f is not project.FORMAT),
    )
    missing = sorted(nearest.needs - found)
    if nearest is not project.FORMAT and len(missing) == 1 < len(nearest.needs) - 1:
        return f"as a table of {nearest.name} it lacks the column {missing[0]}"
    missing = sorted(project.FORMAT.needs - found)
    names = [
        f"{column} (is that {meant}?)" if (meant := _meant(column, header)) else column
        for column in missing
    ]
    return (
        f"a table of runs needs columns model and gpus: {' and '.join(names)} "
        f"{'is' if len(missing) == 1 else 'are'} missing from {', '.join(header)} "
        "(docs/calibrate.md)"
    )


def _meant(column: str, header: Sequence[str]) -> str:
    """Columns that other programs use for this one; "" where there is none."""
    others = (called for called in header if word_meant(called, "", (column,)) == column)
    return " and ".join(others)


def _text(path: Path) -> str:
    try:
        return decoded(bounded_bytes(path))
    except UnicodeDecodeError:
        raise DataError("is not text in UTF-8", file=path) from None


def rows_with(table: Table, values: Mapping[str, str]) -> Table:
    """The table with only the rows whose columns have these values.

    Raises InvalidConfig for a column or a value that the table does not have.
    """
    cases = table.cases
    for column, value in values.items():
        known = sorted({c.columns[column] for c in cases if column in c.columns})
        if not known:
            columns = ", ".join(sorted({k for c in table.cases for k in c.columns}))
            raise InvalidConfig(
                [f"{table.path.name} has no column {column!r} (columns: {columns})"]
            )
        if value not in known:
            near = get_close_matches(value, known, 1, 0.5)
            meant = f": did you mean {near[0]!r}?" if near else f" (there are: {', '.join(known)})"
            raise InvalidConfig([f"no row of {table.path.name} has {column} {value!r}{meant}"])
        cases = tuple(c for c in cases if c.columns.get(column) == value)
    return replace(table, cases=cases, skipped=())


#: Options of a job that have no place in a command.
_NOT_TYPED = ("profile",)


@dataclass(frozen=True)
class Command:
    """A row as a ``simcore predict`` command, or the reason why it has none.

    ``words``: the arguments after ``simcore``; empty where there is a ``reason``.
    """

    id: str
    words: tuple[str, ...]
    reason: str = ""

    @property
    def line(self) -> str:
        """A line for a shell that ends with the row's id; a comment where there is no command."""
        if self.reason:
            return f"# {self.id}: {self.reason}"
        return f"simcore {shlex.join(self.words)}  # {self.id}"


def commands_of(tables: Iterable[Table]) -> tuple[Command, ...]:
    """The command of every row, or the reason why it has none, table by table."""
    return tuple(
        one
        for table in tables
        for one in (
            *map(_command, table.cases),
            *(Command(s.id, (), s.reason) for s in table.skipped),
        )
    )


def _command(case: Case) -> Command:
    typed = {k: v for k, v in case.options.items() if k not in _NOT_TYPED}
    words = command_words({"model": case.model, "gpus": case.gpus, **typed})
    return Command(case.id, ("predict", *words))
