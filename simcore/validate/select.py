"""Selection of rows of a measured table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches

from simcore.base.errors import InvalidConfig
from simcore.validate.table import Table


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
