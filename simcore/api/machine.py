"""Calibrates the machine on which it runs, also for one job, and shows contents of calibrations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcore.base.database import fold_name
from simcore.base.errors import Problems, UsageError
from simcore.workload.settings import names_code, permitted, trusts_call

if TYPE_CHECKING:
    from simcore.calibrate.machine.curves import Curve


def calibrate_machine(
    *,
    minutes: float = 3.0,
    output: Path | str | None = None,
    name: str | None = None,
    resume: bool = False,
    device: str | None = None,
    bad_rows: str = "refuse",
    quiet: bool = False,
) -> dict[str, Any]:
    """Benchmark this machine on all of its devices, fit its profile and return the results.

    Writes ``output`` (default NAME.yaml), the raw measurements next to it and, for a machine that
    is not in the database, ``hardware_db/`` records named ``name``. Raises UsageError where torch
    is missing, and one that lists everything that is wrong with the arguments.
    """
    from simcore.calibrate.machine.launch import run_ranks
    from simcore.calibrate.machine.run import THIS_MACHINE

    chosen = name or (Path(output).stem if output is not None else THIS_MACHINE)
    target = Path(output) if output is not None else Path(f"{chosen}.yaml")
    problems = target_problems(target, device, bad_rows)
    if not 0 < minutes < float("inf"):
        problems.append(f"minutes must be above zero, not {minutes:g}")
    problems.stop()
    arguments = ["--minutes", str(minutes), "--name", chosen, "--bad-rows", bad_rows]
    arguments += ["--resume"] * resume + ["--quiet"] * quiet
    return run_ranks([*arguments, "-o", str(target)], device)


def refit_machine(
    raw: Path | str, *, output: Path | str | None = None, bad_rows: str = "refuse"
) -> dict[str, Any]:
    """Fit a profile again from the raw tables of a calibration, on any machine, and return it.

    ``raw``: the folder that ``calibrate`` wrote beside its profile. Writes ``output``, by default
    NAME.yaml for NAME.raw. Raises UsageError or DataError where the folder is not one.
    """
    from simcore.calibrate.machine.profile import refit
    from simcore.calibrate.summaries import machine_data

    folder = Path(raw)
    target = Path(output) if output is not None else folder.with_suffix(".yaml")
    target_problems(target, None, bad_rows).stop()
    made, machine = refit(folder, target, bad_rows)  # type: ignore[arg-type]
    return machine_data(made.record, machine, made.notes, (target,))


def selftest(
    *, output: Path | str | None = None, device: str | None = None, quiet: bool = False
) -> dict[str, Any]:
    """Calibrate this machine, predict training steps of other networks, then measure these.

    The profile is written to ``output``; without it the profile is deleted at the end. Returns the
    table of steps, its median error and how many steps lie inside their intervals (``holds``).
    """
    import tempfile

    from simcore.calibrate.machine.launch import run_ranks

    target_problems(Path(output or "selftest.yaml"), device).stop()
    with tempfile.TemporaryDirectory() as folder:
        target = Path(output) if output is not None else Path(folder) / "selftest.yaml"
        words = ["--selftest", "--name", target.stem, "-o", str(target)] + ["--quiet"] * quiet
        found = run_ranks(words, device)
        return found if output is not None else _without_files(found, folder)


def _without_files(found: dict[str, Any], folder: str) -> dict[str, Any]:
    """The result of a selftest whose files are deleted: file names without the folder, none
    written.
    """
    notes = [note.removeprefix(f"{folder}/") for note in found["calibration_notes"]]
    return {**found, "calibration_notes": notes, "written": []}


def target_problems(target: Path, device: str | None, bad_rows: str = "refuse") -> Problems:
    """What is wrong with the file of a calibration, its device, and the word for bad rows."""
    problems = Problems()
    if target.suffix not in (".yaml", ".yml"):
        problems.append(f"a calibration is a .yaml file, not {target.name!r}")
    if not target.parent.is_dir():
        problems.append(f"no such folder: {str(target.parent)!r}")
    if device not in (None, "cpu", "cuda"):
        problems.append(f"device is cpu or cuda, not {device!r}")
    if bad_rows not in ("refuse", "skip"):
        problems.append(f"bad rows are refused or skipped, not {bad_rows!r}")
    return problems


def calibration(name: str) -> dict[str, Any]:
    """Everything that a calibration (name or file) holds, as plain data; for ``blind``, the
    figures by family of GPUs.
    """
    if fold_name(name) == "blind":
        from simcore.calibrate.summaries import blind_data

        return blind_data()
    from simcore.calibrate.yaml_text import profile_data
    from simcore.hardware.calibrations import calibration_named

    return profile_data(calibration_named(name))


def calibration_curves(name: str) -> list[Curve]:
    """A machine's fitted curves with the raw measurements, which are stored next to the profile.

    Raises DataError where there are no raw measurements.
    """
    from simcore.calibrate.machine.curves import curves_of
    from simcore.hardware.calibrations import calibration_named

    return curves_of(calibration_named(name), Path(name))


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
    from simcore.calibrate.job.profile import ModelOptions, calibrate_model, plain_data
    from simcore.calibrate.machine.launch import ranks_here
    from simcore.calibrate.machine.run import THIS_MACHINE
    from simcore.hardware.calibrations import calibration_named

    target = Path(output) if output is not None else Path(f"{THIS_MACHINE}.yaml")
    problems = target_problems(target, device)
    if not 0 < minutes < float("inf"):
        problems.append(f"minutes must be above zero, not {minutes:g}")
    if resume and not target.is_file():
        problems.append(f"--resume: there is no {str(target)!r} to extend")
    if resume and options.get("calibration"):
        problems.append("--resume extends the file to write: drop --calibration")
    problems.stop()
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
