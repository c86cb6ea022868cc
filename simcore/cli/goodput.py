"""``simcore goodput``: the useful share of a job's time; reads flags that ``plan`` has too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from simcore.cli import names
from simcore.cli.config import with_defaults
from simcore.cli.job import job_options, takes_job
from simcore.cli.options import (
    ALLOW_CODE,
    AS_JSON,
    CHECKPOINT_BW,
    CHECKPOINT_EVERY,
    FAILURES,
    MODEL,
    RESTART,
    STRAGGLERS,
    option,
)
from simcore.cli.output import complain, write
from simcore.cli.values import number, whole

if TYPE_CHECKING:
    from simcore.planning.goodput import Reliability


def reliability(
    problems: list[str],
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
    from simcore.base.errors import InvalidConfig, SimcoreError
    from simcore.base.units import parse_quantity
    from simcore.planning.goodput import Reliability
    from simcore.planning.moments import duration_seconds

    values: dict[str, float] = {}
    rate = number("failures", failures, problems)
    if rate is not None:
        values["failures_per_gpu_h"] = rate
    try:
        if checkpoint_bw is not None:
            values["checkpoint_bytes_per_s"] = parse_quantity(checkpoint_bw, "bytes_per_s")
    except SimcoreError as err:
        problems.append(f"--checkpoint-bw: {err}")
    for key, flag, text in (
        ("interval_s", "--checkpoint-every", checkpoint_every),
        ("restart_s", "--restart", restart),
    ):
        try:
            if text is not None:
                values[key] = duration_seconds(text)
        except SimcoreError as err:
            problems.append(str(err).replace("--deadline", flag))
    if stragglers is not None:
        share, _, slower = stragglers.partition(":")
        slow_prob = number("stragglers", share, problems)
        slow_frac = number("stragglers", slower or "nothing", problems)
        if slow_prob is not None and slow_frac is not None:
            values |= {"slow_prob": slow_prob, "slow_frac": slow_frac}
    try:
        return Reliability(**values) if values else None
    except InvalidConfig as err:
        problems.extend(err.violations)
        return None


#: Options on which the size of a checkpoint depends.
_KEPT = (
    "inputs", "settings", "strategy", "precision", "main_grads", "optimizer", "lora_rank",
    "lora_targets", "quantised_base",
)  # fmt: skip


@takes_job(_KEPT)
def goodput(
    model: MODEL = None,
    gpus: Annotated[
        str | None, option("--gpus", "CLUSTER", "NODESxGPUSxTYPE (needed).", names.cluster)
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
    from simcore.base.errors import InvalidConfig, SimcoreError
    from simcore.planning.moments import duration_seconds

    words, from_files = with_defaults({"model": model, "gpus": gpus, **job}, allow_code=allow_code)
    model, gpus = words.pop("model"), words.pop("gpus")
    problems: list[str] = []
    if model is None:
        problems.append("--model is missing: name one of `simcore list models`")
    if gpus is None:
        problems.append("--gpus is missing: write NODESxGPUSxTYPE, such as 64x8xH100")
    rel = reliability(
        problems, failures=failures, checkpoint_bw=checkpoint_bw,
        checkpoint_every=checkpoint_every, restart=restart, stragglers=stragglers,
    )  # fmt: skip
    options = job_options(words, problems)
    runs = whole("simulate", simulate, problems)
    work = None
    try:
        work = duration_seconds(days) if days is not None else None
    except SimcoreError as err:
        problems.append(str(err).replace("--deadline", "--work"))
    if problems:
        raise InvalidConfig(problems)
    assert model is not None and gpus is not None
    if from_files:
        complain(f"note: {from_files}")
    found = api.goodput(model, gpus, work_s=work, reliability=rel, **options)
    simulated = api.simulate_goodput(found, runs) if runs is not None else None
    if as_json:
        from simcore.report.jsonout import dumps, finite

        write(dumps(finite({**found.to_dict(), "simulated": simulated})))
        return
    from simcore.report.goodput import render_goodput

    write(render_goodput(found, simulated))
