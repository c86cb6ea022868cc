"""Latte DDP runs: iterations a second and memory a card by cluster and local batch."""

from __future__ import annotations

from simcore.base.units import GIGA
from simcore.validate.case import Case, Skipped
from simcore.validate.formats import Format, Row, number, present, whole


def _read(name: str, row: Row) -> Case | Skipped:
    cluster = f"{whole(row, 'nodes')}x{whole(row, 'gpus_per_node')}x{row['gpu']}"
    batch = whole(row, "local_batch", 1)
    rate, memory = number(row, "iter_per_s"), number(row, "mem_gb")
    doubt = "anomaly" in row.get("note", "")
    return Case(
        id=name,
        table="latte",
        model=row["model"],
        gpus=cluster,
        options={"micro_batch": batch, "strategy": "ddp"},
        measured=present(
            step_time_s=1.0 / rate if rate else None,
            samples_per_s=number(row, "samples_per_s"),
            peak_memory_bytes=memory * GIGA if memory is not None else None,
        ),
        columns=row,
        flag=row.get("note", "") if doubt else "",
        notes=row.get("note", ""),
    )


FORMAT = Format(
    "latte",
    frozenset({"model", "gpu", "nodes", "gpus_per_node", "local_batch", "iter_per_s", "mem_gb"}),
    _read,
)
