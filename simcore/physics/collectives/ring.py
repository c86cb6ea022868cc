"""Ring collectives: bandwidth-optimal, latency grows with the ranks."""

from __future__ import annotations

from typing import Final

import numpy as np

from simcore.physics.collectives import nccl
from simcore.physics.collectives.base import (
    ALGORITHMS,
    Algorithm,
    Array,
    Collective,
    Group,
    Option,
    option,
)
from simcore.physics.collectives.nccl import Protocol


class Ring(Algorithm):
    """Patarasuk & Yuan 2009; hops and protocols as NCCL's tuning has them.

    2(n-1)/n·S/bw + 2(n-1) hops for all-reduce, half of both for reduce-scatter and all-gather;
    broadcast and reduce stream the vector once round the ring: S/bw + (n-1) hops.
    """

    #: How often the vector crosses the slowest link, in units of (n-1)/n.
    _PASSES: Final = {"all_reduce": 2.0, "reduce_scatter": 1.0, "all_gather": 1.0}

    def options(self, op: Collective, group: Group) -> list[Option]:
        if op in ("one_to_all", "all_to_one", "all_to_all"):
            return []
        n = group.n_ranks
        passes = self._PASSES.get(op)
        traffic = passes * (n - 1) / n if passes else np.ones_like(n)
        rounds = passes or 1.0
        if group.library.generation < 0:
            return [self._plain(group, traffic, rounds)]
        return [self._nccl(group, traffic, rounds, p) for p in nccl.protocols(group)]

    def _plain(self, group: Group, traffic: Array, rounds: float) -> Option:
        """One protocol: base and hops as the links have them."""
        n, nodes = group.n_ranks, group.n_nodes
        across = np.where(nodes > 1, rounds * nodes, 0.0)
        inside = np.maximum(rounds * (n - 1) - across, 0.0)
        fixed = group.base_s + inside * group.intra_hop_s + across * group.inter_hop_s
        per_byte = traffic / group.bus_bw_bytes_per_s
        return option(group, "Ring", "", fixed, per_byte, ramp=group.ramp)

    def _nccl(self, group: Group, traffic: Array, rounds: float, protocol: Protocol) -> Option:
        n, nodes = group.n_ranks, group.n_nodes
        across = np.where(nodes > 1, rounds * (nodes - 1), 0.0)
        inside = rounds * (n - 1) - across
        post = nccl.POST_AMD_S if group.library.amd_host else nccl.POST_S
        hop = nccl.hop_s(group, nccl.RING_NVLINK_S[protocol], nccl.RING_PCIE_S[protocol])
        hop = np.maximum(hop, np.where(nodes > 1, post * nccl.POSTS[protocol], 0.0))
        alone = n <= nodes  # nothing within the node to hide the network behind
        net = np.where(alone, nccl.TREE_NET_S[protocol], nccl.RING_NET_S[protocol])
        net = net + nccl.net_s(group, 0.0, protocol)
        fixed = nccl.RING_BASE_S[protocol] + inside * hop + across * net
        rate = group.bus_bw_bytes_per_s * nccl.RING_SHARE[protocol]
        if protocol == "LL":
            rate = np.minimum(rate, nccl.ll_limit(group))
        return option(group, "Ring", protocol, fixed, traffic / rate, ramp=group.chunk_ramp)


ALGORITHMS.register("Ring")(Ring())
