"""The batch that would let a run meet its deadline, where nobody said one.

A batch that a plan assumes is no limit of the caller's: GPUs beyond its samples have nothing to do,
and a deadline that only they would meet is not impossible, but another batch's.
"""

from __future__ import annotations

from dataclasses import replace

from simcore.planning.constraints import Relaxation
from simcore.planning.goal import Goal
from simcore.planning.planner import make_plan
from simcore.planning.space import Space

#: How many times the assumed batch. Sixteen times is 64 M tokens, as DeepSeek-V3 was trained with
#: (arXiv 2412.19437, 4.2: 15,360 sequences of 4,096).
_TIMES = (2, 4, 8, 16)


def larger_batch(space: Space, goal: Goal, *, jobs: int = 1) -> Relaxation | None:
    """The first of the larger batches that meets all limits on the most GPUs of each type.

    Asked where the batches of ``space`` are assumed and meet none. None without a deadline: fewer
    samples a step then do as well.
    """
    if goal.deadline_s is None or not space.global_batches:
        return None
    most: dict[str, int] = {}
    for cluster in space.clusters:
        name = "+".join(g.gpu.name for g in cluster.groups)
        most[name] = max(most.get(name, 0), cluster.n_gpus)
    largest = tuple(c for c in space.clusters
                    if c.n_gpus == most["+".join(g.gpu.name for g in c.groups)])  # fmt: skip
    for times in _TIMES:
        batch = min(space.global_batches) * times
        if make_plan(
            replace(space, clusters=largest, global_batches=(batch,)), goal, top=1, jobs=jobs
        ).feasible:
            change = ("global-batch", "count", float(max(space.global_batches)), float(batch))
            return Relaxation(changes=(change,))
    return None
