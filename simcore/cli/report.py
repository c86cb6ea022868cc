"""``simcore report``: one job as one self-contained page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from simcore.cli import names
from simcore.cli.config import LISTS, with_defaults
from simcore.cli.emit import warn_unknown
from simcore.cli.files import folder_problems
from simcore.cli.job import job_options, takes_job
from simcore.cli.output import complain

#: More clusters than this do not stand side by side, and pass a megabyte.
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
        typer.Option("--model", metavar="NAME", help="What to train, as in predict.",
                     autocompletion=names.models, show_default=False),
    ] = None,
    gpus: Annotated[
        list[str] | None,
        typer.Option("--gpus", metavar="CLUSTER", autocompletion=names.cluster,
                     help="NODESxGPUSxTYPE; several times: side by side.", show_default=False),
    ] = None,
    **job: Any,
) -> None:  # fmt: skip
    """Write everything about a prediction into one HTML file that opens without a network.

    Inputs, defaults, assumptions, time and memory by term with formula and source, scaling,
    what-ifs, ops and sources of the hardware's figures. Takes predict's options.
    """
    from simcore.api.document import facts_of
    from simcore.base.errors import InvalidConfig, UsageError
    from simcore.report import html

    words, told = with_defaults({"model": model, "gpus": gpus, **job}, lists=(*LISTS, "gpus"))
    problems = folder_problems("--output", output)
    if output.suffix.lower() not in (".html", ".htm"):
        problems.append(f"--output {str(output)!r} must end in .html")
    model, clusters = words.pop("model"), words.pop("gpus")
    if model is None:
        problems.append("--model is missing: name one of `simcore list models`")
    if not clusters:
        problems.append("--gpus is missing: write NODESxGPUSxTYPE, such as 4x8xA6000ada")
    elif len(clusters) > MOST:
        problems.append(f"at most {MOST} clusters stand side by side, not {len(clusters)}")
    options = job_options(words, problems)
    if problems:
        raise InvalidConfig(problems)
    warn_unknown(options.get("launch"))
    if told:
        complain(f"note: {told}")
    facts = facts_of(model, clusters, **options)
    page = html.page(replace(facts, notes=(f"Defaults {told}.",) if told else ()))
    try:
        output.write_text(page, encoding="utf-8")
    except OSError as err:
        raise UsageError(f"--output {str(output)!r} cannot be written: {err.strerror}") from None
    complain(f"report in {output}: {len(page.encode()) / 1e3:.0f} kB, opens in any browser")
