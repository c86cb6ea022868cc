"""Decides whether candidates that barely fit in memory do, by the same rule as ``predict``.

Near the limit, ``predict`` replays the allocator (``memory.fits``), which takes a thousand times as
long as the formula. So only candidates that the plan would show are replayed; the other doubtful
ones are assumed to fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from simcore.base.arrays import NDArray
from simcore.memory.fits import covered, in_doubt, settled
from simcore.memory.job import memory_result
from simcore.planning.candidates import Candidates, Runs, runs_of
from simcore.planning.constraints import constraints_of, passing, ranked
from simcore.planning.goal import Goal
from simcore.planning.ranking import front
from simcore.request.resolved import Request

Array = NDArray[np.float64]


def with_settled(
    c: Candidates, goal: Goal, samples: float | None, request: Callable[[int], Request], top: int
) -> Candidates:
    """The candidates, with the memory of a replay for those that the plan shows.

    These are the best of the first ``top`` clusters and those on the Pareto front. All other
    doubtful candidates are worse than these, so that they are not shown whether they fit or not.
    ``request``: makes the job of a candidate.
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
        to_replay = [i for i in shown if doubtful[i]]
        if not to_replay:
            break
        for i in to_replay:
            one = request(i)
            needed[i] = settled(one, memory_result(one)).least_bytes
            doubtful[i] = False
    return replace(c, needed_bytes=needed)


def first_of_clusters(
    c: Candidates, runs: Runs, goal: Goal, meets: NDArray[np.bool_], top: int
) -> list[int]:
    """Index of the best candidate of each of the best ``top`` clusters."""
    best: dict[int, int] = {}
    for i in ranked(c, runs, runs.of(goal.objective, c), meets):
        best.setdefault(int(c.cluster[i]), i)
        if len(best) == top:
            break
    return list(best.values())


def front_of(c: Candidates, runs: Runs, meets: NDArray[np.bool_]) -> list[int]:
    """Indices of the Pareto front of time and cost (of time and GPUs without prices), fastest
    first.
    """
    index = np.flatnonzero(meets)
    cost = runs.cost_usd[index]
    other = cost if np.isfinite(cost).all() else c.n_gpus[index]
    time = runs.time_s[index]
    kept = np.flatnonzero(front(time, -other, index, least=-np.inf))
    found: list[int] = index[kept[np.argsort(time[kept])]].tolist()
    return found
