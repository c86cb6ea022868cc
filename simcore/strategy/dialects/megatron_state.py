"""The formats in which Megatron-Core's optimizer keeps its state.

With ``--use-precision-aware-optimizer`` Transformer Engine's Adam is given the formats of both
moments. Of fp32 master weights it keeps only the lower halves, which bf16 weights lack
(store_param_remainders), in jobs where it holds the masters: without fp8, or with delayed scaling
(core/optimizer/__init__.py, core/optimizer/optimizer_config.py:
use_precision_aware_optimizer_no_fp8_or_ds_fp8). An optimizer that is offloaded to the host is a
different one (HybridDeviceOptimizer) and ignores these settings.
"""

from __future__ import annotations

from typing import Any

from simcore.strategy.dialects.base import Job
from simcore.strategy.dialects.reading import Reading
from simcore.strategy.programs import program_named

_AWARE = "use-precision-aware-optimizer"
_MOMENTS = ("exp-avg-dtype", "exp-avg-sq-dtype")
_GRADS, _PARAMS = "main-grads-dtype", "main-params-dtype"
#: Formats of moments with two bytes; fp16 has one more number a tensor.
_TWO_BYTES = ("bf16", "fp16")
#: Precisions whose master weights Transformer Engine holds; fp8 only with its delayed scaling.
_OWN_MASTERS = ("bf16", "fp8")
#: Megatron-Core with an optimizer that keeps only the lower halves of master weights.
_KEEPS_HALVES = "megatron@precision-aware"


def narrow_grads(given: dict[str, Any]) -> bool:
    """Whether gradients are summed in 16 bits because the optimizer takes them in that format."""
    return given.get(_GRADS) == "bf16"


def read_state(reading: Reading, given: dict[str, Any]) -> None:
    """Read the flags; strategy, precision, optimizer and offload must have been read."""
    aware = bool(reading.flag(f"--{_AWARE}", given.pop(_AWARE, None)))
    formats = {n: given.pop(n, "fp32") for n in (*_MOMENTS, _GRADS, _PARAMS)}
    recipe = given.get("fp8-recipe", "delayed")
    if not aware:
        for name, value in formats.items():
            if value != "fp32":
                reading.refuse(f"--{name} {value}", f"needs --{_AWARE}")
        return
    if formats[_PARAMS] != "fp32":
        reading.approximate(f"--{_PARAMS}", "is not followed: masters are predicted in fp32")
    moments = {formats[n] for n in _MOMENTS}
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
    """The program that the flags mean: by what ``emit_state`` says, one that keeps halves."""
    keeps = bool(emit_state(job, [])) and job.precision in _OWN_MASTERS
    return _KEEPS_HALVES if keeps else "megatron"


def emit_state(job: Job, problems: list[str]) -> list[str]:
    """The flags for 16-bit moments and for lower halves of master weights."""
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
