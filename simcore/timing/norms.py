"""Batch norms whose statistics all ranks average (synchronised batch normalisation)."""

from __future__ import annotations

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.units import FP32_BYTES
from simcore.physics.collectives import collective_time_s
from simcore.timing.points import Points
from simcore.workload.graph import Workload

Array = NDArray[np.float64]

#: Statistics are exchanged in fp32 whatever the precision.


def sync_norms_s(workload: Workload, points: Points) -> Array:
    """Seconds of a step that devices wait for each other's batch-norm statistics [C].

        2 · norms · accumulation · (wait + all-reduce of mean and variance)

    Each norm has one exchange in forward and one in backward. The next layer needs the result, so
    that nothing hides them.
    """
    group = points.group(points.n_ranks, points.n_nodes)
    size = np.array([[FP32_BYTES * workload.buffers_numel / workload.sync_norms]])
    each = collective_time_s("all_reduce", size, group)[0] + workload.sync_norm_wait_s
    found: Array = 2.0 * workload.sync_norms * points.grad_accum * each
    return found
