"""Runs one job and returns everything that a user would see, as plain data."""

from __future__ import annotations

import csv
import hashlib
import math
import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from simcore import api
from simcore.base.errors import SimcoreError
from simcore.report.jsonout import finite, to_dict

Answer = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
#: Keys of a prediction's JSON that are left out: its version, and measurements.
_LEFT_OUT = ("schema_version", "measured")


def run(job: dict[str, Any]) -> Answer:
    """The answer to a job; if it is refused, the class and the first sentence of the error."""
    with TemporaryDirectory() as folder:
        try:
            answer = _KINDS[job["kind"]](job, Path(folder))
        except Exception as err:  # a crash is an answer too: it must not come or go unseen
            told = str(err) if isinstance(err, SimcoreError) else f"crash: {err}"
            sentence = re.split(r"; |\. |\n", told)[0]
            answer = {"error": type(err).__name__, "message": sentence}
        result: Answer = _without(finite(answer), folder)
    return result


def table_path(name: str) -> Path:
    """A table of the repository, or of the folder that ``$SIMCORE_TABLES`` names."""
    if name.startswith("validate/"):
        return ROOT / name
    return Path(os.environ.get("SIMCORE_TABLES", "")) / name


def _predict(job: dict[str, Any], folder: Path) -> Answer:
    model, words = _with_files(job, folder)
    said = api.predict(model, job["gpus"], **words)
    answer = {k: v for k, v in to_dict(said).items() if k not in _LEFT_OUT}
    answer["memory_bytes"]["shown"] = said.memory.shown_bytes
    return answer


def _with_files(job: dict[str, Any], folder: Path) -> tuple[str, dict[str, Any]]:
    """The model and the options of a job, after its files have been written to a folder."""
    for name, text in job.get("files", {}).items():
        (folder / name).write_text(text, encoding="utf-8")

    def path(value: Any) -> Any:
        return str(folder / value) if value in job.get("files", {}) else value

    return path(job["model"]), {k: path(v) for k, v in job["words"].items()}


def _without(value: Any, folder: str) -> Any:
    """The value with paths of temporary files replaced by the files' names."""
    if isinstance(value, str):
        return value.replace(folder + os.sep, "")
    if isinstance(value, dict):
        return {k: _without(v, folder) for k, v in value.items()}
    return [_without(v, folder) for v in value] if isinstance(value, list) else value


def _table(job: dict[str, Any], _: Path) -> Answer:
    """What ``simcore validate`` predicts of each row of a table, by row and quantity."""
    found = api.validate([table_path(job["file"])])
    rows = {
        f"{row['id']} {row['quantity']}": {k: row[k] for k in ("predicted", "low", "high")}
        for row in found["per_row"]
    }
    return {"rows": rows, "skipped": found["skipped"], "fits": found["fits"]}


def _sweep(job: dict[str, Any], folder: Path) -> Answer:
    """Figures of each column of a sweep's points (``_summed``), and what it reports as the best."""
    file = folder / "points.csv"
    told: Answer = api.sweep(job["model"], job["gpus"], output=file, **job["words"]).to_dict()
    with file.open(encoding="utf-8", newline="") as stream:
        points = list(csv.DictReader(stream))
    columns = {name: _summed([p[name] for p in points]) for name in points[0]} if points else {}
    del told["seconds"]
    return {"points": len(points), "columns": columns, **told}


def _summed(cells: list[str]) -> list[float] | str:
    """Sum and position-weighted sum of a column of numbers; a digest of a column of texts."""
    try:
        values = [float(c) for c in cells]
    except ValueError:
        return hashlib.sha256("\n".join(cells).encode()).hexdigest()[:16]
    return [math.fsum(values), math.fsum(v * i for i, v in enumerate(values, 1))]


def _plan(job: dict[str, Any], _: Path) -> Answer:
    answer: Answer = api.plan(job["model"], job["gpus"], **job["words"]).to_dict()
    return answer


_KINDS = {"predict": _predict, "table": _table, "sweep": _sweep, "plan": _plan}
