"""What a collective algorithm is, and the choice among them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Literal, Protocol

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.registry import Registry

Array = NDArray[np.float64]
Collective = Literal[
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "one_to_all",
    "all_to_one", "all_to_all",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks of a communicator, per configuration  # C configs, all fields [C] or scalar.

    ``intra_bw``: bus bandwidth that a ring reaches within a node, bytes/s of one direction;
    ``inter_bw``: the same between nodes, all NICs of a node together. ``base_s`` is the cost of
    launching one collective. Rates already hold their efficiency. ``ramp``: how much of the
    geometric mean of latency and transfer is lost where neither rules (``ramped_s``).
    """

    n_ranks: Array
    n_nodes: Array
    intra_bw_bytes_per_s: Array
    inter_bw_bytes_per_s: Array
    intra_hop_s: Array
    inter_hop_s: Array
    base_s: Array
    ramp: Array | float = 0.0

    @property
    def bus_bw_bytes_per_s(self) -> Array:
        """The slowest link that a ring over all ranks crosses."""
        within = np.where(self.n_ranks > self.n_nodes, self.intra_bw_bytes_per_s, np.inf)
        between = np.where(self.n_nodes > 1, self.inter_bw_bytes_per_s, np.inf)
        return np.minimum(within, between)


def ramped_s(fixed_s: Array, transfer_s: Array, ramp: Array | float) -> Array:
    """Latency, transfer, and what filling the pipeline costs in between: L + x + ramp·sqrt(L·x).

    Short messages travel by protocols of low latency and half the rate or less, long ones in
    chunks that must be many before all links work; measured curves bend as the square root does.
    """
    result: Array = fixed_s + transfer_s + ramp * np.sqrt(fixed_s * transfer_s)
    return result


class Algorithm(Protocol):
    """Time of a collective; infinite where the algorithm does not offer it."""

    def time_s(self, op: Collective, n_bytes: Array, group: Group) -> Array:
        """Seconds for messages [T, 1] on groups [C]: [T, C]. Zero for one rank."""


ALGORITHMS: Registry[Algorithm] = Registry("collective algorithm")


def collective_time_s(op: Collective, n_bytes: Array, group: Group) -> Array:
    """Time of the cheapest algorithm for each message and configuration [s]."""
    return reduce(np.minimum, (ALGORITHMS[a].time_s(op, n_bytes, group) for a in ALGORITHMS))
