"""Ring collectives: bandwidth-optimal, latency grows with the ranks."""

from __future__ import annotations

from typing import Final

import numpy as np

from simcore.physics.collectives.base import ALGORITHMS, Array, Collective, Group, ramped_s


class Ring:
    """Every rank passes pieces to the next: 2(n-1)/n·S/bw, and hops that grow with the ranks.

    Patarasuk & Yuan 2009; hop counts as NCCL's tuning has them (2.30, tuning.cc).
    """

    #: How often the vector crosses the slowest link, in units of (n-1)/n.
    _PASSES: Final = {"all_reduce": 2.0, "reduce_scatter": 1.0, "all_gather": 1.0}

    def time_s(self, op: Collective, n_bytes: Array, group: Group) -> Array:
        """2(n-1)/n·S/bw + 2(n-1) hops for all-reduce; half of both for RS and AG.

        Broadcast and reduce stream the vector once round the ring: S/bw + (n-1) hops.
        """
        n, nodes = group.n_ranks, group.n_nodes
        if op in ("one_to_all", "all_to_one", "all_to_all"):
            return np.where(n > 1, np.inf, 0.0) + 0.0 * n_bytes
        passes = self._PASSES.get(op)
        if passes is None:
            traffic, rounds = np.where(n > 1, 1.0, 0.0), np.ones_like(n)
        else:
            traffic, rounds = passes * (n - 1) / n, np.full_like(n, passes)
        inter_hops = np.where(nodes > 1, rounds * nodes, 0.0)
        intra_hops = np.maximum(rounds * (n - 1) - inter_hops, 0.0)
        latency = intra_hops * group.intra_hop_s + inter_hops * group.inter_hop_s
        active = n > 1
        fixed = np.where(active, group.base_s + latency, 0.0)
        per_byte = np.where(active, traffic / group.bus_bw_bytes_per_s, 0.0)
        return ramped_s(fixed, n_bytes * per_byte, group.ramp)


ALGORITHMS.register("ring")(Ring())
