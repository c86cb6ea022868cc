"""``simcore serve``: starts the web page and the JSON API."""

from __future__ import annotations

from typing import Annotated

import typer

from simcore.base.errors import Problems, UsageError
from simcore.cli.options import whole
from simcore.cli.output import complain

NEEDED = "the web page needs the extra packages of simcore[serve]: pip install '.[serve]'"
_HIGHEST_PORT = 65_535


def serve(
    host: Annotated[
        str,
        typer.Option("--host", metavar="ADDRESS", help="Address to listen on; by default only "
                     "this machine can connect."),
    ] = "127.0.0.1",
    port: Annotated[
        str, typer.Option("--port", metavar="N", help="Port; 0: any free port.")
    ] = "8765",
    name: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="HOST", help="Another host name under which browsers may "
                     "reach this server; may be repeated."),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="N", help="Rate limit: cost units per second and client; "
                     "a prediction costs one.", show_default=False),
    ] = None,
) -> None:  # fmt: skip
    """Start a local web page to predict, compare and share jobs, and a JSON API (/docs).

    Listens on this machine only, by default. Downloads nothing and writes no files.
    """
    problems = Problems()
    number = whole("port", port, problems, least=0)
    if number is not None and number > _HIGHEST_PORT:
        problems.append(f"--port must be at most {_HIGHEST_PORT}, not {number}")
    units = whole("rate", rate, problems)
    problems.stop()
    assert number is not None
    try:
        from simcore.serve.guard import RATE
        from simcore.serve.run import serve as run
    except ModuleNotFoundError as err:
        if (err.name or "").startswith("simcore"):
            raise
        raise UsageError(NEEDED) from None
    run(host, number, names=name or (), rate=units or RATE, say=complain)
