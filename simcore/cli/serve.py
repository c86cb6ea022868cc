"""``simcore serve``: the web page."""

from __future__ import annotations

from typing import Annotated

import typer

from simcore.cli.output import complain
from simcore.cli.values import whole

NEEDED = "the web page needs the extra packages of simcore[serve]: pip install 'simcore[serve]'"
_HIGHEST_PORT = 65_535


def serve(
    host: Annotated[
        str,
        typer.Option("--host", metavar="ADDRESS", help="Address to listen on; loopback only "
                     "unless changed."),
    ] = "127.0.0.1",
    port: Annotated[
        str, typer.Option("--port", metavar="N", help="Port; 0: any that is free.")
    ] = "8765",
    name: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="HOST", help="Another name that browsers may call this "
                     "server by; may be repeated."),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="N", help="Cost units a second and client; a prediction "
                     "costs one.", show_default=False),
    ] = None,
) -> None:  # fmt: skip
    """A local web page: choose, compare, share; and the same as a JSON API (/docs).

    Listens on this machine only. Nothing is fetched from elsewhere, nothing is written.
    """
    from simcore.base.errors import InvalidConfig, UsageError

    problems: list[str] = []
    number = whole("port", port, problems, least=0)
    if number is not None and number > _HIGHEST_PORT:
        problems.append(f"--port must be at most {_HIGHEST_PORT}, not {number}")
    units = whole("rate", rate, problems)
    if problems:
        raise InvalidConfig(problems)
    assert number is not None
    try:
        from simcore.serve.guard import RATE
        from simcore.serve.run import serve as run
    except ModuleNotFoundError as err:
        if (err.name or "").startswith("simcore"):
            raise
        raise UsageError(NEEDED) from None
    run(host, number, names=name or (), rate=units or RATE, say=complain)
