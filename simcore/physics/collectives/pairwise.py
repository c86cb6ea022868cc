"""All-to-all as pairwise exchanges: every rank keeps 1/n of its vector and sends the rest."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np

from simcore.physics.collectives.base import (
    ALGORITHMS,
    Algorithm,
    Array,
    Collective,
    Group,
    Option,
    option,
)


class Pairwise(Algorithm):
    """Every rank sends to every other, all at once: all-to-all only.

    NCCL runs it as grouped send and receive: base + hop + the slowest of

    - what stays in the node,
    - what leaves it over the node's NICs, together with that of its neighbours,
    - what leaves the switch that joins neighbouring nodes, over its uplinks.

    Where switches join NICs of equal index (rails), NCCL first hands what is for another rail to
    the neighbour on that rail over NVLink (PXN, NCCL 2.12); without NVLink it crosses the spine.
    """

    def options(self, op: Collective, group: Group) -> list[Option]:
        return [exchange(group)] if op == "all_to_all" else []


def exchange(
    group: Group, across_frac: Array | float = 1.0, inside_frac: Array | float = 1.0
) -> Option:
    """An all-to-all; ``across_frac``: copies that really cross between nodes over a plain one's,
    ``inside_frac``: copies that reach other ranks of the node.
    """
    n, nodes, a_node = group.n_ranks, group.n_nodes, group.a_node
    others = (n - a_node) / n * across_frac  # of a rank's vector, what is for other nodes
    lib = group.library
    inside, up = (a_node - 1.0) / n * inside_frac, np.zeros_like(n)
    if lib.oversubscription > 1.0:
        leaf = np.minimum(group.leaf_nodes, nodes)
        up = (nodes - leaf) / np.maximum(nodes - 1.0, 1.0)  # to nodes on other switches
    if lib.rails:
        other_rails = others * (a_node - 1.0) / a_node
        if lib.nvlink:
            inside = inside + other_rails
        else:
            up = up + (1.0 - up) * (a_node - 1.0) / a_node
    across = np.where(nodes > 1, others * a_node / group.inter_bw_bytes_per_s, 0.0)
    slowest = np.maximum(inside / group.intra_bw_bytes_per_s, across)
    slowest = np.maximum(slowest, across * up * lib.oversubscription)
    hop = np.where(nodes > 1, group.inter_hop_s, group.intra_hop_s)
    return option(group, "pairwise", "", group.base_s + hop, slowest, ramp=group.ramp)


def exchange_s(
    n_bytes: Array,
    group: Group,
    across_frac: Array | float = 1.0,
    inside_frac: Array | float = 1.0,
) -> Array:
    """Seconds of an exchange of ``n_bytes`` a rank over ``group``: [T, 1] on [C]."""
    return exchange(group, across_frac, inside_frac).time_s(n_bytes)


def once_each_frac(places: Array, copies: float, groups: int = 1, chosen: int = 1) -> Array:
    """Share of traffic that stays when a token goes to each of m places once.

        (1 - (1 - 1/m)^k) · m / k   over m nodes or ranks with k copies to places drawn at random

    The numerator counts distinct places: DeepEP sends a token to a node once, and over NVLink there
    to a rank once, however many of its experts the token takes (DeepSeek-V3 2024, section 3.2.2;
    DeepEP's get_dispatch_layout: num_tokens_per_rdma_rank, is_token_in_rank). A token that takes
    its experts from ``chosen`` (M) of G ``groups`` alone, which lie over the places in their order
    (ibid., 2.1.2), reaches one with

        M/G · (1 - (1 - G/(M m))^k)             G <= m: a group covers m/G places
        1 - mean of (1 - sum of f_g/M)^k        G > m: a place has shares f_g of some groups; the
                                                sum is of those chosen, the mean over all choices
                                                and places
    """
    m = np.maximum(places, 1.0)
    if chosen >= groups:
        share: Array = m * (1.0 - (1.0 - 1.0 / m) ** copies) / copies
        return share
    spread = np.minimum(groups / (chosen * m), 1.0)
    reached = np.array(chosen / groups * (1.0 - (1.0 - spread) ** copies))
    for n in np.unique(m[m < groups]):
        reached[m == n] = _reached_frac(round(float(n)), copies, groups, chosen)
    found: Array = m * reached / copies
    return found


@lru_cache(maxsize=256)
def _reached_frac(places: int, copies: float, groups: int, chosen: int) -> float:
    """How likely one of ``copies`` falls into the groups, or parts of groups, of a place."""
    total = 0.0
    for place in range(places):
        # in parts of a group over the number of places, whole numbers
        first, last = place * groups, (place + 1) * groups
        parts = [
            (min((g + 1) * places, last) - max(g * places, first)) / places
            for g in range(first // places, -(-last // places))
        ]
        others = groups - len(parts)
        missed = sum(
            comb(others, chosen - n) * (1.0 - sum(taken) / chosen) ** copies
            for n in range(min(len(parts), chosen) + 1)
            for taken in combinations(parts, n)
            if chosen - n <= others
        )
        total += 1.0 - missed / comb(groups, chosen)
    return total / places


ALGORITHMS.register("pairwise")(Pairwise())
