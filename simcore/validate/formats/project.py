"""simcore's own format: a row is one run, columns are the command line's words.

id, model, gpus, and any of strategy, micro_batch, grad_accum, precision, recompute, optimizer,
offload, network, node, seq_len; train_samples and eval_samples of a whole run;
measured step_time_s, run_time_s, samples_per_s, peak_memory_gb, speedup and
memory_<term>_gib; reference (id), flag, note.
"""

from __future__ import annotations

from collections.abc import Iterable

from simcore.base.units import GIB, GIGA
from simcore.engine.options import Options
from simcore.validate.case import Case, Skipped
from simcore.validate.formats import Format, Row, number, present

_WORDS = ("strategy", "precision", "recompute", "optimizer", "offload", "network", "node")
_COUNTS = ("micro_batch", "grad_accum", "seq_len")
#: Columns that are options of a run.
OPTION_COLUMNS = (*_WORDS, *_COUNTS)


#: Columns that are read besides those of measurements.
_OTHERS = ("id", "model", "gpus", "table", "train_samples", "eval_samples", "work_known",
           "reference", "flag", "note")  # fmt: skip
_MEASURED = ("step_time_s", "run_time_s", "samples_per_s", "speedup", "peak_memory_gb")


def ignored_columns(columns: Iterable[str]) -> tuple[str, ...]:
    """Columns of a table in this format that nothing reads."""
    read = {*_WORDS, *_COUNTS, *_OTHERS, *_MEASURED}
    return tuple(c for c in columns if c not in read and not c.startswith("memory_"))


def _positive(row: Row, column: str) -> float | None:
    value = number(row, column)
    if value == 0.0:
        raise ValueError(f"{column}: {row[column]!r} must be above 0")
    return value


def _read(name: str, row: Row) -> Case | Skipped:
    if not row["model"]:
        return Skipped(name, "no model")
    options: Options = {}
    for key in _WORDS:
        if row.get(key):
            options[key] = row[key]  # type: ignore[literal-required]
    for key in _COUNTS:
        value = number(row, key, at_least=1)
        if value is not None:
            options[key] = int(value)  # type: ignore[literal-required]
    memory = number(row, "peak_memory_gb")
    measured = present(
        step_time_s=_positive(row, "step_time_s"),
        run_time_s=_positive(row, "run_time_s"),
        samples_per_s=number(row, "samples_per_s"),
        speedup=number(row, "speedup"),
        peak_memory_bytes=memory * GIGA if memory is not None else None,
    )
    for column in row:
        if column.startswith("memory_") and column.endswith("_gib"):
            value = number(row, column)
            if value is not None:
                measured[column.removesuffix("_gib") + "_bytes"] = value * GIB
    return Case(
        id=name,
        table=row.get("table", ""),
        model=row["model"],
        gpus=row["gpus"],
        options=options,
        measured=measured,
        columns=row,
        train_samples=number(row, "train_samples"),
        eval_samples=number(row, "eval_samples") or 0.0,
        work_known=row.get("work_known", "") != "no",
        reference=row.get("reference") or None,
        flag=row.get("flag", ""),
        notes=row.get("note", ""),
    )


FORMAT = Format("simcore", frozenset({"id", "model", "gpus"}), _read)
