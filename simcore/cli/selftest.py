"""``simcore selftest``: predictions beside real training steps on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simcore.cli.output import write


def selftest(
    device: Annotated[
        str | None, typer.Option("--device", metavar="cpu|cuda", help="Default: GPUs if any.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Keep the profile and raw data here."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The table as JSON.")] = False,
) -> None:
    """Calibrate this machine, predict four networks, train them, compare.

    An MLP, a conv net, a transformer and a DiT that calibration has not seen, on one process and
    on several (DDP, ZeRO-1, FSDP), each predicted before it runs. Takes up to five minutes, and
    leaves 1 as exit code where the predictions do not hold.
    """
    from simcore import api

    found = api.selftest(output=output, device=device, quiet=as_json)
    if as_json:
        from simcore.report.jsonout import dumps, finite

        write(dumps(finite(found)))
    else:
        from simcore.calibrate.summaries import render_selftest

        write(render_selftest(found))
    if not found["holds"]:
        raise typer.Exit(1)
