"""``simcore goodput``: the useful share of a job's time; reads flags that ``plan`` has too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from simcore.base.errors import Problems
from simcore.cli.config import subject, with_defaults
from simcore.cli.options import (
    ALLOW_CODE,
    AS_JSON,
    CHECKPOINT_BW,
    CHECKPOINT_EVERY,
    FAILURES,
    MODEL,
    RESTART,
    STRAGGLERS,
    duration,
    job_options,
    number,
    option,
    takes_job,
    whole,
)
from simcore.cli.output import complain, write_result

if TYPE_CHECKING:
    from simcore.planning.goodput import Reliability


def reliability(
    problems: Problems,
    *,
    failures: str | None,
    checkpoint_bw: str | None,
    checkpoint_every: str | None,
    restart: str | None,
    stragglers: str | None,
) -> Reliability | None:
    """The value that the flags describe, or None where none is given.

    Error messages are added to ``problems``.
    """
    from simcore.base.units import parse_quantity
    from simcore.planning.goodput import Reliability

    bandwidth = Problems()
    values = {
        "failures_per_gpu_h": number("failures", failures, problems),
        "checkpoint_bytes_per_s": None if checkpoint_bw is None
        else bandwidth.attempt(parse_quantity, checkpoint_bw, "bytes_per_s"),
        "interval_s": duration("checkpoint-every", checkpoint_every, problems),
        "restart_s": duration("restart", restart, problems),
    }  # fmt: skip
    problems += [f"--checkpoint-bw: {sentence}" for sentence in bandwidth]
    if stragglers is not None:
        share, _, slower = stragglers.partition(":")
        slow = {
            "slow_prob": number("stragglers", share, problems),
            "slow_frac": number("stragglers", slower or "nothing", problems),
        }
        values |= slow if None not in slow.values() else {}
    given: dict[str, Any] = {k: v for k, v in values.items() if v is not None}
    return problems.attempt(Reliability, **given) if given else None


#: Options on which the size of a checkpoint depends.
_KEPT = (
    "inputs", "settings", "strategy", "precision", "main_grads", "optimizer", "lora_rank",
    "lora_targets", "quantised_base",
)  # fmt: skip


@takes_job(_KEPT)
def goodput(
    model: MODEL = None,
    gpus: Annotated[
        str | None, option("--gpus", "CLUSTER", "NODESxGPUSxTYPE (needed).", "cluster")
    ] = None,
    days: Annotated[
        str | None,
        option("--work", "TIME", "Length of the run without failures: 30d; predicts it with them."),
    ] = None,
    failures: FAILURES = None,
    checkpoint_bw: CHECKPOINT_BW = None,
    checkpoint_every: CHECKPOINT_EVERY = None,
    restart: RESTART = None,
    stragglers: STRAGGLERS = None,
    simulate: Annotated[
        str | None, option("--simulate", "RUNS", "Also simulate this many runs (needs simpy).")
    ] = None,
    as_json: AS_JSON = False,
    allow_code: ALLOW_CODE = False,
    **job: Any,
) -> None:
    """Predict the useful share of a run's time and the best checkpoint interval.

    Exact for failures at random times (renewal theory). Young's and Daly's estimates of the
    interval are printed for comparison.
    """
    from simcore import api
    from simcore.report.operation import render_goodput

    words, from_files = with_defaults({"model": model, "gpus": gpus, **job}, allow_code=allow_code)
    problems = Problems()
    model, gpus = subject(words, problems, "write NODESxGPUSxTYPE, such as 64x8xH100")
    rel = reliability(
        problems, failures=failures, checkpoint_bw=checkpoint_bw,
        checkpoint_every=checkpoint_every, restart=restart, stragglers=stragglers,
    )  # fmt: skip
    options = job_options(words, problems)
    runs = whole("simulate", simulate, problems)
    work_s = duration("work", days, problems)
    problems.stop()
    assert model is not None and gpus is not None
    if from_files:
        complain(f"note: {from_files}")
    found = api.goodput(model, gpus, work_s=work_s, reliability=rel, **options)
    simulated = api.simulate_goodput(found, runs) if runs is not None else None
    write_result(
        as_json, lambda: {**found.to_dict(), "simulated": simulated},
        lambda: render_goodput(found, simulated),
    )  # fmt: skip
