"""All-to-all as pairwise exchanges: every rank keeps 1/n of its vector and sends the rest."""

from __future__ import annotations

import numpy as np

from simcore.physics.collectives.base import ALGORITHMS, Array, Collective, Group, ramped_s


def exchange_s(n_bytes: Array, group: Group, across_frac: Array | float = 1.0) -> Array:
    """Seconds of an exchange of ``n_bytes`` a rank over ``group``: [T, 1] on [C].

        base + hop + max(inside, across · across_frac)

    ``across_frac``: copies that really cross between nodes over those of a plain all-to-all.
    """
    n, nodes = group.n_ranks, group.n_nodes
    active = n > 1
    a_node = np.maximum(n / nodes, 1.0)
    inside = (a_node - 1.0) / n / group.intra_bw_bytes_per_s
    across = np.where(nodes > 1, (n - a_node) / n * a_node / group.inter_bw_bytes_per_s, 0.0)
    hop = np.where(nodes > 1, group.inter_hop_s, group.intra_hop_s)
    fixed = np.where(active, group.base_s + hop, 0.0)
    per_byte = np.where(active, np.maximum(inside, across * across_frac), 0.0)
    return ramped_s(fixed, n_bytes * per_byte, group.ramp)


def once_a_node_frac(nodes: Array, copies: float) -> Array:
    """Share of traffic between nodes that stays when a token goes to each node once.

        (1 - (1 - 1/m)^k) · m / k   over m nodes with k copies to ranks drawn at random

    The numerator counts distinct nodes: DeepEP sends a token to a node once and spreads it over
    NVLink there (DeepSeek-V3 2024, section 3.2.2).
    """
    m = np.maximum(nodes, 1.0)
    share: Array = m * (1.0 - (1.0 - 1.0 / m) ** copies) / copies
    return share


class Pairwise:
    """Every rank sends to every other, all at once: all-to-all only.

    NCCL runs it as grouped send and receive. Traffic that stays in the node and traffic that leaves
    it flow side by side; the slower part counts. Of a rank's (n-1)/n·S, the share to other nodes
    crosses the node's NICs together with that of its neighbours.
    """

    def time_s(self, op: Collective, n_bytes: Array, group: Group) -> Array:
        """max(inside, across) + one hop; all-to-all only."""
        if op != "all_to_all":
            return np.where(group.n_ranks > 1, np.inf, 0.0) + 0.0 * n_bytes
        return exchange_s(n_bytes, group)


ALGORITHMS.register("pairwise")(Pairwise())
