"""``simcore fleet``: simulates many jobs in the queue of one cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simcore.cli import names
from simcore.cli.files import missing_problems
from simcore.cli.options import AS_JSON, option
from simcore.cli.output import write
from simcore.cli.values import whole


def fleet(
    jobs: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Jobs: a CSV with submit_s, gpus, run_s (priority, limit_s, "
            "name), or a Standard Workload Format trace (.swf).",
        ),
    ],
    gpus: Annotated[str | None, option("--gpus", "N", "Number of GPUs of the cluster.")] = None,
    policy: Annotated[
        str,
        option("--policy", "NAME",
               "Order of the queue: fifo, backfill (default), priority or preempt.",
               names.policies),
    ] = "backfill",
    wait: Annotated[
        str | None,
        option("--p95-wait", "TIME",
               "Instead of --gpus: find the fewest GPUs with which 95 % wait less than this."),
    ] = None,
    checkpoint_every: Annotated[
        str | None,
        option("--checkpoint-every", "TIME",
               "Time between checkpoints, the most that a preemption loses (default 1h)."),
    ] = None,
    as_json: AS_JSON = False,
) -> None:  # fmt: skip
    """Simulate a list of jobs in a cluster's queue: waiting times and utilisation.

    A job gets all its GPUs at once or waits.
    """
    from simcore import api
    from simcore.base.errors import InvalidConfig, SimcoreError, UnknownName
    from simcore.planning.fleet import POLICIES
    from simcore.planning.moments import duration_seconds

    problems: list[str] = []
    count = whole("gpus", gpus, problems)
    seconds: dict[str, float | None] = {}
    for flag, text in (("--p95-wait", wait), ("--checkpoint-every", checkpoint_every)):
        try:
            seconds[flag] = duration_seconds(text) if text is not None else None
        except SimcoreError as err:
            problems.append(str(err).replace("--deadline", flag))
    if policy not in POLICIES:
        problems.append(str(UnknownName("policy", policy, POLICIES)))
    if (gpus is None) == (wait is None):
        problems.append("give either --gpus or --p95-wait")
    problems += missing_problems(jobs)
    if problems:
        raise InvalidConfig(problems)
    found = api.fleet(
        jobs, count, policy=policy, wait_s=seconds["--p95-wait"],
        checkpoint_s=seconds["--checkpoint-every"] or 3600.0,
    )  # fmt: skip
    if as_json:
        from simcore.report.jsonout import dumps

        write(dumps(found.to_dict()))
        return
    write(str(found))
