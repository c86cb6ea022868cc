"""Whole-model passes of op tables' authors against the engine's own prediction of that pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from simcore.calibrate.op_tables import OnBad, Table
from simcore.hardware.profile import Profile


@dataclass(frozen=True)
class ModelErrors:
    parts: tuple[dict[str, Any], ...] = ()
    n_rows: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    problems: tuple[str, ...] = ()


def is_end_to_end_table(table: Table) -> bool:
    """Whether a table times passes of whole models."""
    return {"gpu", "model", "batch", "seq", "mode", "time_ms"} <= table.columns.keys()


def end_to_end_errors(table: Table, on_bad: OnBad, profile: Profile) -> ModelErrors:
    return ModelErrors(n_rows=len(table), skipped=Counter({"later": len(table)}))
