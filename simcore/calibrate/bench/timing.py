"""A robust time from repeated calls: the median of the calls that were not disturbed."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from simcore.base.arrays import Array
from simcore.base.record import dataclass
from simcore.calibrate.bench.case import Case, Device, How, Run, Sample, World
from simcore.calibrate.curve_fits import robust_sd

#: Calls before the first that counts, for lazy initialisation and the libraries' caches.
WARM_UP: Final = 2
MAX_CALLS: Final = 200
#: Undisturbed calls that a median needs.
ENOUGH: Final = 3
#: The quantile of the times that is used if too few calls were undisturbed.
LEAST_DISTURBED: Final = 0.1
#: Ticks of the system's clock from which on a single call can be tested for disturbance.
JUDGED_TICKS: Final = 4
#: Share of the cores that other processes may use before a measurement counts as disturbed.
OTHERS_FRAC: Final = 0.05
#: Share from which on a measurement of several ranks is taken once more, and is not fitted.
DOUBTED_FRAC: Final = 0.2
#: Standard deviation of the logarithm of an undisturbed call's time between two measurements on a
#: steady device; a steady step's calls scatter by as much (``validate/selftest``, runs 14 to 16).
REPEATS_SD: Final = 0.01

Clock = Callable[[], float]


@dataclass(frozen=True)
class Typical:
    """Seconds of a typical call and the robust standard deviation of their logarithm.

    ``calls`` is the number of calls behind the figure, ``disturbed_frac`` the share of calls that
    were disturbed or, if larger, the share of the machine that other processes used. ``how`` the
    calls were timed.
    """

    seconds: float
    sd_log: float
    calls: int
    disturbed_frac: float
    how: How = "call"


def typical(samples: Sequence[Sample], others_frac: float = 0.0) -> Typical:
    """The typical call of ``samples``: the median of the undisturbed ones.

    If these are too few, or other processes are busy, it is a low quantile: other processes can
    only make a call longer, never shorter. ``others_frac`` is the share of the machine that other
    processes used during the calls.
    """
    seconds = np.array([s.seconds for s in samples])
    good = np.array([s.seconds for s in samples if not s.disturbed])
    if len(good) >= ENOUGH and others_frac <= OTHERS_FRAC:
        used, value = good, float(np.median(good))
    else:
        used = good if len(good) >= ENOUGH else seconds
        value = float(np.quantile(used, LEAST_DISTURBED))
    sd = robust_sd(np.log(np.maximum(used, np.finfo(float).tiny)))
    frac = max(1.0 - len(good) / len(seconds), others_frac)
    return Typical(value, sd, len(used), float(frac))


def weights(
    calls: Sequence[Typical], moved_log: Sequence[float] = (), *, alone: bool
) -> list[float]:
    """The weight of each of several measurements of one call, in a mean of their logarithms.

    Each weighs by the inverse of its variance: the scatter of its calls, ``REPEATS_SD``, and half
    of ``moved_log``, by which the device's speed changed meanwhile. Of several ranks only those
    count that others disturbed least, within ``OTHERS_FRAC``, or no more than ``DOUBTED_FRAC``; of
    one rank alone (``alone``) all do, since its disturbed calls are set apart one by one.
    """
    least = min(c.disturbed_frac for c in calls)
    limit = math.inf if alone else max(least + OTHERS_FRAC, DOUBTED_FRAC)
    moved = moved_log or [0.0] * len(calls)
    return [
        (c.disturbed_frac <= limit) / (c.sd_log**2 + (m / 2.0) ** 2 + REPEATS_SD**2)
        for c, m in zip(calls, moved, strict=True)
    ]


def weighted_mean(values: Sequence[float], by: Sequence[float]) -> float:
    """The geometric mean of ``values`` weighted ``by``."""
    return math.exp(sum(w * math.log(v) for v, w in zip(values, by, strict=True)) / sum(by))


def busy_s(stat: Path = Path("/proc/stat")) -> float:
    """Busy seconds of all cores since the system's start, in whole ticks; 0 if unknown."""
    try:
        words = stat.read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
    except OSError:
        return 0.0
    ticks = [float(w) for w in words]
    return (
        sum(ticks) - ticks[3] - ticks[4]
    ) * seconds_of_a_tick()  # 3: idle, 4: waiting for the disk


def seconds_of_a_tick() -> float:
    """Seconds of a tick in which the system counts busy time."""
    return 1.0 / os.sysconf("SC_CLK_TCK")


def others_frac(busy: float, own_cpu_s: float, wall_s: float, n_cores: int) -> float:
    """The share of all cores that other processes used in ``wall_s`` seconds.

    ``busy``: busy seconds of all cores in that time, ``own_cpu_s``: those of simcore's processes.
    """
    return max(0.0, busy - own_cpu_s) / (wall_s * n_cores) if wall_s > 0 else 0.0


def measure_calls(
    case: Case, device: Device, world: World, budget_s: float, clock: Clock = time.perf_counter
) -> Typical:
    """The typical call of one case, timed call by call; the same on every rank that takes part.

    ``budget_s``: seconds to spend, unless the case asks for more. ``clock`` is replaced in tests.
    """
    run = case.prepare(device)
    for _ in range(WARM_UP):
        device.time(run)
    if case.mode == "lockstep":
        return _lockstep(case, device, world, run, budget_s, clock)
    if case.mode == "together":
        return _together(case, device, world, run, budget_s, clock)
    samples: list[Sample] = []
    until = clock() + max(budget_s, case.seconds)
    while clock() < until and len(samples) < MAX_CALLS:
        samples.append(_one(case, device, run))
    while len(samples) < case.calls:
        samples.append(_one(case, device, run))
    return typical(samples)


@dataclass(frozen=True)
class AtOnce:
    """One rank's result while all ranks ran without synchronisation.

    ``busy_s``: busy time of all cores; ``own_cpu_s``: processor time of this rank; ``wall_s``: the
    time of the measurement.
    """

    call: Typical
    busy_s: float
    own_cpu_s: float
    wall_s: float


def _together(
    case: Case, device: Device, world: World, run: Run, budget_s: float, clock: Clock
) -> Typical:
    world.barrier()
    busy, cpu, start = busy_s(), time.process_time(), clock()
    until = start + max(budget_s, case.seconds)
    samples: list[Sample] = []
    # Every rank runs for the whole time; otherwise the slowest would run alone at the end.
    while clock() < until or len(samples) < case.calls:
        samples.append(_one(case, device, run))
    wall, cpu, busy = clock() - start, time.process_time() - cpu, busy_s() - busy
    return of_ranks_at_once(world.gather(AtOnce(typical(samples), busy, cpu, wall)), cores())


def of_ranks_at_once(ranks: Sequence[AtOnce], n_cores: int) -> Typical:
    """The mean over ranks of their typical call.

    ``disturbed_frac`` is the share of the machine that other processes used, not a share of calls:
    if the ranks fill the machine, any other process briefly takes a core from one of them, so
    nearly every long call is interrupted, but only by a little.
    """
    calls = [r.call for r in ranks]
    busy = float(np.mean([r.busy_s / r.wall_s for r in ranks]))
    own = sum(r.own_cpu_s / r.wall_s for r in ranks)
    return Typical(
        float(np.mean([t.seconds for t in calls])), max(t.sd_log for t in calls),
        min(t.calls for t in calls), others_frac(busy, own, 1.0, n_cores),
    )  # fmt: skip


def _one(case: Case, device: Device, run: Run) -> Sample:
    if case.cold:
        device.flush()
    return device.time(run)


def _lockstep(
    case: Case, device: Device, world: World, run: Run, budget_s: float, clock: Clock
) -> Typical:
    world.barrier()
    first = max(world.gather(_wall(run, clock)))
    wanted = max(budget_s, case.seconds) / max(first, 1e-6)
    calls = int(world.share(min(MAX_CALLS, max(case.calls, int(wanted)))))
    mine: list[tuple[float, float, float]] = []  # wall, own processor time, busy time of all cores
    for _ in range(calls):
        if case.cold:
            device.flush()
        world.barrier()
        busy, cpu = busy_s(), time.process_time()
        wall = device.time(run).seconds if device.kind == "cuda" else _wall(run, clock)
        mine.append((wall, time.process_time() - cpu, busy_s() - busy))
    every = np.array(world.gather(mine))  # [ranks, calls, 3]
    walls, own = every[:, :, 0].max(axis=0), every[:, :, 1].sum(axis=0)
    others = [
        others_frac(float(b), float(o), float(w), cores())
        for b, o, w in zip(every[0, :, 2], own, walls, strict=True)
    ]
    return least_disturbed(walls, np.array(others), seconds_of_a_tick())


def least_disturbed(walls: Array, others: Array, tick_s: float) -> Typical:
    """The typical call of ranks in lockstep.

    ``walls`` [calls] are seconds; ``others`` [calls] is the share of the machine that other
    processes used in each. The system counts busy time in ticks of ``tick_s``, so only calls of
    several ticks can be tested one by one; their undisturbed ones give a median. Shorter calls
    give the median or low quantile of :func:`typical`. If too few calls are undisturbed, the
    result is the low quantile of the least disturbed ones.
    """
    total = float((others * walls).sum() / walls.sum())
    if float(np.median(walls)) < JUDGED_TICKS * tick_s:
        return typical([Sample(float(w)) for w in walls], total)
    allowed = OTHERS_FRAC + tick_s / (walls * cores())
    good = others <= allowed
    if int(good.sum()) >= ENOUGH:
        return Typical(
            float(np.median(walls[good])), robust_sd(np.log(walls[good])), int(good.sum()),
            float(others[good].mean()),
        )  # fmt: skip
    best = np.argsort(others, kind="stable")[: max(ENOUGH, len(walls) // 4)]
    return Typical(
        float(np.quantile(walls[best], LEAST_DISTURBED)), robust_sd(np.log(walls[best])), len(best),
        float(others[best].mean()),
    )  # fmt: skip


def _wall(run: Run, clock: Clock) -> float:
    """Wall time of a call: ranks wait for each other, so processor time would not do."""
    start = clock()
    returned_s = run()
    return returned_s if isinstance(returned_s, float) else clock() - start


def cores() -> int:
    """Number of logical processors of the machine; all of them, as /proc/stat counts all."""
    return os.cpu_count() or 1
