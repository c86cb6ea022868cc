"""Runs of ``simcore selftest`` in the validation report: predicted first, then measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simcore.base.errors import DataError
from simcore.base.units import PERCENT, format_seconds
from simcore.validate.markdown import markdown_table

TITLE = "Closed loop: networks trained on the machine that was calibrated"

_WORDS = """\
`simcore selftest --json` calibrates a machine by its own benchmarks, predicts a step of four
networks that calibration has not seen, on one process and on two (DDP over gloo), and then trains
them. ZeRO-1 and FSDP are run and not counted: they are PyTorch's, the predictions are DeepSpeed's.
It holds where the median error of the counted steps is at most 8 % and seven of eight lie inside
their 80 % interval (runs up to 2026-11-23: 15 %, six). Runs are listed whether they hold or not. Up
to the seventh run, how much ranks slow each other was not fitted: the fit was refused wherever half
of the calls had been interrupted, which is true of nearly all ranks that fill a machine. Since then
the fit includes the time that other processes took.
"""


def read_run(path: Path) -> dict[str, Any]:
    """The output of one ``simcore selftest --json``. Raises DataError for another file."""
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
    return f"{row['error_frac'] * PERCENT:+.0f} %{inside}"


def closed_loop(paths: Sequence[Path]) -> str:
    """All runs as one section in Markdown: a table of runs, and one with a row a step."""
    runs = [read_run(path) for path in paths]
    kept = []
    for path, run in zip(paths, runs, strict=True):
        conditions = run["conditions"]
        kept.append([
            path.stem,
            f"{conditions.get('processor', '-')}, {conditions.get('clock', '-')}",
            str(conditions.get("torch", "-")),
            f"{run['median_error_frac'] * PERCENT:.1f} %",
            f"{run['inside']} of {run['steps']}",
            "holds" if run["holds"] else "does not hold",
            "; ".join(run.get("calibration_notes", ())) or "-",
        ])  # fmt: skip
    steps = []
    for i, row in enumerate(runs[0]["rows"]):
        ranks = f"{row['ranks']} {row['kind']}" + ("" if row["counted"] else ", not counted")
        last = _times(runs[-1]["rows"][i])
        steps.append([row["net"], ranks, last, *(_cell(run["rows"][i]) for run in runs)])
    head = ["run", "processor", "torch", "median error", "inside", "holds", "notes"]
    of_steps = ["network", "ranks", "last run", *(p.stem for p in paths)]
    return (
        f"{_WORDS}\n{markdown_table(head, kept)}\nErrors of the predicted step, by run:\n\n"
        f"{markdown_table(of_steps, steps)}"
    )


def _times(row: dict[str, Any]) -> str:
    """The predicted time with its interval, then the measured one."""
    if "measured_s" not in row:
        return "-"
    predicted, low, high, measured = (
        format_seconds(row[f"{k}_s"]) for k in ("predicted", "low", "high", "measured")
    )
    return f"{predicted} ({low} to {high}), measured {measured}"
