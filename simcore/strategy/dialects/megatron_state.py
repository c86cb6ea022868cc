"""In which formats Megatron-Core's optimizer keeps its state.

With ``--use-precision-aware-optimizer`` Transformer Engine's Adam gets the formats of both moments,
and keeps of fp32 masters the halves that bf16 weights lack (store_param_remainders), where it holds
the masters: without fp8, or with delayed scaling (core/optimizer/__init__.py,
core/optimizer/optimizer_config.py: use_precision_aware_optimizer_no_fp8_or_ds_fp8). An optimizer
that is offloaded to the host is another one (HybridDeviceOptimizer) and takes none of it.
"""

from __future__ import annotations

from typing import Any

from simcore.strategy.dialects.base import Job
from simcore.strategy.dialects.reading import Reading
from simcore.strategy.programs import program_named

_AWARE = "use-precision-aware-optimizer"
_MOMENTS = ("exp-avg-dtype", "exp-avg-sq-dtype")
_GRADS, _PARAMS = "main-grads-dtype", "main-params-dtype"
#: Moments of two bytes; of fp16 with one more number a tensor.
_TWO_BYTES = ("bf16", "fp16")
#: Precisions whose masters Transformer Engine holds; fp8 with its delayed scaling.
_OWN_MASTERS = ("bf16", "fp8")
#: Megatron-Core whose optimizer keeps lower halves of masters.
_KEEPS_HALVES = "megatron@precision-aware"


def narrow_grads(given: dict[str, Any]) -> bool:
    """Whether gradients are summed in 16 bits because the optimizer takes them so."""
    return given.get(_GRADS) == "bf16"


def read_state(reading: Reading, given: dict[str, Any]) -> None:
    """Take the flags; strategy, precision, optimizer and offload have been read."""
    aware = bool(reading.flag(f"--{_AWARE}", given.pop(_AWARE, None)))
    asked = {n: given.pop(n, "fp32") for n in (*_MOMENTS, _GRADS, _PARAMS)}
    recipe = given.get("fp8-recipe", "delayed")
    if not aware:
        for name, value in asked.items():
            if value != "fp32":
                reading.refuse(f"--{name} {value}", f"needs --{_AWARE}")
        return
    if asked[_PARAMS] != "fp32":
        reading.approximate(f"--{_PARAMS}", "is not followed: masters are predicted in fp32")
    moments = {asked[n] for n in _MOMENTS}
    at_home = reading.said("offload") == "none"
    if moments <= set(_TWO_BYTES) and at_home and reading.said("optimizer") == "adamw":
        reading.say("optimizer", "adamw-bf16", f"--{_MOMENTS[0]}")
    elif moments != {"fp32"}:
        reading.approximate(f"--{_MOMENTS[0]}", "is not followed: moments are predicted in fp32")
    masters = reading.said("precision") in _OWN_MASTERS and recipe == "delayed"
    if masters and at_home and reading.said("strategy") == "zero1":
        reading.say("software", _KEEPS_HALVES, f"--{_AWARE}")


def _halves(job: Job) -> bool:
    if job.software is None:
        return False
    return program_named(job.software).optimizer_state.master_lower_halves


def program_of(job: Job) -> str:
    """The program that reads the flags: one that keeps halves of masters where these say so."""
    keeps = bool(emit_state(job, [])) and job.precision in _OWN_MASTERS
    return _KEEPS_HALVES if keeps else "megatron"


def emit_state(job: Job, problems: list[str]) -> list[str]:
    """The flags for moments in 16 bits and for halves of masters."""
    narrow = job.optimizer == "adamw-bf16"
    if not narrow and not _halves(job):
        return []
    if job.strategy != "zero1" or job.offload != "none":
        if narrow:
            problems.append(
                "Megatron has moments in 16 bits with strategy zero1 on the device, not with "
                f"{job.strategy}, offload {job.offload}"
            )
        return []
    return [f"--{_AWARE}", *(f"--{name} bf16" for name in _MOMENTS if narrow)]
