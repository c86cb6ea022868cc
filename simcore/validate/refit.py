"""Refits: which shapes they leave out, and batches judged by shipped or by refitted figures."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.record import dataclass
from simcore.calibrate.experts.fit import expert_section, figures_of, shipped_experts, time_s
from simcore.calibrate.experts.rows import ExpertBatch
from simcore.calibrate.linear.fit import linear_levels, linear_time_s
from simcore.calibrate.linear.rows import LinearBatch
from simcore.calibrate.pooling import family_of
from simcore.hardware.estimates import Level
from simcore.hardware.linear_attention import figures_in, linear_attention_tables
from simcore.hardware.spec import GPUS

Refit: TypeAlias = Literal["shapes", "family"]
Batch = TypeVar("Batch", ExpertBatch, LinearBatch)

#: Tenths of the shapes that a refit leaves out, chosen by a hash of the shape; the same shapes on
#: every device.
HELD_OUT_OF_TEN: Final = 3


def held_out(shapes: Iterable[Iterable[float]]) -> NDArray[np.bool_]:
    """Whether a refit leaves out each shape [shapes]."""
    return np.array([
        zlib.crc32(" ".join(f"{v:.6g}" for v in shape).encode()) % 10 < HELD_OUT_OF_TEN
        for shape in shapes
    ], dtype=bool)  # fmt: skip


@dataclass(frozen=True)
class Judge(Generic[Batch]):
    """How one kind of layer is fitted and predicted.

    ``shapes`` of a batch's rows. ``fit``: (batches, families left out) to figures by class.
    ``predict``: (figures, batch) to (seconds [rows], which devices the figures were measured on);
    it raises KeyError where the figures have nothing for the batch.
    """

    shapes: Callable[[Batch], Iterable[Iterable[float]]]
    shipped: Callable[[], Mapping[str, Any]]
    fit: Callable[[Sequence[Batch], Collection[str]], Mapping[str, Any]]
    predict: Callable[[Mapping[str, Any], Batch], tuple[Array, Level]]

    def errors(
        self, batches: Sequence[Batch], refit: Refit | None, skipped: Counter[str]
    ) -> list[tuple[Batch, Level, Array]]:
        """(rows judged, level of their figures, predicted / measured - 1) of each batch.

        ``refit`` as in ``ops.judge_ops``; ``skipped`` counts rows without figures by reason.
        """
        out = [held_out(self.shapes(b)) for b in batches] if refit else []
        seen = [b.take(~rows) for b, rows in zip(batches, out, strict=False)]
        fitted: dict[str, Mapping[str, Any]] = {} if refit else {"": self.shipped()}
        found = []
        for at, batch in enumerate(batches):
            rows = batch.take(out[at]) if refit else batch
            if not len(rows):
                continue
            family = family_of(batch.gpu) if refit == "family" else ""
            if family not in fitted:
                fitted[family] = self.fit(seen, {family} - {""})
            try:
                time, level = self.predict(fitted[family], rows)
            except KeyError as err:
                skipped[str(err.args[0])] += len(rows)
                continue
            found.append((rows, level, time / rows.time_s - 1.0))
        return found


def _expert_times(section: Mapping[str, Any], batch: ExpertBatch) -> tuple[Array, Level]:
    figures, level = figures_of(section, batch)
    return time_s(batch, figures), level


def _linear_times(tables: Mapping[str, Any], batch: LinearBatch) -> tuple[Array, Level]:
    if batch.cls not in tables:
        raise KeyError(f"{batch.cls}: not measured")
    gpu = GPUS[batch.gpu]
    figures, level = figures_in(tables[batch.cls], gpu)
    return linear_time_s(batch, gpu, figures), level


EXPERTS: Final = Judge[ExpertBatch](
    lambda b: b.shape, shipped_experts, expert_section, _expert_times
)
LINEAR: Final = Judge[LinearBatch](
    lambda b: zip(b.tokens, b.n_bytes[:, -1], b.blocks[:, -1], strict=True),
    linear_attention_tables, linear_levels, _linear_times,
)  # fmt: skip
