"""One device exchanges with every other in turn over its own port, as DataParallel does."""

from __future__ import annotations

import numpy as np

from simcore.physics.collectives.base import ALGORITHMS, Array, Collective, Group


class Star:
    """(n-1)·(S/bw + hop): linear in the devices; one-to-all and all-to-one only."""

    def time_s(self, op: Collective, n_bytes: Array, group: Group) -> Array:
        """Seconds; infinite for the collectives that rings and trees serve."""
        others = np.maximum(group.n_ranks - 1.0, 0.0)
        if op not in ("one_to_all", "all_to_one"):
            return np.where(others > 0, np.inf, 0.0) + 0.0 * n_bytes
        latency = group.base_s + group.intra_hop_s
        per_byte = np.where(others > 0, 1.0 / group.bus_bw_bytes_per_s, 0.0)
        return others * (latency + n_bytes * per_byte)


ALGORITHMS.register("star")(Star())
