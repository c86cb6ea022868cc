"""Double binary tree all-reduce: latency grows with the logarithm of the nodes."""

from __future__ import annotations

import numpy as np

from simcore.physics.collectives.base import ALGORITHMS, Array, Collective, Group, ramped_s


class Tree:
    """Two binary trees, each with half of the vector; chains in a node, trees between nodes.

    Sanders, Speck & Träff 2009, as NCCL runs it. Every rank's vector goes up and down once, so
    algorithm bandwidth is half the bus bandwidth; NCCL grants a tree 0.92 of the ring's channels
    (2.30, tuning.cc).
    """

    bus_frac = 0.92

    def time_s(self, op: Collective, n_bytes: Array, group: Group) -> Array:
        """2·S/(0.92 bw) + 2[(ranks a node - 1)·intra + log2(nodes)·inter]; all-reduce only."""
        n, nodes = group.n_ranks, group.n_nodes
        active = n > 1
        if op != "all_reduce":
            return np.where(active, np.inf, 0.0) + 0.0 * n_bytes
        depth = np.floor(np.log2(np.maximum(nodes, 1.0)))
        latency = 2.0 * (
            np.maximum(n / nodes - 1.0, 0.0) * group.intra_hop_s + depth * group.inter_hop_s
        )
        fixed = np.where(active, group.base_s + latency, 0.0)
        per_byte = np.where(active, 2.0 / (self.bus_frac * group.bus_bw_bytes_per_s), 0.0)
        return ramped_s(fixed, n_bytes * per_byte, group.ramp)


ALGORITHMS.register("tree")(Tree())
