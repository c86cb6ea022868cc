"""``simcore compare``: clusters side by side."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from simcore.cli import names
from simcore.cli.config import with_defaults
from simcore.cli.emit import grid_launch, warn_unknown
from simcore.cli.job import grid_options, takes_job
from simcore.cli.options import AS_JSON, MODEL, PRICE, PRICES, WITH, fixed_words, option
from simcore.cli.output import complain, write
from simcore.cli.predict import predict


@takes_job(predict, axes=True)
def compare(
    model: MODEL = None,
    gpus: Annotated[
        list[str] | None,
        option("--gpus", "GRID", "A cluster or several (needed); give it again for each.",
               names.cluster),
    ] = None,
    micro_batch: Annotated[
        str | None, option("--micro-batch", "N|max", "max: the most that fits on each.")
    ] = None,
    price: PRICE = None,
    prices: PRICES = None,
    with_: WITH = None,
    as_json: AS_JSON = False,
    **job: Any,
) -> None:  # fmt: skip
    """Put clusters (or strategies, degrees, precisions) side by side.

    Takes predict's options, each with one value or several. Each option is predicted as `simcore
    predict` does: fit, step with its interval, throughput, what
    binds, and GPU-hours, cost and energy of a million samples. Exit code 0: one fits, 1: none.
    """
    from simcore import api
    from simcore.base.errors import InvalidConfig, UsageError

    given, told = with_defaults(
        {"model": model, "gpus": gpus, "micro_batch": micro_batch, **job}, lists=("inputs", "gpus")
    )
    problems: list[str] = []
    model, gpus, words = given.pop("model"), given.pop("gpus"), grid_options(given, problems)
    launch = words["launch"]
    words, notes = grid_launch(model, gpus, words, problems)
    words |= fixed_words(with_ or (), problems)
    if model is None:
        problems.append("--model is missing: name one of `simcore list models`")
    if not gpus:
        problems.append("--gpus is missing: --gpus 2x8xRTX4090 --gpus 1x4xH100")
    if problems:
        raise InvalidConfig(problems)
    assert model is not None and gpus is not None
    if "," in model:
        raise UsageError("--model takes one name: compare clusters or strategies for it")
    for note in filter(None, (told, *notes)):
        complain(f"note: {note}")
    warn_unknown(launch)
    found = api.compare(model, gpus, price=price or (), prices=prices, **words)
    if as_json:
        from simcore.report.jsonout import dumps, finite

        write(dumps(finite(found.to_dict())))
    else:
        write(str(found))
    if not any(c.fits for c in found.columns):
        raise typer.Exit(1)
