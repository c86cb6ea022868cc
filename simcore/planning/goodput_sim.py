"""Event-by-event simulation (simpy) of the job that ``planning.goodput`` treats in closed form."""

from __future__ import annotations

import math
from collections.abc import Generator
from random import Random
from typing import Any

from simcore.base.errors import UsageError
from simcore.planning.goodput import Goodput


def simulate_runs(found: Goodput, runs: int, *, seed: int = 0) -> dict[str, float]:
    """Mean, 10th and 90th percentile of the lengths [s] of ``runs`` simulated runs of a job.

    Raises UsageError for a failure rate of zero, a run without a length, or without simpy.
    """
    if found.run_s is None or not math.isfinite(found.mtbf_s):
        raise UsageError("a simulation needs --work and a failure rate above zero")
    work = found.run_s * found.goodput_frac * found.straggler_factor
    times = sorted(
        simulate_run(
            mtbf_s=found.mtbf_s, interval_s=found.interval_s, save_s=found.save_s,
            restart_s=found.restart_s, work_s=work, seed=seed + i,
        )
        for i in range(runs)
    )  # fmt: skip
    return {
        "runs": float(runs),
        "mean_s": sum(times) / runs,
        "p10_s": times[int(0.1 * (runs - 1))],
        "p90_s": times[round(0.9 * (runs - 1))],
    }


def simulate_run(
    *, mtbf_s: float, interval_s: float, save_s: float, restart_s: float, work_s: float, seed: int
) -> float:
    """Time [s] until ``work_s`` seconds of work are done and saved, with random failures.

    One process works and saves; another interrupts it at exponentially distributed times. An
    interruption loses the work since the last checkpoint. A restart may be interrupted too.
    """
    try:
        import simpy
    except ImportError:
        raise UsageError("a simulation needs simpy: pip install '.[sim]'") from None
    env = simpy.Environment()
    rng = Random(seed)
    saved = 0.0

    def job() -> Generator[Any, Any, None]:
        nonlocal saved
        restarting = False
        while saved < work_s:
            try:
                if restarting:
                    yield env.timeout(restart_s)
                    restarting = False
                todo = min(interval_s, work_s - saved)
                yield env.timeout(todo)
                yield env.timeout(save_s)
                saved += todo
            except simpy.Interrupt:
                restarting = True

    worker = env.process(job())

    def failures() -> Generator[Any, Any, None]:
        while worker.is_alive:
            yield env.timeout(rng.expovariate(1.0 / mtbf_s))
            if worker.is_alive:
                worker.interrupt()

    env.process(failures())
    env.run(until=worker)
    return float(env.now)
