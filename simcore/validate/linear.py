"""Measured kernels of linear attention against the shipped figures, or against a refit of them."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from simcore.base.arrays import NDArray
from simcore.calibrate.linear_fit import linear_levels, linear_time_s
from simcore.calibrate.linear_rows import LinearBatch
from simcore.calibrate.pooling import family_of
from simcore.hardware.estimates import Level
from simcore.hardware.linear_attention import figures_in, linear_attention_tables
from simcore.hardware.spec import GPUS

#: A batch, which devices its figures were measured on, and predicted / measured - 1 [rows].
Judged = tuple[LinearBatch, Level, NDArray[np.float64]]


def _left_out(batch: LinearBatch, of_ten: int) -> NDArray[np.bool_]:
    """Whether a refit leaves out each row, by its shape [rows]."""
    shapes = zip(batch.tokens, batch.n_bytes[:, -1], batch.blocks[:, -1], strict=True)
    return np.array([
        zlib.crc32(" ".join(f"{v:.6g}" for v in shape).encode()) % 10 < of_ten for shape in shapes
    ], dtype=bool)  # fmt: skip


def judge_linear(
    batches: Sequence[LinearBatch],
    refit: Literal["shapes", "family"] | None,
    of_ten: int,
    skipped: Counter[str],
) -> list[Judged]:
    """The errors of each batch; arguments as in ``ops.judge_ops``.

    ``of_ten``: tenths of the shapes that a refit leaves out, and on which alone it is judged.
    """
    seen = [b.take(~_left_out(b, of_ten)) for b in batches] if refit else []
    tables: dict[str, Any] = {}
    found: list[Judged] = []
    for batch in batches:
        out = family_of(batch.gpu) if refit == "family" else ""
        if refit and out not in tables:
            tables[out] = linear_levels(seen, {out} if out else ())
        table = (tables[out] if refit else linear_attention_tables()).get(batch.cls)
        if table is None:
            skipped[f"{batch.cls}: not measured"] += len(batch)
            continue
        rows = batch.take(_left_out(batch, of_ten)) if refit else batch
        gpu = GPUS[batch.gpu]
        figures, level = figures_in(table, gpu)
        try:
            time_s = linear_time_s(rows, gpu, figures)
        except KeyError as err:
            skipped[str(err.args[0])] += len(rows)
            continue
        found.append((rows, level, time_s / rows.time_s - 1.0))
    return found
