"""Measured rows that ship with simcore, looked up beside a prediction of the same set-up."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from simcore.base.database import shipped_root
from simcore.base.errors import SimcoreError
from simcore.engine.predict import Request
from simcore.engine.result import MeasuredRow, Prediction
from simcore.hardware.cluster import parse_cluster
from simcore.validate.case import Case
from simcore.validate.formats import read_table

Key = tuple[str, str, int, str]


def tables_folder() -> Path:
    """Where the shipped tables lie: in the wheel or the checkout."""
    root = shipped_root()
    packed = root / "validate_tables"
    return packed if packed.is_dir() else root / "validate" / "tables"


@lru_cache(maxsize=1)
def _index() -> dict[Key, list[Case]]:
    found: dict[Key, list[Case]] = {}
    for path in sorted(tables_folder().glob("*.csv")):
        for case in read_table(path).cases:
            if not case.measured or "step_time_s" not in case.measured:
                continue
            try:
                cluster = str(parse_cluster(case.gpus))
            except SimcoreError:
                continue
            batch = case.options.get("micro_batch")
            strategy = case.options.get("strategy") or "ddp"
            key = (case.model, cluster, batch if isinstance(batch, int) else 1, strategy)
            found.setdefault(key, []).append(case)
    return found


def measured_rows(request: Request, result: Prediction) -> tuple[MeasuredRow, ...]:
    """Measurements of the same model, cluster, strategy and batch, if any is known."""
    if request.grad_accum != 1:
        return ()
    key = (result.model, result.cluster, result.micro_batch, result.strategy)
    rows = []
    for case in _index().get(key, []):
        if (step := case.measured.get("step_time_s")) is not None:
            rows.append(_row(case, "step_time_s", step, result.step_time_s.value))
        if (memory := case.measured.get("peak_memory_bytes")) is not None:
            rows.append(_row(case, "peak_memory_bytes", memory, result.memory.device_bytes))
    return tuple(rows)


def _row(case: Case, quantity: str, measured: float, predicted: float) -> MeasuredRow:
    return MeasuredRow(
        source=case.id, quantity=quantity, measured=measured, predicted=predicted, note=case.flag
    )
