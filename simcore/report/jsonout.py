"""Predictions, explanations and scaling curves as JSON: SI units named in the keys, no NaN."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from simcore.answer.result import SCHEMA_VERSION, Explanation, Prediction, WhatIf
from simcore.base.figures import Interval
from simcore.base.names import printable

if TYPE_CHECKING:
    from simcore.answer.scaling import Scaling


def finite(value: Any) -> Any:
    """``value`` with None in place of NaN and infinities, which JSON does not have, and with
    escapes in place of characters that are obeyed, not shown.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(str(k)): finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return value


def to_dict(p: Prediction) -> dict[str, Any]:
    """A prediction as plain data that conforms to ``docs/prediction.schema.json``."""
    m, t = p.memory, p.step_time_s
    low, high = m.shown_interval_bytes
    return finite(
        {
            "schema_version": SCHEMA_VERSION,
            "fits": p.fits,
            "inputs": {
                "model": p.model,
                "model_full_name": p.model_full_name,
                "n_params": p.n_params,
                "n_frozen_params": p.n_frozen_params,
                "cluster": p.cluster,
                "n_gpus": p.n_gpus,
                "n_nodes": p.n_nodes,
                "strategy": p.strategy,
                "shard_ranks": p.shard_ranks,
                "precision": p.precision,
                "optimizer": p.optimizer,
                "recompute": p.recompute,
                "offload": p.offload,
                "layout": p.layout,
                "data_ranks": p.data_ranks,
                "micro_batch": p.micro_batch,
                "grad_accum": p.grad_accum,
                "global_batch": p.global_batch,
                "sample_unit": p.sample_unit,
                "tokens_per_sample": p.tokens_per_sample,
            },
            "options": dict(p.options),
            "defaults": p.defaults,
            "step_time_s": {"value": t.value, "low": t.low, "high": t.high, "origin": t.origin},
            "samples_per_s": p.samples_per_s,
            "tokens_per_s": p.tokens_per_s,
            "iter_per_s": p.iter_per_s,
            "speedup_vs_1gpu": p.speedup_vs_1gpu,
            "single_gpu": p.single_gpu,
            "scaling_efficiency_frac": p.scaling_efficiency_frac,
            "mfu_frac": p.mfu_frac,
            "time_s": p.time_s,
            "memory_bytes": {
                "allocated": m.allocated_bytes,
                "reserved": m.segments_bytes,
                "device": m.shown_bytes,
                "needed": m.least_bytes,
                "capacity": m.capacity_bytes,
                "low": low,
                "high": high,
                "host": m.host_bytes,
                "host_lack": m.host_lack_bytes,
                "host_capacity": m.host_capacity_bytes,
                "nvme": m.nvme_bytes,
                "moment": m.moment,
                "terms": m.shown_terms,
            },
            "margin_frac": m.margin_frac,
            "fixes": p.fixes,
            "instead": p.instead,
            "why_none": p.why_none,
            "bound_by": p.bound_by,
            "what_if": _gains(p.what_if),
            "rank_classes": [
                {
                    "gpu": c.gpu,
                    "n_gpus": c.n_gpus,
                    "micro_batch": c.micro_batch,
                    "compute_s": c.compute_s,
                }
                for c in p.rank_classes
            ],
            "uneven": _gains(p.uneven),
            "faster": [
                {
                    "change": f.change,
                    "samples_per_s": f.samples_per_s,
                    "gain_frac": f.gain_frac,
                }
                for f in p.faster
            ],
            "stages": [
                {
                    "first": s.first,
                    "count": s.count,
                    "layers": s.layers,
                    "micro_step_s": s.micro_step_s,
                    "memory_bytes": s.memory_bytes,
                }
                for s in p.stages
            ],
            "uneven_split_gain_frac": p.uneven_split_gain_frac,
            "run_steps": p.run_steps,
            "run_time_s": p.run_time_s,
            "run": None if p.run is None else asdict(p.run),
            "cost": None if p.cost is None else asdict(p.cost),
            "measured": [
                {
                    "source": r.source,
                    "quantity": r.quantity,
                    "measured": r.measured,
                    "predicted": r.predicted,
                    "error_frac": r.error_frac if r.measured else None,
                    "note": r.note,
                }
                for r in p.measured
            ],
            "warnings": p.warnings,
            "assumptions": p.assumptions,
        }
    )


def _gains(what_ifs: Iterable[WhatIf]) -> list[dict[str, Any]]:
    return [
        {"resource": w.resource, "step_time_s": w.step_time_s, "gain_frac": w.gain_frac}
        for w in what_ifs
    ]


def explanation_to_dict(e: Explanation) -> dict[str, Any]:
    """An explanation as plain data."""
    return {
        "term": e.term,
        "value": e.value,
        "formula": e.formula,
        "inputs": dict(e.inputs),
        "source": e.source,
    }


def scaling_to_dict(s: Scaling) -> dict[str, Any]:
    """A scaling curve as plain data; every interval as value, low and high."""

    def span(i: Interval) -> dict[str, float]:
        return {"value": i.value, "low": i.low, "high": i.high}

    return finite(
        {
            "schema_version": SCHEMA_VERSION,
            "model": s.model,
            "gpu": s.gpu,
            "strategy": s.strategy,
            "micro_batch": s.micro_batch,
            "points": [
                {
                    "cluster": p.cluster,
                    "n_gpus": p.n_gpus,
                    "fits": p.fits,
                    "samples_per_s": span(p.samples_per_s),
                    "speedup": span(p.speedup),
                    "efficiency_frac": span(p.efficiency_frac),
                }
                for p in s.points
            ],
            "measured": [asdict(m) for m in s.measured],
        }
    )


def dumps(data: Any) -> str:
    """Indented JSON that every parser accepts. Raises ValueError on NaN or infinity."""
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
