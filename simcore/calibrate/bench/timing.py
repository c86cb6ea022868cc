"""Repeated calls to one robust figure: medians of the calls that nothing disturbed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from simcore.calibrate.bench.case import Case, Device, Run, Sample, World
from simcore.calibrate.curve_fits import robust_sd

#: Calls before the first that counts: lazy initialisation, primitives' caches.
WARM_UP: Final = 2
MAX_CALLS: Final = 200
#: Undisturbed calls that a median needs.
ENOUGH: Final = 3
#: Where every call was disturbed, the quantile that is least so.
LEAST_DISTURBED: Final = 0.1
#: Share of the cores that others may use before a measurement counts as disturbed.
OTHERS_FRAC: Final = 0.05

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Typical:
    """Seconds of a typical call and the robust standard deviation of their logarithm."""

    seconds: float
    sd_log: float
    calls: int
    disturbed_frac: float


def typical(samples: Sequence[Sample], others_frac: float = 0.0) -> Typical:
    """Median of the undisturbed calls; of too few, or beside busy others, a low quantile.

    A call can only be made longer by what else runs, never shorter. ``others_frac``: share of the
    machine that others used meanwhile.
    """
    seconds = np.array([s.seconds for s in samples])
    good = np.array([s.seconds for s in samples if not s.disturbed])
    if len(good) >= ENOUGH and others_frac <= OTHERS_FRAC:
        kept, value = good, float(np.median(good))
    else:
        kept = good if len(good) >= ENOUGH else seconds
        value = float(np.quantile(kept, LEAST_DISTURBED))
    sd = robust_sd(np.log(np.maximum(kept, np.finfo(float).tiny)))
    frac = max(1.0 - len(good) / len(seconds), others_frac)
    return Typical(value, sd, len(kept), float(frac))


class Busy:
    """How much of the machine others use: the system's busy time less one's own."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._start = self._now()

    def _now(self) -> tuple[float, float] | None:
        """(jiffies of all cores that are not idle, all jiffies); None where unknown."""
        try:
            words = self._stat.read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
        except OSError:
            return None
        ticks = [float(w) for w in words]
        return sum(ticks) - ticks[3] - ticks[4], sum(ticks)

    def others_frac(self, own_cpu_s: float, wall_s: float, n_cores: int) -> float:
        """Share of all cores that other processes used since this was made."""
        now = self._now()
        if now is None or self._start is None or now[1] <= self._start[1] or wall_s <= 0:
            return 0.0
        busy_frac = (now[0] - self._start[0]) / (now[1] - self._start[1])
        return max(0.0, busy_frac - own_cpu_s / (wall_s * n_cores))


def measure(
    case: Case, device: Device, world: World, budget_s: float, clock: Clock = time.perf_counter
) -> Typical:
    """Time one case on the ranks that take part; the same answer on each of them."""
    run = case.prepare(device)
    for _ in range(WARM_UP):
        device.time(run)
    if case.mode == "lockstep":
        return _lockstep(case, device, world, run, budget_s, clock)
    if case.mode == "together":
        world.barrier()
    samples: list[Sample] = []
    until = clock() + max(budget_s, case.seconds)
    # Together: for the whole time, or the slowest would run alone at the end.
    while clock() < until and (len(samples) < MAX_CALLS or case.mode == "together"):
        samples.append(_one(case, device, run))
    while len(samples) < case.calls:
        samples.append(_one(case, device, run))
    if case.mode == "alone":
        return typical(samples)
    every = world.gather(typical(samples))
    return Typical(
        float(np.mean([t.seconds for t in every])), max(t.sd_log for t in every),
        min(t.calls for t in every), max(t.disturbed_frac for t in every),
    )  # fmt: skip


def _one(case: Case, device: Device, run: Run) -> Sample:
    if case.cold:
        device.flush()
    return device.time(run)


def _lockstep(
    case: Case, device: Device, world: World, run: Run, budget_s: float, clock: Clock
) -> Typical:
    world.barrier()
    first = max(s.seconds for s in world.gather(device.time(run)))
    wanted = max(budget_s, case.seconds) / max(first, 1e-6)
    calls = int(world.share(min(MAX_CALLS, max(case.calls, int(wanted)))))
    busy, cpu, wall = Busy(), time.process_time(), time.perf_counter()
    mine: list[float] = []
    for _ in range(calls):
        if case.cold:
            device.flush()
        world.barrier()
        mine.append(device.time(run).seconds)
    wall = time.perf_counter() - wall
    own = sum(world.gather(time.process_time() - cpu))
    others = world.share(busy.others_frac(own, wall, cores()))
    slowest = np.max(world.gather(mine), axis=0)
    return typical([Sample(float(s)) for s in slowest], others)


def cores() -> int:
    """Logical processors of the machine (all of them: /proc/stat counts all)."""
    import os

    return os.cpu_count() or 1
