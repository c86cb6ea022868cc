"""All-to-all as pairwise exchanges: every rank keeps 1/n of its vector and sends the rest."""

from __future__ import annotations

import numpy as np

from simcore.physics.collectives.base import ALGORITHMS, Array, Collective, Group


class Pairwise:
    """NCCL runs all-to-all as grouped send and receive, all at once.

    Traffic that stays in the node and traffic that leaves it flow side by side; the slower part
    counts. Of a rank's (n-1)/n·S, the share to other nodes crosses the node's NICs together with
    that of its neighbours.
    """

    def time_s(self, op: Collective, n_bytes: Array, group: Group) -> Array:
        """max(inside, across) + one hop; all-to-all only."""
        n, nodes = group.n_ranks, group.n_nodes
        active = n > 1
        if op != "all_to_all":
            return np.where(active, np.inf, 0.0) + 0.0 * n_bytes
        a_node = np.maximum(n / nodes, 1.0)
        inside = (a_node - 1.0) / n / group.intra_bw_bytes_per_s
        across = np.where(nodes > 1, (n - a_node) / n * a_node / group.inter_bw_bytes_per_s, 0.0)
        hop = np.where(nodes > 1, group.inter_hop_s, group.intra_hop_s)
        fixed = np.where(active, group.base_s + hop, 0.0)
        return fixed + n_bytes * np.where(active, np.maximum(inside, across), 0.0)


ALGORITHMS.register("pairwise")(Pairwise())
