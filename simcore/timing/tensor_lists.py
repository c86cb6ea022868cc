"""Collectives on lists of tensors, one for each rank, as in DeepSpeed's ZeRO-3 of 2021.

# C configs, M messages, n ranks
"""

from __future__ import annotations

import numpy as np

from simcore.base.arrays import NDArray
from simcore.physics.collectives import Collective
from simcore.strategy.programs.mechanisms import TensorLists
from simcore.timing.rates import ClassRates

Array = NDArray[np.float64]


def tensor_lists_s(
    lists: TensorLists, op: Collective, sizes_bytes: Array, wire_s: Array, n_ranks: Array,
    issue_s: Array, classes: tuple[ClassRates, ...],
) -> Array:  # fmt: skip
    """Seconds of messages of ``sizes_bytes`` [M, 1] that take ``wire_s`` [M, C] in NCCL: [M, C].

    Before each message the host waits for the device, then creates a view for each rank. The output
    of a gather is cleared before it and copied piece by piece after it; these copies are issued
    during it. The input of a reduction is divided by the number of ranks and copied piece by piece
    before it.
    """
    rate = min(c.update_bytes_per_s for c in classes)
    start = max(c.kernels.start_s for c in classes)
    copied = n_ranks * start + 2 * sizes_bytes / rate
    issued = n_ranks * lists.copy * issue_s
    if op == "reduce_scatter":
        before = n_ranks * lists.reduced_view * issue_s + 2 * sizes_bytes / rate
        found = before + np.maximum(issued, copied) + wire_s
    else:
        before = n_ranks * lists.gathered_view * issue_s + sizes_bytes / rate
        found = before + np.maximum(issued, wire_s) + copied
    return np.where(n_ranks > 1, lists.call * issue_s + found, wire_s)
