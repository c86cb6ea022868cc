"""Predictions of unmeasured jobs: blank cells of tables, and every row under ZeRO's stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from simcore.answer.predict import predict
from simcore.base.errors import SimcoreError
from simcore.hardware.profile import Profile
from simcore.strategy.options import Options
from simcore.validate.case import Case
from simcore.validate.judge import measured_time_s, request_of
from simcore.validate.table import Table

#: Steps of the run whose time a filled row states.
RUN_STEPS = 1000
_ZERO = ("zero1", "zero2", "zero3")


def filled_rows(
    tables: Sequence[Table], profile_for: Callable[[Case], Profile]
) -> list[dict[str, object]]:
    """Predictions of rows without a measured time, and of the other rows under ZeRO-1, 2 and 3."""
    return [
        _filled(case, profile_for(case))
        for table in tables
        for row in table.cases
        for case in _wanted(row)
    ]


def _wanted(case: Case) -> list[Case]:
    blank = measured_time_s(case) is None
    wanted = [case] if blank else []
    if "+" in case.gpus or case.options.get("strategy") not in ("ddp", "zero2"):
        return wanted
    for stage in _ZERO:
        if case.options.get("strategy") != stage:
            options: Options = {**case.options, "strategy": stage}
            wanted.append(replace(case, id=f"{case.id}/{stage}", options=options, measured={}))
    return wanted


def _filled(case: Case, profile: Profile) -> dict[str, object]:
    out: dict[str, object] = {
        "id": case.id,
        "model": case.model_name,
        "gpus": case.gpus,
        "strategy": case.options.get("strategy"),
        "micro_batch": case.options.get("micro_batch"),
    }
    try:
        request = request_of(case, profile)
        found = predict(request)
    except SimcoreError as err:
        return {**out, "error": str(err)}
    step = found.step_time_s
    epoch = None
    if request.loading is not None and request.loading.samples is not None:
        steps = max(1.0, request.loading.samples // found.global_batch)
        epoch = steps * step.value
    return {
        **out,
        "micro_batch": found.micro_batch,
        "step_time_s": {"value": step.value, "low": step.low, "high": step.high},
        "samples_per_s": found.samples_per_s,
        "speedup_vs_1gpu": found.speedup_vs_1gpu,
        "memory_device_bytes": found.memory.device_bytes,
        "fits": found.fits,
        "epoch_s": epoch,
        "run_1000_steps_s": RUN_STEPS * step.value,
    }
