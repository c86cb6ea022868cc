"""The same job as ``plan.goodput``, played through event by event (simpy)."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any


def simulate_run(
    *, mtbf_s: float, interval_s: float, save_s: float, restart_s: float, work_s: float, seed: int
) -> float:
    """Seconds until ``work_s`` of work are done and saved, with random failures.

    A process works and saves, another interrupts it at exponential times; the work since the last
    save is lost, and a restart may itself be interrupted.
    """
    import simpy

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
