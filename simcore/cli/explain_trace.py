"""``simcore explain-trace``: breaks a measured step into the terms of a prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from simcore.base.errors import Problems
from simcore.cli.options import AS_JSON, job_options, option, takes_job, whole
from simcore.cli.output import complain, write_result


@takes_job()
def explain_trace(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Traces of torch.profiler, or a folder of them."),
    ],
    model: Annotated[
        str | None,
        option("--model", "NAME", "The trained model: adds its prediction.", "model"),
    ] = None,
    gpus: Annotated[
        str | None,
        option("--gpus", "CLUSTER", "The cluster; default: from the trace of a single node.",
               "cluster"),
    ] = None,
    step: Annotated[str | None, option("--step", "N", "Use only ProfilerStep#N.")] = None,
    window: Annotated[
        str | None,
        option("--window", "FROM:TO", "Use only this time, in seconds since the first event."),
    ] = None,
    bad_rows: Annotated[
        str,
        option("--bad-rows", "HOW", "Invalid events of a trace: refuse (default) or skip."),
    ] = "refuse",
    row: Annotated[
        Path | None,
        option("--row", "FILE.csv", "Add the measured step to a table for `calibrate --from`."),
    ] = None,
    as_json: AS_JSON = False,
    **job: Any,
) -> None:  # fmt: skip
    """Break a measured training step into compute, collectives, copies, loading and host time.

    Reads traces of torch.profiler (export_chrome_trace: .json or .json.gz, one file per rank).
    With --model and predict's options, the predicted terms and their ratios are printed too.
    """
    from simcore import api
    from simcore.report.explain_trace import render_explained

    problems = Problems(f"no such file: {str(f)!r}" for f in files if not f.exists())
    words = job_options(job, problems)
    number = whole("step", step, problems, least=0)
    window_s = _window(window, problems)
    if bad_rows not in ("refuse", "skip"):
        problems.append(f"--bad-rows is refuse or skip, not {bad_rows!r}")
    if row is not None and model is None:
        problems.append("--row needs --model, which a row of the table states")
    problems.stop()
    found = api.explain_trace(
        files,
        model,
        gpus,
        step=number,
        window_s=window_s,
        bad_rows=bad_rows,  # type: ignore[arg-type]
        **words,
    )
    if row is not None:
        from simcore.validate.trace_terms import add_row

        add_row(row, found, model or "", words)
        complain(f"measured step added to {row}: simcore calibrate --from {row}")
    write_result(as_json, lambda: found, lambda: render_explained(found))


def _window(text: str | None, problems: list[str]) -> tuple[float, float] | None:
    if text is None:
        return None
    low, colon, high = text.partition(":")
    try:
        if not colon:
            raise ValueError
        return float(low or 0.0), float(high)
    except ValueError:
        problems.append(f"--window is FROM:TO in seconds, such as 0.5:0.9, not {text!r}")
        return None
