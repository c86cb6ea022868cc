"""Collectives on a torus of chips (TPU): rings along all axes at the same time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from simcore.base.arrays import Array
from simcore.hardware.torus import exchange_load, links_in_use, longest_way
from simcore.physics.collectives import ALGORITHMS, Algorithm, Collective, Group, Option, option


class Torus(Algorithm):
    """The vector is cut into a part for each axis and direction; each part goes along its ring.

        all-gather, reduce-scatter   (n-1)/n · S / (links · bandwidth of a link)
        all-reduce                   twice that
        all-to-all                   S · load of the busiest link / bandwidth of a link

    "How to Scale Your Model", Sharded Matrices (jax-ml.github.io/scaling-book/sharding): the time
    of an all-gather over several axes is V over the bandwidth of all of them. Two links an axis
    that is a ring, one on a line. A group of n chips takes a block of the shape that a slice of n
    chips has. Between slices, each over its NICs: the same bytes once for a slice.
    """

    in_nccl_algo = False
    #: Passes of the vector over the links, and of the latency.
    _PASSES: Final = {"all_reduce": 2.0, "reduce_scatter": 1.0, "all_gather": 1.0}

    def options(self, op: Collective, group: Group) -> list[Option]:
        if not group.library.torus:
            return []
        inside, nodes = group.a_node, group.n_nodes
        passes = self._PASSES.get(op, 1.0)
        whole = op not in self._PASSES
        part = np.where(inside > 1.0, 1.0, 0.0) if whole else (inside - 1.0) / inside
        between = 1.0 if whole else (nodes - 1.0) / nodes
        hops = of_blocks(group, longest_way)
        fixed = group.base_s + passes * hops * group.intra_hop_s
        per_byte: Array = passes * part / (link_bytes_per_s(group) * busy_links(group))
        across = passes * between
        if op == "all_to_all":
            per_byte, across = exchange_s_per_byte(group), (nodes - 1.0) / nodes * inside
        several = nodes > 1.0
        per_byte = per_byte + np.where(several, across / group.inter_bw_bytes_per_s, 0.0)
        fixed = fixed + np.where(several, passes * (nodes - 1.0) * group.inter_hop_s, 0.0)
        return [option(group, "Torus", "", fixed, per_byte)]


def of_blocks(group: Group, figure: Callable[[int, int, int], float]) -> Array:
    """A figure of the block of chips that a group has in each slice [C]."""
    axes, ring_multiple = group.library.torus
    chips, where = np.unique(np.round(group.a_node).astype(int), return_inverse=True)
    found: Array = np.array([float(figure(int(n), axes, ring_multiple)) for n in chips])
    return found[where].reshape(group.a_node.shape)


def link_bytes_per_s(group: Group) -> Array:
    """Bandwidth of one link, each way [C]: that of a chip over the links on all axes."""
    return group.intra_bw_bytes_per_s / (2.0 * group.library.torus[0])


def busy_links(group: Group) -> Array:
    """Links of a chip that its collectives use at the same time, at least 1 [C]."""
    return np.maximum(of_blocks(group, links_in_use), 1.0)


def exchange_s_per_byte(group: Group) -> Array:
    """Seconds per byte of a rank's vector of an all-to-all within a slice [C]."""
    per_byte: Array = of_blocks(group, exchange_load) / link_bytes_per_s(group)
    return np.where(group.a_node > 1.0, per_byte, 0.0)


ALGORITHMS.register("Torus")(Torus())
