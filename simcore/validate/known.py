"""Measured rows that ship with simcore, shown with a prediction of the same job."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from simcore.answer.request import make_request
from simcore.answer.result import MeasuredRow, Prediction
from simcore.base.database import shipped_root
from simcore.hardware.spec import GPUS
from simcore.request.resolved import Request
from simcore.validate.case import Case
from simcore.validate.formats.project import FORMAT
from simcore.validate.table import read_table


def tables_folder() -> Path:
    """Folder of the shipped tables, in the wheel or in the checkout."""
    root = shipped_root()
    packed = root / "validate_tables"
    return packed if packed.is_dir() else root / "validate" / "tables"


@lru_cache(maxsize=1)
def _by_model() -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for path in sorted(tables_folder().glob("*.csv")):
        for case in read_table(path, FORMAT).cases:
            if "step_time_s" in case.measured:
                found.setdefault(case.model, []).append(case)
    return found


def _folded(cluster: str) -> tuple[str, ...]:
    """A cluster's groups with each GPU's file name, without reading the files."""
    groups = []
    for part in cluster.split("+"):
        nodes, per_node, name = part.split("x", 2)
        path = GPUS.path(name)
        groups.append(f"{nodes}x{per_node}x{path.stem if path else name}")
    return tuple(groups)


def measured_rows(request: Request, result: Prediction) -> tuple[MeasuredRow, ...]:
    """Measurements of the same job: model, cluster with its network, strategy and batch."""
    cases = _by_model().get(result.model, ())
    if not cases or request.grad_accum != 1:
        return ()
    here = _folded(result.cluster)
    rows = []
    for case in cases:
        same_batch = (case.options.get("micro_batch") or 1) == result.micro_batch
        same_strategy = (case.options.get("strategy") or "ddp") == result.strategy
        same_words = same_batch and same_strategy and _folded(case.gpus) == here
        if not (same_words and _same_job(case, request)):
            continue
        step = case.measured["step_time_s"]
        rows.append(_row(case, "step_time_s", step, result.step_time_s.value))
        if (memory := case.measured.get("peak_memory_bytes")) is not None:
            rows.append(_row(case, "peak_memory_bytes", memory, result.memory.device_bytes))
    return tuple(rows)


def _same_job(case: Case, request: Request) -> bool:
    """Whether the case, with defaults for what it does not state, is the request's job."""
    theirs = make_request(case.model, case.gpus, **case.options)
    wanted = replace(request.strategy, wraps_alone=theirs.strategy.wraps_alone)  # either way
    return (
        theirs.cluster.groups == request.cluster.groups
        and theirs.strategy == wanted
        and theirs.workload == request.workload
        and theirs.placed == request.placed
    )


def _row(case: Case, quantity: str, measured: float, predicted: float) -> MeasuredRow:
    return MeasuredRow(
        source=case.id, quantity=quantity, measured=measured, predicted=predicted, note=case.flag
    )
