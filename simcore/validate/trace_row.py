"""A step of a trace as a row of a table that ``calibrate --from`` and ``validate`` read."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simcore.base.errors import InvalidConfig
from simcore.validate.formats.project import OPTION_COLUMNS

_FIXED = ("id", "model", "gpus")
_MEASURED = ("step_time_s", "note")


def add_row(path: Path, found: Mapping[str, Any], model: str, words: Mapping[str, Any]) -> None:
    """Append the measured step of ``found`` to a table, which is begun where there is none.

    Raises InvalidConfig where the table has other columns or an option has none.
    """
    given = {k: v for k, v in words.items() if v is not None}
    without = [f"--{k.replace('_', '-')}" for k in given if k not in OPTION_COLUMNS]
    without = [w for w in without if w != "--calibration"]
    if without:
        raise InvalidConfig(
            [f"--row: a table of measured steps has no column for {', '.join(without)}"]
        )
    columns = [*_FIXED, *OPTION_COLUMNS, *_MEASURED]
    rows: list[list[str]] = []
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
        if rows and rows[0] != columns:
            raise InvalidConfig([f"--row: {path.name} has other columns than {', '.join(columns)}"])
    known = {row[0] for row in rows}
    name = Path(found["trace"]["files"][0]).name.partition(".")[0]
    chosen, n = name, 2
    while chosen in known:
        chosen, n = f"{name}-{n}", n + 1
    told = found["prediction"]
    cells = {
        "id": chosen, "model": model, "gpus": told["cluster"],
        **{k: str(v) for k, v in given.items() if k in OPTION_COLUMNS},
        "micro_batch": str(told["micro_batch"]), "grad_accum": str(told["grad_accum"]),
        "strategy": told["strategy"], "precision": told["precision"],
        "step_time_s": f"{found['step']['measured_s']:.6g}",
        "note": f"trace, {found['trace']['found_by']}",
    }  # fmt: skip
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not rows:
            writer.writerow(columns)
        writer.writerow([cells.get(c, "") for c in columns])
