"""Open-Sora 16x256x256 on MTT S4000: step times and memory by term, in GiB.

The table's columns count differently from simcore's terms. ``weights_gb`` is one byte a
parameter, half of the bf16 weights; ``optimizer_gb`` holds everything else that stays (the other
half, the sharded optimizer, text encoder, EMA, VAE); ``final_gpu_gb`` is their sum.
"""

from __future__ import annotations

from simcore.base.units import GIB, MILLI
from simcore.validate.case import Case, Skipped
from simcore.validate.formats import Format, Row, number, present, whole


def _gib(row: Row, column: str) -> float | None:
    value = number(row, column)
    return None if value is None else value * GIB


def _read(name: str, row: Row) -> Case | Skipped:
    step = number(row, "step_ms")
    return Case(
        id=name,
        table="opensora",
        model="stdit-xl-2",
        gpus=f"1x{whole(row, 'gpus')}xMTT-S4000",
        options={"micro_batch": whole(row, "local_batch", 1), "strategy": "zero2"},
        measured=present(
            step_time_s=step * MILLI if step else None,
            samples_per_s=number(row, "images_per_s"),
            memory_resident_bytes=_gib(row, "final_gpu_gb"),
            memory_resident_but_half_weights_bytes=_gib(row, "optimizer_gb"),
        ),
        columns=row,
        notes="peak leaves out fragmentation; seq_len 512 is not the model's 4,096 tokens",
    )


FORMAT = Format("opensora", frozenset({"gpus", "step_ms", "optimizer_gb", "final_gpu_gb"}), _read)
