"""``simcore selftest``: compares predictions with real training steps on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simcore.cli.output import write_result


def selftest(
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="cpu|cuda", help="Default: cuda if there are GPUs."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the profile and raw data to this file."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The table as JSON.")] = False,
) -> None:
    """Calibrate this machine, predict four networks, train them and compare.

    The networks are an MLP, a convolutional network, a transformer and a DiT, none of them part of
    the calibration. They run on one process and on several (DDP, ZeRO-1, FSDP), and each is
    predicted before it runs. Takes two to three minutes. Exit code 1: the predictions do not hold.
    """
    from simcore import api
    from simcore.calibrate.summaries import render_selftest

    found = api.selftest(output=output, device=device, quiet=as_json)
    write_result(as_json, lambda: found, lambda: render_selftest(found))
    if not found["holds"]:
        raise typer.Exit(1)
