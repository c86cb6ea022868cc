"""``simcore plan``: finds the best clusters and strategies for a training run under limits."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from simcore.base.errors import Problems
from simcore.base.units import PERCENT
from simcore.cli.goodput import reliability
from simcore.cli.grid import grid_of
from simcore.cli.options import (
    ALLOW_CODE,
    AS_JSON,
    CHECKPOINT_BW,
    CHECKPOINT_EVERY,
    FAILURES,
    MODEL,
    PRICE,
    PRICES,
    RESTART,
    STRAGGLERS,
    WITH,
    command_of,
    count,
    number,
    option,
    takes_job,
    whole,
)
from simcore.cli.output import complain, write_result
from simcore.cli.sweep import ProgressBar


@takes_job(axes=True)
def plan(
    model: MODEL = None,
    gpus: Annotated[
        list[str] | None,
        option("--gpus", "TYPES|GRID",
               "GPU types (whole nodes of them): H100,H200,B200; or a grid: H100:8..64:8x8.",
               "cluster"),
    ] = None,
    tokens: Annotated[
        str | None, option("--tokens", "N", "Length of the run: 15T, 1e12; or --samples, --epochs.")
    ] = None,
    samples: Annotated[str | None, option("--samples", "N", "Length in samples.")] = None,
    epochs: Annotated[
        str | None, option("--epochs", "N", "Length in epochs of the model's data set.")
    ] = None,
    steps: Annotated[
        str | None, option("--steps", "N", "Length in steps, with --global-batch.")
    ] = None,
    deadline: Annotated[
        str | None,
        option("--deadline", "TIME",
               "Limit on the time: 30d, 12h, 2w, 2026-12-24, 2026-12-24T18:00."),
    ] = None,
    start: Annotated[
        str | None, option("--start", "TIME", "Date when the run starts (default now).")
    ] = None,
    budget: Annotated[
        str | None, option("--budget", "DOLLARS", "Limit on the cost of the run: 3e6, 3M.")
    ] = None,
    power: Annotated[
        str | None, option("--power", "WATTS", 'Limit on the rated power of all GPUs: "200 kW".')
    ] = None,
    margin: Annotated[
        str | None, option("--margin", "PERCENT", "Memory to leave free on each GPU.")
    ] = None,
    available: Annotated[
        list[str] | None, option("--available", "GPU=N", "Available GPUs of a type: H100=512.")
    ] = None,
    max_gpus: Annotated[
        str | None, option("--max-gpus", "N", "Limit on the number of GPUs.")
    ] = None,
    confidence: Annotated[
        str | None,
        option("--confidence", "PERCENT",
               "Least probability of meeting deadline and budget (default 90, where possible)."),
    ] = None,
    objective: Annotated[
        str, option("--objective", "WHAT",
                    "What to minimise: cost (default), time, energy, gpus or step.",
                    "objective"),
    ] = "cost",
    price: PRICE = None,
    prices: PRICES = None,
    failures: FAILURES = None,
    checkpoint_bw: CHECKPOINT_BW = None,
    checkpoint_every: CHECKPOINT_EVERY = None,
    restart: RESTART = None,
    stragglers: STRAGGLERS = None,
    micro_batch: Annotated[
        str | None, option("--micro-batch", "GRID", "Samples per GPU and micro-step.")
    ] = None,
    global_batch: Annotated[
        str | None,
        option("--global-batch", "GRID",
               "Samples per step; default for language models: about 4 M tokens."),
    ] = None,
    top: Annotated[str | None, option("--top", "N", "Clusters to show (default 5).")] = None,
    jobs: Annotated[
        str | None, option("--jobs", "N", "Processes that share the work (default 1).")
    ] = None,
    emit: Annotated[
        str | None, option("--emit", "DIALECT", "Print the best option's launch file instead.",
                           "dialect"),
    ] = None,
    with_: WITH = None,
    as_json: AS_JSON = False,
    allow_code: ALLOW_CODE = False,
    **job: Any,
) -> None:  # fmt: skip
    """Find the cheapest (fastest, smallest ...) way to do a training run under limits.

    Every combination is evaluated, and the best of each cluster are ranked, with their interval
    and the probability of meeting the limits. Exit code 0: there is an option, 1: there is none
    (the answer says which limit to relax), 2: the command is wrong.
    """
    from simcore import api

    problems = Problems()
    grid = grid_of(
        {"model": model, "gpus": gpus, "micro_batch": micro_batch, "global_batch": global_batch,
         **job},
        with_, problems, example="name types such as H100,H200 or a grid H100:1..64x8",
        sized=False,
        allow_code=allow_code,
    )  # fmt: skip
    share = _percent("margin", margin, problems)
    sure = _percent("confidence", confidence, problems)
    rel = reliability(
        problems, failures=failures, checkpoint_bw=checkpoint_bw,
        checkpoint_every=checkpoint_every, restart=restart, stragglers=stragglers,
    )  # fmt: skip
    if emit is not None:
        from simcore.cli.launch import emit_problems, write_launch

        problems += emit_problems(emit, as_json, None)
    numbers: dict[str, Any] = {
        "tokens": count("tokens", tokens, problems),
        "samples": count("samples", samples, problems),
        "epochs": number("epochs", epochs, problems),
        "steps": count("steps", steps, problems),
        "budget": count("budget", budget and budget.strip().removeprefix("$"), problems),
        "max_gpus": whole("max-gpus", max_gpus, problems),
        "top": whole("top", top, problems) or 5,
        "jobs": whole("jobs", jobs, problems) or 1,
    }
    problems.stop()
    grid.tell()
    with ProgressBar() as show:
        found = api.plan(
            grid.model, grid.gpus, deadline=deadline, start=start, power=power,
            margin_frac=(share or 0.0) / PERCENT, available=available or (),
            confidence=None if sure is None else sure / PERCENT, objective=objective,
            price=price or (), prices=prices, reliability=rel,
            progress=None if show is None else lambda done, total: show(done, total, None),
            **numbers, **grid.words,
        )  # fmt: skip
    best = found.best[0] if found.best else None
    options = {} if best is None else {
        **best.words, "network": grid.words["network"], "node": grid.words["node"],
        "fabric": grid.words["fabric"],
    }  # fmt: skip
    if emit is not None and best is not None:
        complain(f"plan: {best.cluster}, {best.why}")
        write_launch(emit, grid.model, best.cluster, options)
    else:
        command = command_of(grid.model, best.cluster, options) if best is not None else ""
        shown = f"{found}\n{command}\n" if command else str(found)
        write_result(as_json, found.to_dict, lambda: shown)
    if not found.feasible:
        raise typer.Exit(1)


def _percent(flag: str, text: str | None, problems: Problems) -> float | None:
    """The percentage in ``10``, ``10%`` or ``10 %``, which must be below 100."""
    if text is None:
        return None
    found = number(flag, text.strip().removesuffix("%").strip(), problems)
    if found is not None and not 0 <= found < PERCENT:
        problems.append(f"--{flag} must be 0 to less than 100 percent, not {text.strip()}")
    return found
