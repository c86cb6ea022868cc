"""``simcore compare``: several clusters or options for one job side by side."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from simcore.base.errors import Problems, UsageError
from simcore.cli.grid import grid_of
from simcore.cli.options import ALLOW_CODE, AS_JSON, MODEL, PRICE, PRICES, WITH, option, takes_job
from simcore.cli.output import write_result


@takes_job(axes=True)
def compare(
    model: MODEL = None,
    gpus: Annotated[
        list[str] | None,
        option("--gpus", "GRID", "One cluster or a grid of them (needed); may be repeated.",
               "cluster"),
    ] = None,
    micro_batch: Annotated[
        str | None,
        option("--micro-batch", "N|max",
               "Samples per GPU and micro-step; max: the most that fit on each cluster."),
    ] = None,
    price: PRICE = None,
    prices: PRICES = None,
    with_: WITH = None,
    as_json: AS_JSON = False,
    allow_code: ALLOW_CODE = False,
    **job: Any,
) -> None:  # fmt: skip
    """Compare clusters (or strategies, degrees, precisions) side by side.

    Takes predict's options, each with one value or several. Every combination is predicted as by
    `simcore predict`: whether it fits, step time with its interval, throughput, the bottleneck,
    and GPU-hours, cost and energy of a million samples. Exit code 0: one fits, 1: none fits.
    """
    from simcore import api

    problems = Problems()
    grid = grid_of(
        {"model": model, "gpus": gpus, "micro_batch": micro_batch, **job}, with_, problems,
        example="--gpus 2x8xRTX4090 --gpus 1x4xH100",
        allow_code=allow_code,
    )  # fmt: skip
    problems.stop()
    if "," in grid.model:
        raise UsageError("--model takes one name here: compare clusters or strategies for it")
    grid.tell()
    found = api.compare(grid.model, grid.gpus, price=price or (), prices=prices, **grid.words)
    write_result(as_json, found.to_dict, lambda: str(found))
    if not any(c.fits for c in found.columns):
        raise typer.Exit(1)
