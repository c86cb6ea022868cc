"""All-to-all by pairwise exchanges: every rank keeps 1/n of its vector and sends the rest."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np

from simcore.base.arrays import Array
from simcore.physics.collectives import ALGORITHMS, Algorithm, Collective, Group, Option, option


class Pairwise(Algorithm):
    """Every rank sends to every other at the same time: only all-to-all.

    NCCL runs it as grouped send and receive: base + hop + the slowest transfer of

    - traffic within the node,
    - traffic of all ranks of the node through the node's NICs,
    - traffic that leaves the leaf switch over its uplinks.

    Where switches join NICs of equal index (rails), NCCL first passes traffic for another rail over
    NVLink to the GPU on that rail (PXN, NCCL 2.12). Without NVLink it crosses the spine.
    """

    in_nccl_algo = False

    def options(self, op: Collective, group: Group) -> list[Option]:
        return [exchange(group)] if op == "all_to_all" else []


def exchange(
    group: Group, across_frac: Array | float = 1.0, inside_frac: Array | float = 1.0
) -> Option:
    """The option of an all-to-all over ``group``.

    ``across_frac``: traffic between nodes over that of a plain all-to-all; ``inside_frac``: the
    same for traffic to other ranks of the node.
    """
    n, nodes, a_node = group.n_ranks, group.n_nodes, group.a_node
    others = (n - a_node) / n * across_frac  # share of a rank's vector for other nodes
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
    across = others * a_node / group.inter_bw_bytes_per_s  # none on one node
    inside_s = inside / group.intra_bw_bytes_per_s
    if lib.torus:
        from simcore.physics.collectives.torus import exchange_s_per_byte  # few jobs need it

        inside_s = exchange_s_per_byte(group) * a_node / n * inside_frac
    share = group.fabric_share("all-to-all")
    climbing = across * up * lib.oversubscription if share is None else across / share
    slowest = np.maximum(np.maximum(inside_s, across), climbing)
    hop = np.where(nodes > 1, group.inter_hop_s, group.intra_hop_s)
    return option(group, "pairwise", "", group.base_s + hop, slowest, ramp=group.ramp)


def exchange_s(
    n_bytes: Array,
    group: Group,
    across_frac: Array | float = 1.0,
    inside_frac: Array | float = 1.0,
) -> Array:
    """Seconds of an all-to-all of ``n_bytes`` [T, 1] per rank over ``group`` [C]: [T, C]."""
    return exchange(group, across_frac, inside_frac).time_s(n_bytes)


def once_each_frac(places: Array, copies: float, groups: int = 1, chosen: int = 1) -> Array:
    """Traffic if a token is sent once to each place that needs it, over that of one send per copy.

        (1 - (1 - 1/m)^k) · m / k   for m ``places`` and k ``copies`` to random places

    A place is a node or a rank; the numerator is the expected number of distinct places. DeepEP
    sends a token to a node once, and over NVLink to a rank once, however many of the token's
    experts are there (DeepSeek-V3 2024, section 3.2.2; DeepEP's get_dispatch_layout:
    num_tokens_per_rdma_rank, is_token_in_rank). If the experts of a token lie in ``chosen`` (M) of
    G ``groups`` only, which are laid over the places in order (ibid., 2.1.2), the token reaches a
    given place with probability

        M/G · (1 - (1 - G/(M m))^k)             G <= m: a group covers m/G places
        1 - mean of (1 - sum of f_g/M)^k        G > m: a place has shares f_g of some groups; the
                                                sum runs over the chosen groups, the mean over
                                                all choices and places
    """
    m = np.maximum(places, 1.0)
    if chosen >= groups:
        return m * (1.0 - (1.0 - 1.0 / m) ** copies) / copies
    spread = np.minimum(groups / (chosen * m), 1.0)
    reached = np.array(chosen / groups * (1.0 - (1.0 - spread) ** copies))
    for n in {*m[m < groups].tolist()}:  # np.unique would import masked arrays
        reached[m == n] = _reached_frac(round(n), copies, groups, chosen)
    return m * reached / copies


@lru_cache(maxsize=256)
def _reached_frac(places: int, copies: float, groups: int, chosen: int) -> float:
    """Mean probability that at least one of ``copies`` goes to a given place, for G > m."""
    total = 0.0
    for place in range(places):
        # bounds in units of a group divided by the number of places, so that they are integers
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
