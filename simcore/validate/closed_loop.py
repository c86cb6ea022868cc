"""Runs of ``simcore selftest`` in the validation report: predicted before, measured after."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simcore.base.errors import DataError
from simcore.base.units import PERCENT, format_seconds

TITLE = "Closed loop: networks trained on the machine that was calibrated"

_WORDS = """`simcore selftest --json` calibrates a machine by its own benchmarks, predicts a step of
four networks that calibration has not seen, on one process and on two (DDP over gloo), and then
trains them. ZeRO-1 and FSDP are run and not counted: they are PyTorch's, the predictions are
DeepSpeed's. It holds where the median error of the counted steps is at most 15 % and three quarters
of them lie inside their 80 % interval.
"""


def read_run(path: Path) -> dict[str, Any]:
    """What one ``simcore selftest --json`` printed. Raises DataError where it is something else."""
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
    error = f"{row['error_frac'] * PERCENT:+.0f} %"
    seconds = f"{format_seconds(row['predicted_s'])}, {format_seconds(row['measured_s'])}"
    return f"{seconds} ({error}{inside})"


def closed_loop(paths: Sequence[Path]) -> str:
    """All runs as one section in Markdown: a row a step, a column a run."""
    runs = [read_run(path) for path in paths]
    told = runs[0]["conditions"]
    lines = [_WORDS, "; ".join(f"{k} {v}" for k, v in told.items()) + ".\n"]
    heads = [f"{p.stem}: predicted, measured" for p in paths]
    lines.append("| network | ranks | " + " | ".join(heads) + " |")
    lines.append("|" + "---|" * (2 + len(runs)))
    for i, row in enumerate(runs[0]["rows"]):
        ranks = f"{row['ranks']} {row['kind']}" + ("" if row["counted"] else ", not counted")
        cells = [_cell(run["rows"][i]) for run in runs]
        lines.append(f"| {row['net']} | {ranks} | " + " | ".join(cells) + " |")
    summed = [
        f"{run['median_error_frac'] * PERCENT:.1f} %, {run['inside']} of {run['steps']} inside, "
        f"{'holds' if run['holds'] else 'does not hold'}"
        for run in runs
    ]
    lines.append("| median error | | " + " | ".join(summed) + " |")
    return "\n".join(lines) + "\n"
