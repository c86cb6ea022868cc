"""Results as pandas DataFrames: one row a thing, the unit in each column's name."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, Any

import numpy as np

from simcore.base.errors import UsageError
from simcore.engine.memory_timeline import MemoryTimeline
from simcore.engine.result import Comparison, MemoryResult, Prediction
from simcore.engine.scaling import Scaling
from simcore.engine.sweep import Sweep
from simcore.engine.timeline import Timeline

if TYPE_CHECKING:
    from pandas import DataFrame

Columns = dict[str, Any]


def frame(result: object) -> DataFrame:
    """``result`` as a DataFrame. Raises UsageError where pandas is not installed."""
    try:
        import pandas
    except ImportError:
        raise UsageError("to_pandas needs pandas: pip install 'simcore[frames]'") from None
    made: DataFrame = pandas.DataFrame(columns_of(result))
    return made


@singledispatch
def columns_of(result: object) -> Columns:
    """Columns of equal length by name."""
    raise TypeError(f"{type(result).__name__} is not a table")


def _row(p: Prediction) -> dict[str, Any]:
    """Everything of a prediction that is one figure or one word."""
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
    """Rows as columns; what a row does not have is 0 for seconds and bytes, else None."""
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
    return _table([_row(p) for p in c.predictions])


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
def _sweep(s: Sweep) -> Columns:
    return {
        "cluster": [s.clusters[i] for i in s.cluster],
        "n_gpus": s.n_gpus,
        "strategy": [s.strategies[i] for i in s.strategy],
        "micro_batch": s.micro_batch.astype(int),
        "step_time_s": s.step_time_s,
        "samples_per_s": s.samples_per_s,
        "memory_bytes": s.memory_bytes,
        "fits": s.fits,
        "on_front": s.front,
    }


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
