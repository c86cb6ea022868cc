"""``simcore fleet``: simulates many jobs in the queue of one cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simcore.base.errors import Problems, UnknownName
from simcore.cli.options import AS_JSON, duration, option, whole
from simcore.cli.output import missing_problems, write_result


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
               "policy"),
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
    from simcore.planning.fleet import POLICIES

    problems = Problems()
    count = whole("gpus", gpus, problems)
    wait_s = duration("p95-wait", wait, problems)
    checkpoint_s = duration("checkpoint-every", checkpoint_every, problems)
    if policy not in POLICIES:
        problems.append(str(UnknownName("policy", policy, POLICIES)))
    if (gpus is None) == (wait is None):
        problems.append("give either --gpus or --p95-wait")
    problems += missing_problems(jobs)
    problems.stop()
    found = api.fleet(
        jobs, count, policy=policy, wait_s=wait_s, checkpoint_s=checkpoint_s or 3600.0
    )
    write_result(as_json, found.to_dict, lambda: str(found))
