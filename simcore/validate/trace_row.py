"""A step of a trace as a row of a table for ``calibrate --from`` and ``validate``."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simcore.base.errors import InvalidConfig
from simcore.base.untrusted import rows_of
from simcore.validate.formats.project import USUAL_COLUMNS, option_columns

_FIXED = ("id", "model", "gpus")
_MEASURED = ("step_time_s", "note")
#: Options that the prediction's cluster and batch already give, or that no run has.
_SETTLED = ("calibration", "global_batch", "nnodes", "nproc_per_node")
#: Values taken from the prediction that the step is compared with.
_PREDICTED = ("micro_batch", "grad_accum", "strategy", "precision")


def add_row(path: Path, found: Mapping[str, Any], model: str, words: Mapping[str, Any]) -> None:
    """Append the measured step of ``found`` to a table, which is created if it does not exist.

    Raises InvalidConfig where the table lacks a column, or an option has no column in any table.
    """
    given = {k: v for k, v in words.items() if v is not None and k not in _SETTLED}
    without = [f"--{k.replace('_', '-')}" for k in given if k not in option_columns()]
    if without:
        raise InvalidConfig(
            [f"--row: a table of measured steps has no column for {', '.join(without)}"]
        )
    more = [k for k in given if k not in USUAL_COLUMNS]
    rows: list[list[str]] = []
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(rows_of(csv.reader(file), path))
    columns = rows[0] if rows else [*_FIXED, *USUAL_COLUMNS, *more, *_MEASURED]
    needed = [*_FIXED, *_PREDICTED, *given, _MEASURED[0]]
    if lacking := [c for c in dict.fromkeys(needed) if c not in columns]:
        raise InvalidConfig([f"--row: {path.name} has no column {', '.join(lacking)}: add it"])
    at = columns.index("id")
    known = {row[at] for row in rows}
    name = Path(found["trace"]["files"][0]).name.partition(".")[0]
    chosen, n = name, 2
    while chosen in known:
        chosen, n = f"{name}-{n}", n + 1
    predicted = found["prediction"]
    cells = {
        "id": chosen, "model": model, "gpus": predicted["cluster"],
        **{k: _text(v) for k, v in given.items()},
        "micro_batch": str(predicted["micro_batch"]), "grad_accum": str(predicted["grad_accum"]),
        "strategy": predicted["strategy"], "precision": predicted["precision"],
        "step_time_s": f"{found['step']['measured_s']:.6g}",
        "note": f"trace, {found['trace']['found_by']}",
    }  # fmt: skip
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not rows:
            writer.writerow(columns)
        writer.writerow([cells.get(c, "") for c in columns])


def _text(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
