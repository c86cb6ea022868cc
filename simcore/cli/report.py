"""``simcore report``: one job as one self-contained HTML page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from simcore.base.errors import Problems
from simcore.cli.config import subject, with_defaults
from simcore.cli.options import ALLOW_CODE, completion, job_options, takes_job
from simcore.cli.output import complain, ending_problems, write_page

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
                     autocompletion=completion("model"), show_default=False),
    ] = None,
    gpus: Annotated[
        list[str] | None,
        typer.Option("--gpus", metavar="CLUSTER", autocompletion=completion("cluster"),
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
    from simcore.report import html

    words, from_files = with_defaults(
        {"model": model, "gpus": gpus, **job}, lists=("gpus",), allow_code=allow_code
    )
    problems = Problems(ending_problems("--output", output, ".html", ".htm"))
    model, clusters = subject(words, problems, "write NODESxGPUSxTYPE, such as 4x8xA6000ada")
    if clusters and len(clusters) > MOST:
        problems.append(f"a report compares at most {MOST} clusters, not {len(clusters)}")
    options = job_options(words, problems)
    problems.stop()
    if words["launch"] is not None:
        from simcore.cli.launch import warn_unknown

        warn_unknown(words["launch"])
    if from_files:
        complain(f"note: {from_files}")
    facts = facts_of(model, clusters, **options)
    notes = (f"Defaults {from_files}.",) if from_files else ()
    write_page("--output", output, html.page(replace(facts, notes=notes)))
