"""ZeRO with whole tensors owned by ranks: how much each owns, and the cost of the broadcasts.

# C configs, n ranks that share the optimizer state
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from heapq import heapify, heapreplace

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.same import Same
from simcore.physics.collectives import Group, collective_time_s
from simcore.workload.graph import Workload

Array = NDArray[np.float64]


def owned_numel(workload: Workload, n_ranks: int) -> Counter[int]:
    """Number of ranks by the elements that they own; ranks without a tensor are left out.

    The largest tensor is assigned first, each to the rank that owns least.
    """
    return _owned(Same(workload.outline), n_ranks)


@lru_cache(maxsize=256)
def _owned(workload: Same[Workload], n_ranks: int) -> Counter[int]:
    numels = [q.numel for b, n in workload.it.repeats for _ in range(n) for q in b.params]
    loads = [0] * n_ranks
    heapify(loads)
    for numel in sorted(numels, reverse=True):
        heapreplace(loads, loads[0] + numel)
    return Counter(load for load in loads if load)


def broadcasts_s(workload: Workload, width_bytes: float, group: Group) -> Array:
    """Seconds in which the owners broadcast what they updated to all of ``group``, one by one [C].

    A communicator runs one collective at a time, so the broadcasts add up: as many bytes as an
    all-gather, and a ring's latency for each owner.
    """
    found: Array = np.zeros(group.n_ranks.shape)
    for n in np.unique(group.n_ranks):
        owned = owned_numel(workload, int(n))
        if n <= 1 or not owned:
            continue
        sizes = np.array([[width_bytes * numel] for numel in owned])
        each = collective_time_s("broadcast", sizes, group)
        found = np.where(group.n_ranks == n, np.array(list(owned.values()), float) @ each, found)
    return found
