"""``simcore validate``: predictions beside measured rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from simcore.base.units import KILO
from simcore.cli import names
from simcore.cli.files import folder_problems, missing_problems, plot_problems
from simcore.cli.options import ALLOW_CODE, LOG_COLLECTIVE, LOG_GPUS, LOG_NETWORK, LOG_NODE
from simcore.cli.output import complain, write
from simcore.cli.values import whole


def validate(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="Tables of measured runs (CSV); 'ops' first: of ops."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Everything as JSON.")] = False,
    calibrated: Annotated[
        bool, typer.Option("--calibrated", help="Fit first; errors are leave-one-out.")
    ] = False,
    calibrate: Annotated[
        str | None,
        typer.Option(
            "--calibrate",
            metavar="K",
            help="Fit on K rows of each source and GPU, judge on the rest; one-gpu: on the rows "
            "of one GPU.",
        ),
    ] = None,
    draws: Annotated[
        str | None,
        typer.Option("--draws", metavar="N", help="With --calibrate: N random choices of rows."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="COL=VALUE", help="Rows of this value; several: all hold."),
    ] = None,
    unnamed: Annotated[
        bool,
        typer.Option("--unnamed", help="As somebody asks who does not name the program of a row."),
    ] = False,
    commands: Annotated[
        bool,
        typer.Option(
            "--commands", help="The command that predicts each row, instead of its errors."
        ),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="A self-contained page with scatter plots."),
    ] = None,
    fill: Annotated[
        bool, typer.Option("--fill", help="Predict what the tables leave blank too.")
    ] = False,
    by: Annotated[
        str | None, typer.Option("--by", metavar="COL,COL", help="Errors by these columns.")
    ] = None,
    worst: Annotated[
        str | None, typer.Option("--worst", metavar="N", help="The N rows furthest off.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Predicted against measured (.svg or .png)."),
    ] = None,
    refit: Annotated[
        str | None,
        typer.Option(
            "--refit",
            metavar="WHAT",
            help="ops: fit anew from the FILEs, without the shapes (or the shapes and the "
            "family) judged: shapes, family.",
        ),
    ] = None,
    calibration: Annotated[
        str | None,
        typer.Option(
            "--calibration",
            metavar="NAME|FILE",
            help="ops: judge these fitted figures.",
            autocompletion=names.calibrations,
        ),
    ] = None,
    jobs: Annotated[
        str | None,
        typer.Option(
            "--jobs",
            metavar="N",
            help="Processes that share the rows of large tables (default: one a processor).",
        ),
    ] = None,
    bad_rows: Annotated[
        str | None,
        typer.Option(
            "--bad-rows",
            metavar="HOW",
            help="Rows that cannot be: refuse (of runs the default) or skip (of ops).",
        ),
    ] = None,
    allow_code: ALLOW_CODE = False,
    gpus: LOG_GPUS = None,
    node: LOG_NODE = None,
    network: LOG_NETWORK = None,
    collective: LOG_COLLECTIVE = None,
) -> None:
    """Predict measured runs and say how far off the predictions are.

    `simcore validate ops FILE...` holds the op models against measured kernels, collectives
    and passes of whole models instead, or the collectives of a prediction against a log of
    nccl-tests.
    """
    from simcore.base.errors import InvalidConfig

    problems: list[str] = []
    ops = str(files[0]) == "ops" and not files[0].is_file()
    files = files[1:] if ops else files
    if ops and not files:
        problems.append("validate ops needs a FILE: a table of measured kernels")
    count = whole("worst", worst, problems)
    rows_of_fit = _rows_of_fit(calibrate, problems)
    n_draws = whole("draws", draws, problems)
    processes = whole("jobs", jobs, problems)
    chosen = _chosen(only or [], problems)
    given = {
        name
        for name, value in {
            "ops": ops, "json": as_json, "calibrated": calibrated, "calibrate": calibrate,
            "draws": draws, "only": only, "unnamed": unnamed, "commands": commands, "html": html,
            "fill": fill, "by": by, "worst": worst, "plot": plot, "refit": refit,
            "calibration": calibration, "jobs": jobs, "gpus": gpus, "node": node,
            "network": network, "collective": collective,
        }.items()
        if value
    }  # fmt: skip
    problems += _conflicts(given)
    if draws is not None and (rows_of_fit is None or rows_of_fit == "one-gpu"):
        problems.append("--draws is of the rows that --calibrate K fits: give a K")
    problems += _wrong_files(html, plot)
    problems += _wrong_names(refit=refit, bad_rows=bad_rows)
    problems += missing_problems(*files)
    if problems:
        raise InvalidConfig(problems)
    if commands:
        from simcore import api

        how: Any = bad_rows or "refuse"
        typed = api.commands(
            files, only=chosen, unnamed=unnamed, bad_rows=how, allow_code=allow_code
        )
        write("\n".join(one.line for one in typed) + "\n")
        return
    columns = tuple(c.strip() for c in by.split(",") if c.strip()) if by else ()
    from simcore import api

    if ops:
        found = api.validate_ops(
            files,
            calibration=calibration,
            refit=refit,  # type: ignore[arg-type]
            bad_rows=bad_rows or "skip",  # type: ignore[arg-type]
            gpus=gpus, node=node, network=network, collective=collective,
        )  # fmt: skip
        write(_json(found) if as_json else _text_of_ops(found, count))
        return
    from simcore.validate.processes import default_jobs

    result = api.validate(
        files, calibrated=calibrated, calibrate=rows_of_fit, draws=n_draws, only=chosen,
        unnamed=unnamed, fill=fill, by=columns, jobs=processes or default_jobs(),
        bad_rows=bad_rows or "refuse",  # type: ignore[arg-type]
        allow_code=allow_code,
    )  # fmt: skip
    for name, ignored in (result.get("ignored_columns") or {}).items():
        from simcore.validate.formats.project import ignored_told

        complain(f"note: {name}: {ignored_told(ignored)}")
    if html is not None:
        _write_page(result, files, html)
    if plot is not None:
        _write_plot(result, plot)
    from simcore.report.verdict import render_verdict

    write(_json(result) if as_json else render_verdict(result, count))


#: Flags, flags that exclude them, and what is said of both.
_EXCLUDED: tuple[tuple[str, str, str], ...] = (
    ("calibrate", "calibrated fill",
     "--calibrate judges what is left: drop --calibrated and --fill"),
    ("ops", "calibrate only html",
     "--calibrate, --only and --html are for measured runs, not for ops"),
    ("ops", "plot", "--plot is for measured runs, not for ops"),
    ("ops", "jobs", "--jobs is for measured runs, not for ops"),
    ("unnamed", "ops calibrated calibrate fill",
     "--unnamed judges measured runs blind: give it alone"),
    ("refit", "calibration", "--refit judges figures fitted anew, --calibration those of a file"),
)  # fmt: skip
#: Flags of ``simcore validate ops`` alone, and what is said of them elsewhere.
_OF_OPS: tuple[tuple[str, str], ...] = (
    ("refit calibration", "--refit and --calibration are for `simcore validate ops`"),
    ("gpus node network collective",
     "--gpus, --node, --network and --collective are for `simcore validate ops`"),
)  # fmt: skip
#: Flags that say how errors are shown, of which ``--commands`` shows none.
_SHOWN = "ops json calibrated calibrate fill by worst html plot"


def _conflicts(given: set[str]) -> list[str]:
    """What is wrong with the flags ``given`` together."""
    found = [
        sentence
        for flag, others, sentence in _EXCLUDED
        if flag in given and given & {*others.split()}
    ]
    if "ops" not in given:
        found += [sentence for flags, sentence in _OF_OPS if given & {*flags.split()}]
    if "commands" in given:
        found += [
            f"--commands and {flag if flag == 'ops' else '--' + flag}: give one of them"
            for flag in _SHOWN.split()
            if flag in given
        ]
    return found


def _wrong_files(html: Path | None, plot: Path | None) -> list[str]:
    """What is wrong with the files that pictures and pages are to be written to."""
    found: list[str] = []
    if html is not None:
        found += folder_problems("--html", html)
        if html.suffix.lower() not in (".html", ".htm"):
            found.append(f"--html {str(html)!r} must end in .html")
    return found if plot is None else [*found, *plot_problems("--plot", plot)]


def _wrong_names(*, refit: str | None, bad_rows: str | None) -> list[str]:
    """What is wrong with flags that take one of two names."""
    chosen = (("refit", refit, ("shapes", "family")), ("bad-rows", bad_rows, ("skip", "refuse")))
    return [
        f"--{flag} is {' or '.join(names)}, not {value!r}"
        for flag, value, names in chosen
        if value is not None and value not in names
    ]


def _json(found: dict[str, Any]) -> str:
    from simcore.report.jsonout import dumps, finite

    return dumps(finite(found))


def _text_of_ops(found: dict[str, Any], worst: int | None) -> str:
    """Op models as text, or the collectives of a log."""
    if "runs" in found:
        from simcore.report.links import render_runs

        return render_runs(found, worst)
    from simcore.report.verdict import render_ops

    return render_ops(found, worst)


def _write_page(result: dict[str, Any], files: list[Path], path: Path) -> None:
    from simcore.report.html.validation import validation_page

    page = validation_page(result, [f.name for f in files])
    path.write_text(page, encoding="utf-8")
    complain(f"report in {path}: {len(page.encode()) / KILO:.0f} kB, opens in any browser")


def _write_plot(result: dict[str, Any], path: Path) -> None:
    from simcore.report.plots import draw
    from simcore.report.plots import write as write_figure

    write_figure(draw("measured", result), path)
    complain(f"plot in {path}: predicted against measured")


def _rows_of_fit(text: str | None, problems: list[str]) -> int | Literal["one-gpu"] | None:
    if text == "one-gpu":
        return "one-gpu"
    if text is not None and not text.isdigit():
        problems.append(f"--calibrate is a number of rows or one-gpu, not {text!r}")
        return None
    return whole("calibrate", text, problems)


def _chosen(words: list[str], problems: list[str]) -> dict[str, str]:
    found = {}
    for word in words:
        column, equals, value = word.partition("=")
        if not column or not equals:
            problems.append(f"--only is COLUMN=VALUE, not {word!r}")
        found[column] = value
    return found
