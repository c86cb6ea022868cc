"""``simcore validate``: compares predictions with measured runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from simcore.base.errors import Problems
from simcore.cli.options import (
    ALLOW_CODE,
    LOG_COLLECTIVE,
    LOG_GPUS,
    LOG_NETWORK,
    LOG_NODE,
    completion,
    whole,
)
from simcore.cli.output import (
    PLOT_ENDINGS,
    complain,
    ending_problems,
    missing_problems,
    write,
    write_page,
    write_result,
    writing,
)


def validate(
    ctx: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="Tables of measured runs (CSV); after the word ops: of ops."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    calibrated: Annotated[
        bool,
        typer.Option("--calibrated", help="Fit to the rows first; errors are leave-one-out."),
    ] = False,
    calibrate: Annotated[
        str | None,
        typer.Option(
            "--calibrate",
            metavar="K",
            help="Fit to K rows of each source and GPU, judge the others; one-gpu: fit to the "
            "rows of single GPUs.",
        ),
    ] = None,
    draws: Annotated[
        str | None,
        typer.Option(
            "--draws", metavar="N", help="With --calibrate: choose the rows at random, N times."
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="COL=VALUE", help="Only rows with this value; repeat for more."
        ),
    ] = None,
    unnamed: Annotated[
        bool,
        typer.Option("--unnamed", help="Predict as if the rows did not name their program."),
    ] = False,
    by_program: Annotated[
        bool,
        typer.Option(
            "--by-program",
            help="Predict each row from its job and the name and release of its program alone.",
        ),
    ] = False,
    commands: Annotated[
        bool,
        typer.Option(
            "--commands", help="Print the command that predicts each row instead of errors."
        ),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write a self-contained page with scatter plots."
        ),
    ] = None,
    fill: Annotated[
        bool, typer.Option("--fill", help="Also predict values that the tables leave blank.")
    ] = False,
    by: Annotated[
        str | None, typer.Option("--by", metavar="COL,COL", help="Group errors by these columns.")
    ] = None,
    worst: Annotated[
        str | None,
        typer.Option("--worst", metavar="N", help="List the N rows with the largest errors."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE", help="Plot predicted against measured (.svg, .pdf or .png)."
        ),
    ] = None,
    refit: Annotated[
        str | None,
        typer.Option(
            "--refit",
            metavar="WHAT",
            help="ops: fit figures to the FILEs, and judge them on shapes (shapes) or on shapes "
            "and op families (family) left out of the fit.",
        ),
    ] = None,
    calibration: Annotated[
        str | None,
        typer.Option(
            "--calibration",
            metavar="NAME|FILE",
            help="Predict with this calibration; ops: judge its figures.",
            autocompletion=completion("calibration"),
        ),
    ] = None,
    jobs: Annotated[
        str | None,
        typer.Option(
            "--jobs",
            metavar="N",
            help="Processes that share the rows of large tables (default: one per processor).",
        ),
    ] = None,
    bad_rows: Annotated[
        str | None,
        typer.Option(
            "--bad-rows",
            metavar="HOW",
            help="Invalid rows: refuse (default for runs) or skip (default for ops).",
        ),
    ] = None,
    allow_code: ALLOW_CODE = False,
    gpus: LOG_GPUS = None,
    node: LOG_NODE = None,
    network: LOG_NETWORK = None,
    collective: LOG_COLLECTIVE = None,
) -> None:
    """Predict measured runs and print the errors of the predictions.

    `simcore validate ops FILE...` judges the op models instead, on measured kernels, collectives
    and passes of whole models, or the predicted collectives, on a log of nccl-tests.
    """
    from simcore import api

    problems = Problems()
    ops = str(files[0]) == "ops" and not files[0].is_file()
    files = files[1:] if ops else files
    if ops and not files:
        problems.append("validate ops needs a FILE: a table of measured kernels")
    count = whole("worst", worst, problems)
    rows_of_fit = _rows_of_fit(calibrate, problems)
    n_draws = whole("draws", draws, problems)
    processes = whole("jobs", jobs, problems)
    read: dict[str, Any] = {
        "only": _chosen(only or [], problems), "unnamed": unnamed, "by_program": by_program,
        "bad_rows": bad_rows or "refuse", "allow_code": allow_code,
    }  # fmt: skip
    given = {name for name, value in ctx.params.items() if value and name != "files"}
    problems += _conflicts({*given, "ops"} if ops else given)
    if draws is not None and (rows_of_fit is None or rows_of_fit == "one-gpu"):
        problems.append("--draws chooses the rows of --calibrate K: give --calibrate and K")
    problems += ending_problems("--html", html, ".html", ".htm")
    problems += ending_problems("--plot", plot, *PLOT_ENDINGS)
    problems += _wrong_names(refit=refit, bad_rows=bad_rows)
    problems += missing_problems(*files)
    problems.stop()
    if ops:
        found = api.validate_ops(
            files, calibration=calibration, refit=refit,  # type: ignore[arg-type]
            bad_rows=bad_rows or "skip",  # type: ignore[arg-type]
            gpus=gpus, node=node, network=network, collective=collective,
        )  # fmt: skip
        write_result(as_json, lambda: found, lambda: _text_of_ops(found, count))
        return
    _note_left_out_corpora()
    if commands:
        write("\n".join(one.line for one in api.commands(files, **read)) + "\n")
        return
    from simcore.report.verdict import render_verdict
    from simcore.validate.processes import default_jobs

    result = api.validate(
        files, calibrated=calibrated, calibrate=rows_of_fit, draws=n_draws, fill=fill,
        by=tuple(c.strip() for c in (by or "").split(",") if c.strip()),
        jobs=processes or default_jobs(), calibration=calibration, **read,
    )  # fmt: skip
    _write_files(result, files, html, plot)
    write_result(as_json, lambda: result, lambda: render_verdict(result, count))


def _note_left_out_corpora() -> None:
    """Say which tables are read without the rules of a corpus that has mistakes."""
    from simcore.validate.formats.described import problems_of_corpora

    for problem in problems_of_corpora():
        complain(f"note: tables of a corpus are left out: {problem}")


def _write_files(
    result: dict[str, Any], files: Sequence[Path], html: Path | None, plot: Path | None
) -> None:
    """Say which columns nothing reads, and write the page and the plot that are wanted."""
    for name, ignored in (result.get("ignored_columns") or {}).items():
        from simcore.validate.formats.project import ignored_text

        complain(f"note: {name}: {ignored_text(ignored)}")
    if html is not None:
        from simcore.report.html.validation import validation_page

        write_page("--html", html, validation_page(result, [f.name for f in files]))
    if plot is not None:
        from simcore.report import plots

        with writing("--plot", plot):
            plots.write(plots.draw("measured", result), plot)
        complain(f"plot in {plot}: predicted against measured")


#: A parameter, those that exclude it, and the error message; ``ops`` is the word before the files.
_EXCLUDED: tuple[tuple[str, str, str], ...] = (
    ("calibrate", "calibrated fill",
     "--calibrate judges the rows left out of its fit: drop --calibrated and --fill"),
    ("ops", "calibrate only html",
     "--calibrate, --only and --html are for measured runs, not for ops"),
    ("ops", "plot", "--plot is for measured runs, not for ops"),
    ("ops", "jobs", "--jobs is for measured runs, not for ops"),
    ("calibration", "calibrated calibrate",
     "--calibration predicts with a file, --calibrated and --calibrate fit to the rows: give one"),
    ("unnamed", "ops calibrated calibrate fill",
     "--unnamed judges measured runs without calibration: drop the other flag"),
    ("by_program", "ops calibrated calibrate fill unnamed",
     "--by-program judges measured runs without calibration: drop the other flag"),
    ("refit", "calibration",
     "--refit judges newly fitted figures, --calibration those of a file: drop one"),
)  # fmt: skip
#: Parameters of ``simcore validate ops`` only, and the error message without it.
_OF_OPS: tuple[tuple[str, str], ...] = (
    ("refit", "--refit is for `simcore validate ops`"),
    ("gpus node network collective",
     "--gpus, --node, --network and --collective are for `simcore validate ops`"),
)  # fmt: skip
#: Words of a command that are about errors, which ``--commands`` does not print.
_SHOWN = (
    "ops", "--json", "--calibrated", "--calibrate", "--fill", "--by", "--worst", "--html", "--plot",
)  # fmt: skip


def _conflicts(given: set[str]) -> list[str]:
    """Error messages about flags that exclude each other."""
    found = [
        sentence
        for flag, others, sentence in _EXCLUDED
        if flag in given and given & {*others.split()}
    ]
    if "ops" not in given:
        found += [sentence for flags, sentence in _OF_OPS if given & {*flags.split()}]
    if "commands" in given:
        found += [
            f"--commands and {flag}: give one of them"
            for flag in _SHOWN
            if flag.strip("-").replace("json", "as_json") in given
        ]
    return found


def _wrong_names(*, refit: str | None, bad_rows: str | None) -> list[str]:
    """Error messages about flags that take one of two names."""
    chosen = (("refit", refit, ("shapes", "family")), ("bad-rows", bad_rows, ("skip", "refuse")))
    return [
        f"--{flag} is {' or '.join(names)}, not {value!r}"
        for flag, value, names in chosen
        if value is not None and value not in names
    ]


def _text_of_ops(found: dict[str, Any], worst: int | None) -> str:
    """Text about the errors of op models, or of collectives for a log of nccl-tests."""
    if "runs" in found:
        from simcore.report.links import render_runs

        return render_runs(found, worst)
    from simcore.report.verdict import render_ops

    return render_ops(found, worst)


def _rows_of_fit(text: str | None, problems: Problems) -> int | Literal["one-gpu"] | None:
    if text == "one-gpu":
        return "one-gpu"
    if text is not None and not text.isdigit():
        problems.append(f"--calibrate is a number of rows or one-gpu, not {text!r}")
        return None
    return whole("calibrate", text, problems)


def _chosen(words: list[str], problems: Problems) -> dict[str, str]:
    found = {}
    for word in words:
        column, equals, value = word.partition("=")
        if not column or not equals:
            problems.append(f"--only is COLUMN=VALUE, not {word!r}")
        found[column] = value
    return found
