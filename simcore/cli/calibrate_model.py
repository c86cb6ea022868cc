"""``simcore calibrate --model``: times the kernels of a job's step, and shows what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simcore.base.errors import Problems
from simcore.base.units import PERCENT, format_seconds
from simcore.cli.config import with_defaults
from simcore.cli.options import job_options, number
from simcore.cli.output import complain, write_result


def calibrate_model(
    words: Mapping[str, Any], minutes: str | None, output: Path | None, *, resume: bool,
    device: str | None, as_json: bool, apart: Mapping[str, Any], allow_code: bool,
) -> None:  # fmt: skip
    """Time the job that ``words`` describe and print the result.

    ``apart``: flags that cannot be given with --model, with their values.
    """
    from simcore import api

    problems = Problems(f"--model and {flag} exclude each other" for flag, v in apart.items() if v)
    given = words["gpus"]
    completed, from_files = with_defaults(words, allow_code=allow_code)
    if from_files:
        complain(f"note: {from_files}")
    options = job_options(completed, problems)
    budget = number("minutes", minutes, problems)
    problems.stop()
    found = api.calibrate_model(
        completed["model"], gpus=given, minutes=1.0 if budget is None else budget, output=output,
        resume=resume, device=device, quiet=as_json, **options,
    )  # fmt: skip
    write_result(as_json, lambda: found, lambda: render_model(found))


def render_model(found: Mapping[str, Any]) -> str:
    """The answer of ``simcore calibrate --model``; a profile that is worse says so first."""
    from simcore.calibrate.summaries import DISTURBED_FRAC, found_by

    lines = []
    if found["worse"]:
        lines += ["WORSE than without the timed kernels on this very step: the machine was busy, "
                  "or the step does what no kernel shows", ""]  # fmt: skip
    measured_s = found["measured_s"]
    if measured_s is None:
        lines.append(f"the whole step was not measured: {found['why_not_measured']}")
    else:
        lines.append(f"{'one step, measured':<34}{format_seconds(measured_s):>10}")
    lines += [
        _predicted(f"predicted {found['before']}", found["before_s"], found["before_error_frac"]),
        _predicted("predicted, kernels timed by shape", found["predicted_s"], found["error_frac"])
        + f"   80 %: {format_seconds(found['low_s'])} to {format_seconds(found['high_s'])}",
        "",
        f"{found['kernels']} distinct kernels timed on {found['gpu']}, {_where(found)}: "
        f"{found['timed_frac'] * PERCENT:.0f} % of the device's time",
    ]
    if found["disturbed_frac"] > DISTURBED_FRAC:
        lines.append(f"the machine was busy: other processes disturbed "
                     f"{found['disturbed_frac'] * PERCENT:.0f} % of the steps")  # fmt: skip
    lines += [
        *found["notes"],
        "",
        "written: " + ", ".join(found["written"]),
        f"{found_by(found['written'])}simcore predict --model ... "
        f"--gpus 1x1x{found['gpu']} --calibration {found['written'][0]}",
    ]
    return "\n".join(lines) + "\n"


def _predicted(what: str, seconds: float, error: float | None) -> str:
    wrong = "" if error is None else f"{error * PERCENT:+8.1f} %"
    return f"{what:<34}{format_seconds(seconds):>10}{wrong}"


def _where(found: Mapping[str, Any]) -> str:
    """How many kernels were timed in the real step."""
    real, every = found["in_real_step"], found["kernels"]
    if not real:
        return "as single operators of their shapes"
    return "in the real step" + (f" ({every - real} as single operators)" if real < every else "")
