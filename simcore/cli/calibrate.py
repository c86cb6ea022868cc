"""``simcore calibrate``: makes a calibration from benchmarks or from measured steps."""

# No "from __future__ import annotations" here, as in ``cli.predict``.

from pathlib import Path
from typing import Annotated, Any

import typer

from simcore.base.errors import Problems
from simcore.cli.options import (
    ALLOW_CODE,
    LOG_COLLECTIVE,
    LOG_GPUS,
    LOG_NETWORK,
    LOG_NODE,
    number,
    option,
    takes_job,
)
from simcore.cli.output import missing_problems, write_result
from simcore.strategy.options import OPTIONS


@takes_job()
def calibrate(
    rows: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="Fit to measured steps (CSV) or a log of nccl-tests."
        ),
    ] = None,
    model: Annotated[
        str | None,
        option("--model", "NAME", "Time the kernels of this model's step, under the options of "
               "`predict`, and keep them in the profile by shape.", "model"),
    ] = None,
    minutes: Annotated[
        str | None,
        typer.Option("--minutes", metavar="N",
                     help="Time for the benchmarks (default 3; with --model 1)."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue with the measurements of an earlier run; with "
                     "--model: add to the profile."),
    ] = False,
    refit: Annotated[
        Path | None,
        typer.Option(
            "--refit", metavar="FOLDER", help="Fit again from raw tables (NAME.raw), anywhere."
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="cpu|cuda", help="Default: cuda if there are GPUs."),
    ] = None,
    bad_rows: Annotated[
        str,
        typer.Option(
            "--bad-rows", metavar="refuse|skip", help="What to do with invalid measurements."
        ),
    ] = "refuse",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Calibration file to write (YAML)."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the calibration.")] = None,
    allow_code: ALLOW_CODE = False,
    gpus: LOG_GPUS = None,
    node: LOG_NODE = None,
    network: LOG_NETWORK = None,
    collective: LOG_COLLECTIVE = None,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
    **job: Any,
) -> None:  # fmt: skip
    """Benchmark this machine (GPUs with NCCL, or the processor with gloo) and fit its profile.

    Writes NAME.yaml for `predict --calibration`, the raw measurements next to it and, for hardware
    that is not in the database, records under hardware_db/ (docs/calibration.md). --refit FOLDER
    fits those raw measurements again, on any machine. The command
    `torchrun --nproc-per-node N -m simcore.calibrate` calibrates a node, too.

    With --from FILE, fits efficiencies and bandwidths to your own measured steps. The table has
    columns id, model, gpus and step_time_s, and any of predict's options (see `validate/tables`).
    One row is enough, ten rows are better; the result says which parameters the rows determine.
    From a log of nccl-tests (all_reduce_perf and similar) the links of its cluster are fitted.

    With --model, times the distinct kernels of that job's step on this machine within a minute and
    adds them to the profile: `calibrate --model gpt2 --micro-batch 8 -o mine.yaml`. Predictions of
    the same job then use the measured times, on this GPU or on many of them.
    """
    from simcore import api

    if model is not None:
        from simcore.cli.calibrate_model import calibrate_model

        words = {**job, "model": model, "gpus": gpus, "node": node, "network": network}
        calibrate_model(words, minutes, output, resume=resume, device=device, as_json=as_json,
                        apart={"--from": rows, "--refit": refit, "--collective": collective,
                               "--name": name},
                        allow_code=allow_code)  # fmt: skip
        return

    said = {"gpus": gpus, "node": node, "network": network, "collective": collective}
    problems = Problems(f"--{OPTIONS.typed()[k].word} is for --model" for k, v in job.items() if v)
    budget = number("minutes", minutes, problems)
    if rows is None:
        problems += [f"--{k} needs --from" for k, v in said.items() if v is not None]
        measures = minutes is not None or resume or device is not None or name is not None
        if refit is not None and measures:
            problems.append("--refit measures nothing: drop --minutes, --resume, --device, --name")
    else:
        if minutes is not None or resume or device is not None or refit is not None:
            problems.append(
                "--minutes, --resume, --device and --refit are for benchmarks: drop them, or --from"
            )
        problems += missing_problems(rows)
        if bad_rows not in ("refuse", "skip"):
            problems.append(f"--bad-rows is refuse or skip, not {bad_rows!r}")
    problems.stop()
    if refit is not None:
        found = api.refit_machine(refit, output=output, bad_rows=bad_rows)
    elif rows is None:
        found = api.calibrate_machine(
            minutes=3.0 if budget is None else budget, output=output, name=name, resume=resume,
            device=device, bad_rows=bad_rows, quiet=as_json,
        )  # fmt: skip
    else:
        found = api.calibrate_from(
            rows, output=output, name=name, bad_rows=bad_rows,  # type: ignore[arg-type]
            allow_code=allow_code, **said,
        )  # fmt: skip
    write_result(as_json, lambda: found, lambda: _text(found))


def _text(found: dict[str, Any]) -> str:
    """Text about a calibration from benchmarks, from a log of nccl-tests or from steps."""
    from simcore.calibrate.summaries import render_summary
    from simcore.report.links import render_links

    if "cluster" in found:
        return render_summary(found)
    return render_links(found) if "links" in found else _render(found)


def _render(found: dict[str, Any]) -> str:
    from simcore.report.formatting import WIDTH, percent, wrapped
    from simcore.report.tables import table

    error = found["leave_one_out_mape_frac"]
    left_out = f"; a row left out is predicted within {percent(error)} (MAPE)"
    lines = [
        f"{found['name']}: {found['origin']}",
        f"rows scatter {percent(found['residual_sd_log'])} around the fit"
        + (left_out if error is not None and found["rows"] > 1 else ""),
        "",
    ]
    cells = [
        [
            k["knob"],
            " ".join(k[p] for p in ("gpu", "node", "link", "workload") if k.get(p)) or "all",
            f"x {k['value']:.3g}",
            f"{k['sd_log']:.2f}",
            f"{k['prior_sd_log']:.2f}",
            "yes" if k["identified"] else "no",
        ]
        for k in found["knobs"]
    ]
    head = ["parameter", "of", "value", "sd", "prior", "determined by rows"]
    lines.append(table(head, cells, right=range(2, 5)))
    lines += [f"flagged {row}: {why}" for row, why in found["suspects"].items()]
    lines += [f"skipped {row}: {why}" for row, why in found["skipped"].items()]
    for link in found["unstated"]:
        lines += wrapped(
            f"{link}: no row states how many adapters a node has; where the steps do not determine "
            "it, the usual node's number is kept; state it in a column `network` (such as "
            "8xib-ndr)",
            WIDTH,
        )
    if ignored := found["ignored_columns"]:
        lines.append(f"columns that nothing reads: {', '.join(ignored)}")
    if found["written"]:
        lines += ["", f"written to {found['written']}: simcore predict ... "
                  f"--calibration {found['written']}"]  # fmt: skip
    return "\n".join(lines) + "\n"
