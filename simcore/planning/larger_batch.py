"""Finds a larger global batch with which a run would meet its deadline, where none is given.

The global batch limits how many GPUs can work at once. Where the plan assumed the batch, a deadline
that this batch cannot meet may be possible with a larger one, and the plan says so.
"""

from __future__ import annotations

from dataclasses import replace

from simcore.planning.constraints import Relaxation
from simcore.planning.goal import Goal
from simcore.planning.planner import make_plan
from simcore.planning.space import Space

#: Multiples of the assumed batch to try. Sixteen times is 64 M tokens, the batch of DeepSeek-V3
#: (arXiv 2412.19437, 4.2: 15,360 sequences of 4,096).
_TIMES = (2, 4, 8, 16)


def larger_batch(space: Space, goal: Goal, *, jobs: int = 1) -> Relaxation | None:
    """The smallest of the larger batches with which the largest cluster of some type meets all
    limits; None if there is none.

    Call it where the batches of ``space`` are assumed and no option meets the limits. The result is
    None without a deadline, since a larger batch only saves time.
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
