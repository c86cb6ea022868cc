"""Times the kernels of one job's step on the machine on which it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simcore.api.machine import target_problems
from simcore.base.errors import InvalidConfig, UsageError
from simcore.workload.permission import names_code, permitted, trusts_call


@trusts_call()
def calibrate_model(
    model: str,
    *,
    gpus: str | None = None,
    minutes: float = 1.0,
    output: Path | str | None = None,
    resume: bool = False,
    device: str | None = None,
    quiet: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Time the distinct kernels of a job's step on this machine, keep them in a profile by shape.

    ``options``: those of ``predict``; ``calibration`` is the profile to extend, and with ``resume``
    it is ``output`` itself (default: this-machine.yaml). ``gpus``: only where the job's layout
    needs several; the kernels are those of one. Raises UsageError where torch is missing, and
    InvalidConfig with everything that is wrong with the arguments.
    """
    from simcore.calibrate.launch import ranks_here
    from simcore.calibrate.machine import THIS_MACHINE
    from simcore.calibrate.model_profile import ModelOptions, calibrate_model, plain_data
    from simcore.hardware.calibrations import calibration_named

    target = Path(output) if output is not None else Path(f"{THIS_MACHINE}.yaml")
    problems = target_problems(target, device)
    if not 0 < minutes < float("inf"):
        problems.append(f"minutes must be above zero, not {minutes:g}")
    if resume and not target.is_file():
        problems.append(f"--resume: there is no {str(target)!r} to extend")
    if resume and options.get("calibration"):
        problems.append("--resume extends the file to write: drop --calibration")
    if problems:
        raise InvalidConfig(problems)
    if not isinstance(model, str):
        raise UsageError("model must be text, as on the command line")
    if names_code(model):
        permitted(model)  # before the machine is measured
    named = str(target) if resume else options.pop("calibration", None)
    made = calibrate_model(
        ModelOptions(
            model=model, output=target, device=ranks_here(device)[0],
            words={k: v for k, v in options.items() if v is not None},
            base=calibration_named(str(named)) if named else None, gpus=gpus, seconds=minutes * 60,
            quiet=quiet,
        )
    )  # fmt: skip
    return plain_data(made)
