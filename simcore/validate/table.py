"""Measured tables: a file read in the format that its columns tell."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from simcore.base.errors import DataError
from simcore.validate.case import Case, Skipped
from simcore.validate.formats import (
    Format,
    bert_mnist,
    ddp,
    latte,
    llm,
    llm_fits,
    opensora,
    project,
    published,
    resnet,
)


@dataclass(frozen=True, slots=True)
class Table:
    """A table as read: its cases and the rows that are none."""

    path: Path
    format: str
    cases: tuple[Case, ...]
    skipped: tuple[Skipped, ...]

    @property
    def n_rows(self) -> int:
        """All rows of the file."""
        return len(self.cases) + len(self.skipped)

    def changed(self, change: Callable[[Case], Case]) -> Table:
        """The table with every case changed."""
        return replace(self, cases=tuple(map(change, self.cases)))


def formats() -> tuple[Format, ...]:
    """Known formats, the most specific first."""
    modules = (ddp, llm, llm_fits, published, project, latte, bert_mnist, opensora, resnet)
    return tuple(m.FORMAT for m in modules)


def read_table(
    path: Path, fmt: Format | None = None, *, on_bad: Literal["refuse", "skip"] = "refuse"
) -> Table:
    """Read a measured table, in ``fmt`` if that is known already.

    Raises DataError with file and line for a file that is none, and for a row that cannot be (a
    NaN, a negative time, too few cells, an id that stands twice); ``skip``: such a row is
    skipped with its line and reason.
    """
    text = _text(path)
    lines = text.splitlines()
    first = next((i for i, x in enumerate(lines) if x.strip() and not x.startswith("#")), None)
    if first is None:
        raise DataError("holds no table", file=path)
    reader = csv.reader(io.StringIO("\n".join(lines[first:])))
    header = [name.strip() for name in next(reader)]
    if len(set(header)) != len(header):
        raise DataError("a column name stands twice in the heading", file=path, line=first + 1)
    if fmt is None:
        fmt = next((f for f in formats() if f.needs <= set(header)), None)
    if fmt is None:
        lack = {f: len(f.needs - set(header)) / len(f.needs) for f in formats()}
        nearest = min(lack, key=lambda f: (lack[f], f.name != "simcore"))
        missing = ", ".join(sorted(nearest.needs - set(header)))
        names = ", ".join(f.name for f in formats())
        raise DataError(
            f"its columns fit no known format ({names}); for {nearest.name}, the nearest, "
            f"{missing} {'is' if ',' not in missing else 'are'} missing from {', '.join(header)}",
            file=path, line=first + 1,
        )  # fmt: skip
    cases: list[Case] = []
    skipped: list[Skipped] = []
    seen: dict[str, int] = {}
    for values in reader:
        if not any(v.strip() for v in values):
            continue
        line = first + reader.line_num
        name = f"{path.stem}:{line}"
        try:
            if len(values) != len(header):
                raise ValueError(f"has {len(values)} cells, not {len(header)}")
            row = dict(zip(header, (v.strip() for v in values), strict=True))
            name = row.get("id") or name
            if name in seen:
                told, name = name, f"{name} (line {line})"
                raise ValueError(f"id {told!r} stands in line {seen[told]} already")
            seen[name] = line
            made = fmt.read(name, row)
        except ValueError as err:
            if on_bad == "refuse":
                raise DataError(str(err), file=path, line=line) from None
            made = Skipped(name, f"{path.name}:{line}: {err}")
        if isinstance(made, Case):
            cases.append(made if made.table else replace(made, table=path.stem))
        else:
            skipped.append(made)
    if not cases and not skipped:
        raise DataError("holds no rows", file=path)
    return Table(path, fmt.name, tuple(cases), tuple(skipped))


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
        if path.suffix == ".gz":
            import gzip  # tables that ship are plain text

            raw = gzip.decompress(raw)
        return raw.decode("utf-8")
    except OSError as err:
        reason = err.strerror or "not a gzip file"
        raise DataError(f"cannot be read: {reason}", file=path) from None
    except (UnicodeDecodeError, EOFError):
        raise DataError("is not text in UTF-8", file=path) from None
