"""The op models held against measured op tables: errors by GPU and op.

simcore validate ops FILE…
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.errors import SimcoreError
from simcore.hardware.profile import Profile, load_profile
from simcore.hardware.spec import GPUS, GpuSpec
from simcore.physics.roofline import kernel_time_s, tile_fill
from simcore.validate.op_rows import OpRow, read_op_rows

Array = NDArray[np.float64]


@dataclass(frozen=True)
class OpErrors:
    """Predicted over measured minus one for rows of one GPU, op and dtype; arrays [rows]."""

    gpu: str
    op: str
    dtype: str
    kind: str
    large: NDArray[np.bool_]
    error_frac: Array


def predict_op_s(rows: Sequence[OpRow], gpu: GpuSpec, profile: Profile) -> Array:
    """Seconds of rows of one GPU, kind, peak and timing."""
    first = rows[0]

    def column(get: Callable[[OpRow], float]) -> Array:
        return np.array([get(r) for r in rows])

    eager = profile.eager_floor_s(gpu).value
    start = eager if first.eager else profile.kernel_start_s(gpu).value
    bandwidth = gpu.memory_bw.value
    eff_memory = profile.memory_efficiency(first.kind, gpu).value
    n_bytes = column(lambda r: r.n_bytes)
    if not first.flop:
        return start + n_bytes / (eff_memory * bandwidth)
    peak = gpu.peak(first.peak)
    if peak is None:
        raise KeyError(f"{gpu.name} has no {first.peak} peak")
    fill = tile_fill(
        column(lambda r: r.m),
        column(lambda r: r.n),
        column(lambda r: r.k),
        column(lambda r: r.groups),
        gpu.sm_count.value if gpu.sm_count else 1.0,
    )
    efficiency = profile.compute_efficiency(
        first.kind, first.peak, gpu, sustained=first.sustained
    ).value
    return kernel_time_s(
        column(lambda r: r.flop), n_bytes, peak, bandwidth, efficiency, eff_memory, fill, start
    )


def judge_ops(paths: Sequence[Path], profile: Profile | None = None) -> dict[str, object]:
    """The contract of ``simcore validate ops --json``.

    ``groups`` by gpu, op and dtype and ``kinds`` by kind hold ``n``, ``mape_frac``,
    ``median_bias_frac`` and ``p90_abs_frac``, and under ``large`` the same over large shapes.
    """
    profile = profile or load_profile()
    skipped: Counter[str] = Counter()
    batches: dict[tuple[object, ...], list[OpRow]] = {}
    n_rows = 0
    for path in paths:
        for row in read_op_rows(path):
            n_rows += 1
            if isinstance(row, str):
                skipped[row] += 1
                continue
            key = (
                row.gpu,
                row.op,
                row.dtype,
                row.kind,
                row.peak,
                row.eager,
                row.sustained,
                row.flop > 0,
            )
            batches.setdefault(key, []).append(row)
    parts: list[OpErrors] = []
    for rows in batches.values():
        first = rows[0]
        try:
            predicted = predict_op_s(rows, GPUS[first.gpu], profile)
        except (SimcoreError, KeyError) as err:
            skipped[str(err.args[0]) if err.args else str(err)] += len(rows)
            continue
        measured = np.array([r.measured_s for r in rows])
        large = np.array([r.large for r in rows])
        parts.append(
            OpErrors(first.gpu, first.op, first.dtype, first.kind, large, predicted / measured - 1)
        )
    return {
        "rows": n_rows,
        "simulated": sum(len(p.error_frac) for p in parts),
        "skipped": dict(skipped),
        "groups": _by(parts, "gpu", "op", "dtype"),
        "kinds": _by(parts, "kind"),
    }


def _by(parts: Sequence[OpErrors], *keys: str) -> dict[str, dict[str, object]]:
    found: dict[tuple[str, ...], list[OpErrors]] = {}
    for part in parts:
        found.setdefault(tuple(getattr(part, k) for k in keys), []).append(part)
    return {
        " ".join(values): {**dict(zip(keys, values, strict=True)), **_scores(mine)}
        for values, mine in sorted(found.items())
    }


def _scores(parts: Sequence[OpErrors]) -> dict[str, object]:
    errors = np.concatenate([p.error_frac for p in parts])
    large = np.concatenate([p.large for p in parts])
    return {**_score(errors), "large": _score(errors[large])}


def _score(errors: Array) -> dict[str, float | int | None]:
    if not len(errors):
        return {"n": 0, "mape_frac": None, "median_bias_frac": None, "p90_abs_frac": None}
    size = np.abs(errors)
    return {
        "n": len(errors),
        "mape_frac": float(size.mean()),
        "median_bias_frac": float(np.median(errors)),
        "p90_abs_frac": float(np.quantile(size, 0.9)),
    }
