"""simcore's own format: a row is one run, and columns are named like options of the command line.

Columns: ``model``, ``gpus`` and any other option of a job (``strategy.options``) that is no file;
``id``; ``train_samples`` and ``eval_samples`` of a whole run; the measurements ``step_time_s`` (or
a rate of ``RATES``), ``run_time_s``, ``peak_memory_gb``, ``speedup`` and ``memory_<term>_gib``;
``reference`` (the id of the row that a speed-up is relative to), ``flag`` and ``note``.
"""

from __future__ import annotations

from collections.abc import Iterable

from simcore.answer.request import make_request
from simcore.base.errors import SimcoreError, nearest
from simcore.base.units import GIB, GIGA
from simcore.strategy.options import OPTIONS, File, Made, Options, Texts, word_meant
from simcore.validate.case import Case, Skipped
from simcore.validate.formats import Format, Row, number, option_value, present

#: Options that a table usually has columns for.
USUAL_COLUMNS = ("strategy", "precision", "recompute", "optimizer", "offload", "network", "node",
                 "micro_batch", "grad_accum", "seq_len")  # fmt: skip
#: Other columns that are neither options nor measurements.
_OTHERS = ("id", "model", "gpus", "table", "train_samples", "eval_samples", "work_known",
           "reference", "flag", "note")  # fmt: skip
#: Rates that a table may have instead of a step time, of all GPUs together or per GPU.
RATES = ("samples_per_s", "tokens_per_s", "samples_per_s_per_gpu", "tokens_per_s_per_gpu")
_MEASURED = ("step_time_s", "run_time_s", *RATES, "speedup", "peak_memory_gb")


def option_columns() -> tuple[str, ...]:
    """Options that may be columns."""
    return tuple(
        name for name, option in OPTIONS.options().items()
        if not isinstance(option.kind, File | Made | Texts)
    )  # fmt: skip


def ignored_columns(columns: Iterable[str]) -> tuple[str, ...]:
    """Those of a table's columns that this format does not read."""
    read = {*option_columns(), *_OTHERS, *_MEASURED}
    return tuple(c for c in columns if c not in read and not c.startswith("memory_"))


def _column_meant(column: str) -> str:
    """The column that was probably meant: another program's name for it, or a similar name."""
    options = option_columns()
    near = nearest(column, [*options, *_OTHERS, *_MEASURED], 1)
    return word_meant(column, "", options) or next(iter(near), "")


def ignored_text(columns: Iterable[str]) -> str:
    """A message with the columns that are not read, and what each may mean; empty if all are."""
    texts = [
        f"{column} (did you mean {meant}?)" if (meant := _column_meant(column)) else column
        for column in ignored_columns(columns)
    ]
    return f"columns that nothing reads: {', '.join(texts)}" if texts else ""


#: Beyond these no unit explains a figure: of times in seconds or ns, rates, bytes, tokens.
_LEAST, _MOST = 1e-12, 1e18


def _positive(row: Row, column: str) -> float | None:
    value = number(row, column)
    if value == 0.0:
        raise ValueError(f"{column}: {row[column]!r} must be above 0")
    if value is not None and not _LEAST <= value <= _MOST:
        raise ValueError(f"{column}: {row[column]!r} is no measurement of a training step")
    return value


def _step_s(row: Row, options: Options) -> float | None:
    """Seconds per step from a measured rate and the job's samples per step; None without a rate."""
    rates = {column: rate for column in RATES if (rate := _positive(row, column)) is not None}
    if not rates:
        return None
    try:
        request = make_request(row["model"], row["gpus"], **options)
    except SimcoreError:
        return None  # the same error is reported when the row is predicted
    column, rate = next(iter(rates.items()))
    if column.endswith("_per_gpu"):
        rate *= request.cluster.n_gpus
    amount: float = request.micro_batch * request.grad_accum * request.data_ranks
    if column.startswith("tokens"):
        amount *= request.workload.tokens_per_sample
    if not amount:
        raise ValueError(f"{column}: {row['model']} has no tokens: write samples_per_s")
    return amount / rate


def _read(name: str, row: Row) -> Case | Skipped:
    if not row["model"]:
        return Skipped(name, "no model")
    options: Options = {k: option_value(k, row[k]) for k in option_columns() if row.get(k)}
    memory = number(row, "peak_memory_gb")
    run_s = _positive(row, "run_time_s")
    measured = present(
        step_time_s=_positive(row, "step_time_s") or (None if run_s else _step_s(row, options)),
        run_time_s=run_s,
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
    )


FORMAT = Format("simcore", frozenset({"model", "gpus"}), _read)
