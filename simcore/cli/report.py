"""``simcore report``: one job as one self-contained HTML page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from simcore.cli import names
from simcore.cli.config import with_defaults
from simcore.cli.emit import warn_unknown
from simcore.cli.files import folder_problems
from simcore.cli.job import job_options, takes_job
from simcore.cli.options import ALLOW_CODE
from simcore.cli.output import complain

#: Most clusters of a page: more do not fit side by side, and would exceed a megabyte.
MOST = 4


@takes_job()
def report(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="Write the page here (.html).",
                     show_default=False),
    ],
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="NAME", help="Model to train, as in predict.",
                     autocompletion=names.models, show_default=False),
    ] = None,
    gpus: Annotated[
        list[str] | None,
        typer.Option("--gpus", metavar="CLUSTER", autocompletion=names.cluster,
                     help="NODESxGPUSxTYPE; repeat to compare clusters.", show_default=False),
    ] = None,
    allow_code: ALLOW_CODE = False,
    **job: Any,
) -> None:  # fmt: skip
    """Write everything about a prediction into one HTML file, which needs no network to open.

    The page holds inputs, defaults, assumptions, time and memory by term with formula and source,
    scaling, what-ifs, operators, and the sources of the hardware's figures. Takes predict's
    options.
    """
    from simcore.api.document import facts_of
    from simcore.base.errors import InvalidConfig, UsageError
    from simcore.report import html

    words, from_files = with_defaults(
        {"model": model, "gpus": gpus, **job}, lists=("gpus",), allow_code=allow_code
    )
    problems = folder_problems("--output", output)
    if output.suffix.lower() not in (".html", ".htm"):
        problems.append(f"--output {str(output)!r} must end in .html")
    model, clusters = words.pop("model"), words.pop("gpus")
    if model is None:
        problems.append("--model is missing: name one of `simcore list models`")
    if not clusters:
        problems.append("--gpus is missing: write NODESxGPUSxTYPE, such as 4x8xA6000ada")
    elif len(clusters) > MOST:
        problems.append(f"a report compares at most {MOST} clusters, not {len(clusters)}")
    options = job_options(words, problems)
    if problems:
        raise InvalidConfig(problems)
    warn_unknown(options.get("launch"))
    if from_files:
        complain(f"note: {from_files}")
    facts = facts_of(model, clusters, **options)
    page = html.page(replace(facts, notes=(f"Defaults {from_files}.",) if from_files else ()))
    try:
        output.write_text(page, encoding="utf-8")
    except OSError as err:
        raise UsageError(f"--output {str(output)!r} cannot be written: {err.strerror}") from None
    complain(f"report in {output}: {len(page.encode()) / 1e3:.0f} kB, opens in any browser")
