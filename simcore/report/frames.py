"""Results as pandas DataFrames, with the unit in each column's name.

A row is one prediction, option, job, memory term, task or point, by the type of the result.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, Any

import numpy as np

from simcore.answer.result import Prediction
from simcore.answer.scaling import Scaling
from simcore.base.errors import UsageError
from simcore.memory.over_time import MemoryTimeline
from simcore.memory.result import MemoryResult
from simcore.planning.compare import Column, Comparison
from simcore.planning.fleet import Fleet
from simcore.planning.goodput import Goodput
from simcore.planning.output import Coded
from simcore.planning.planner import Option, Plan
from simcore.planning.sweep import SweepResult
from simcore.step.graph import Timeline

if TYPE_CHECKING:
    from pandas import DataFrame

Columns = dict[str, Any]


def frame(result: object) -> DataFrame:
    """``result`` as a DataFrame. Raises UsageError where pandas is not installed."""
    try:
        import pandas
    except ImportError:
        raise UsageError("to_pandas needs pandas: pip install '.[frames]'") from None
    columns = {
        # A text that a million rows share is stored once.
        name: pandas.Categorical.from_codes(v.codes, pandas.Index(v.words))
        if isinstance(v, Coded)
        else v
        for name, v in columns_of(result).items()
    }
    return pandas.DataFrame(columns, copy=False)


def of_records(records: list[dict[str, Any]]) -> DataFrame:
    """A row for each record, nested keys joined by dots. Raises UsageError without pandas."""
    try:
        import pandas
    except ImportError:
        raise UsageError("to_pandas needs pandas: pip install 'simcore[frames]'") from None
    return pandas.json_normalize(records)


@singledispatch
def columns_of(result: object) -> Columns:
    """The columns of a result, all of equal length, by name. Raises TypeError for other types."""
    raise TypeError(f"{type(result).__name__} is not a table")


def _row(p: Prediction) -> dict[str, Any]:
    """Every field of a prediction that is a single number or text, by column name."""
    m = p.memory
    return {
        "model": p.model,
        "cluster": p.cluster,
        "n_gpus": p.n_gpus,
        "n_nodes": p.n_nodes,
        "strategy": p.strategy,
        "layout": p.layout,
        "precision": p.precision,
        "optimizer": p.optimizer,
        "recompute": p.recompute,
        "offload": p.offload,
        "micro_batch": p.micro_batch,
        "grad_accum": p.grad_accum,
        "global_batch": p.global_batch,
        "fits": p.fits,
        "step_time_s": p.step_time_s.value,
        "step_time_low_s": p.step_time_s.low,
        "step_time_high_s": p.step_time_s.high,
        "samples_per_s": p.samples_per_s,
        "tokens_per_s": p.tokens_per_s,
        "speedup_vs_1gpu": p.speedup_vs_1gpu,
        "scaling_efficiency_frac": p.scaling_efficiency_frac,
        "mfu_frac": p.mfu_frac,
        **{f"{k}_s": v for k, v in p.time_s.items()},
        "memory_device_bytes": m.device_bytes,
        "memory_low_bytes": m.low_bytes,
        "memory_high_bytes": m.high_bytes,
        "memory_capacity_bytes": m.capacity_bytes,
        "memory_allocated_bytes": m.allocated_bytes,
        "memory_reserved_bytes": m.reserved_bytes,
        **{f"memory_{k}_bytes": v for k, v in m.terms.items()},
        "bound_by": p.bound_by,
        "run_time_s": p.run_time_s,
    }


def _table(rows: list[dict[str, Any]]) -> Columns:
    """Rows as columns; a value that a row lacks is 0 for seconds and bytes, otherwise None."""
    names = dict.fromkeys(k for row in rows for k in row)
    return {
        k: [row.get(k, 0.0 if k.endswith(("_s", "_bytes")) else None) for row in rows]
        for k in names
    }


@columns_of.register
def _prediction(p: Prediction) -> Columns:
    return _table([_row(p)])


@columns_of.register
def _comparison(c: Comparison) -> Columns:
    rows = [_column(column) for column in c.columns]
    all_none = dict.fromkeys(k for row in rows for k in row)
    return _table([row if x.prediction else {**all_none, **row}
                   for row, x in zip(rows, c.columns, strict=True)])  # fmt: skip


def _column(c: Column) -> dict[str, Any]:
    """One option of a comparison as a row; an option that cannot be predicted has no figures."""
    option = {"option": c.words, "reason": c.reason}
    if c.prediction is None:
        return {"cluster": c.cluster, "fits": False, **option}
    return {
        **_row(c.prediction), **option,
        "gpu_hours_per_million_samples": c.gpu_h_per_million,
        "usd_per_million_samples": c.usd_per_million,
        "kwh_per_million_samples": c.kwh_per_million,
    }  # fmt: skip


@columns_of.register
def _plan(p: Plan) -> Columns:
    """The listed options of a plan, best first, then the other options of its Pareto front."""
    best = {_key(o) for o in p.best}
    front = {_key(o) for o in p.front}
    options = [*p.best, *(o for o in p.front if _key(o) not in best)]
    return _table([
        {**_option(o), "listed": _key(o) in best, "on_front": _key(o) in front} for o in options
    ])  # fmt: skip


def _key(o: Option) -> tuple[object, ...]:
    return o.form, o.cluster, o.micro_batch, o.grad_accum


def _option(o: Option) -> dict[str, Any]:
    row = o.to_dict()
    step = row.pop("step_time_s")
    return {
        **row, "step_time_s": step["value"], "step_time_low_s": step["low"],
        "step_time_high_s": step["high"],
    }  # fmt: skip


@columns_of.register
def _fleet(f: Fleet) -> Columns:
    return _table([
        {"job": d.job.name, "n_gpus": d.job.gpus, "priority": d.job.priority,
         "submit_s": d.job.submit_s, "start_s": d.start_s, "end_s": d.end_s, "wait_s": d.wait_s,
         "preempted": d.preempted}
        for d in f.done
    ])  # fmt: skip


@columns_of.register
def _goodput(g: Goodput) -> Columns:
    return _table([{k: v for k, v in g.to_dict().items() if k != "sources"}])


@columns_of.register
def _memory(m: MemoryResult) -> Columns:
    return {
        "term": list(m.terms),
        "memory_bytes": list(m.terms.values()),
        "share_frac": [v / m.device_bytes for v in m.terms.values()],
    }


@columns_of.register
def _over_step(t: MemoryTimeline) -> Columns:
    phase = np.full(len(t.allocated), "", dtype=object)
    for first, name in t.phases:
        phase[first:] = name
    return {
        "event": np.arange(len(t.allocated)),
        "phase": phase,
        **{f"{k}_bytes": v for k, v in t.terms.items()},
        "allocated_bytes": t.allocated,
        "reserved_bytes": t.reserved,
    }


@columns_of.register
def _timeline(t: Timeline) -> Columns:
    start, finish = t.start_s[:, 0], t.finish_s[:, 0]
    return {
        "task": [task.name for task in t.graph.tasks],
        "stream": [task.stream for task in t.graph.tasks],
        "term": [task.term for task in t.graph.tasks],
        "start_s": start,
        "finish_s": finish,
        "duration_s": finish - start,
    }


@columns_of.register
def _sweep(s: SweepResult) -> Columns:
    columns = s.coded_columns()
    return {**columns, "on_front": s.on_front(columns)}


@columns_of.register
def _scaling(s: Scaling) -> Columns:
    measured = {m.n_gpus: m for m in s.measured}
    columns: Columns = {
        "cluster": [p.cluster for p in s.points],
        "n_gpus": [p.n_gpus for p in s.points],
        "fits": [p.fits for p in s.points],
    }
    for what, stem, unit in (
        ("samples_per_s", "samples", "_per_s"),
        ("speedup", "speedup", ""),
        ("efficiency_frac", "efficiency", "_frac"),
    ):
        for end, name in (("value", stem), ("low", f"{stem}_low"), ("high", f"{stem}_high")):
            columns[name + unit] = [getattr(getattr(p, what), end) for p in s.points]
    columns["measured_samples_per_s"] = [
        measured[p.n_gpus].samples_per_s if p.n_gpus in measured else None for p in s.points
    ]
    return columns
