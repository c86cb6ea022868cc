"""Whether candidates at the edge of memory fit, by the rule that a prediction has.

A replay of the allocator takes a thousand times what the formula does (``engine.edge``), so only
those are replayed that a plan would show: each in doubt is taken to fit until it is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from simcore.base.arrays import NDArray
from simcore.engine.edge import covered, in_doubt, settled
from simcore.engine.job_memory import memory_result
from simcore.engine.resolved import Request
from simcore.planning.candidates import Candidates, Runs, runs_of
from simcore.planning.constraints import constraints_of, passing, ranked
from simcore.planning.goal import Goal
from simcore.planning.ranking import front

Array = NDArray[np.float64]


def with_settled(
    c: Candidates, goal: Goal, samples: float | None, request: Callable[[int], Request], top: int
) -> Candidates:
    """The candidates, those settled that the first ``top`` clusters or the front may show.

    Of the others in doubt each is worse than what is shown, whether it fits or not, or has less
    to offer its cluster.
    """
    runs = runs_of(c, goal, samples)
    priced = np.isfinite(runs.of(goal.objective, c))
    doubtful = in_doubt(c.memory_bytes, c.needed_bytes, c.capacity_bytes) & np.isfinite(c.step_s)
    doubtful &= np.array([covered(f.layout) for f in c.forms], dtype=bool)[c.form]
    needed = c.needed_bytes.copy()
    while doubtful.any():
        hoped = replace(c, needed_bytes=np.where(doubtful, c.memory_bytes, needed))
        meets = passing(constraints_of(hoped, runs, goal), len(c)) & priced
        shown = {*first_of_clusters(hoped, runs, goal, meets, top), *front_of(hoped, runs, meets)}
        asked = [i for i in shown if doubtful[i]]
        if not asked:
            break
        for i in asked:
            one = request(i)
            needed[i] = settled(one, memory_result(one)).least_bytes
            doubtful[i] = False
    return replace(c, needed_bytes=needed)


def first_of_clusters(
    c: Candidates, runs: Runs, goal: Goal, meets: NDArray[np.bool_], top: int
) -> list[int]:
    """The best of each of the best ``top`` clusters."""
    best: dict[int, int] = {}
    for i in ranked(c, runs, runs.of(goal.objective, c), meets):
        best.setdefault(int(c.cluster[i]), i)
        if len(best) == top:
            break
    return list(best.values())


def front_of(c: Candidates, runs: Runs, meets: NDArray[np.bool_]) -> list[int]:
    """What nothing beats in both time and cost (or GPUs, without prices), fastest first."""
    index = np.flatnonzero(meets)
    cost = runs.cost_usd[index]
    other = cost if np.isfinite(cost).all() else c.n_gpus[index]
    time = runs.time_s[index]
    kept = np.flatnonzero(front(time, -other, index, least=-np.inf))
    found: list[int] = index[kept[np.argsort(time[kept])]].tolist()
    return found
