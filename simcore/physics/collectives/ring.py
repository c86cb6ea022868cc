"""Ring collectives: optimal bandwidth, latency linear in the number of ranks."""

from __future__ import annotations

from typing import Final

import numpy as np

from simcore.base.arrays import Array
from simcore.physics.collectives import (
    ALGORITHMS,
    Algorithm,
    Collective,
    Group,
    Option,
    nccl,
    option,
    options_by_protocol,
)


class Ring(Algorithm):
    """Every rank passes pieces to the next: 2(n-1)/n·S/bw and 2(n-1) hops for all-reduce.

    Patarasuk & Yuan 2009; latencies and protocols from NCCL's tuning. Over NVLink within a node the
    exposed part of the loop's first and last step is added (``nccl.RING_OPEN_STEP``).
    Reduce-scatter and all-gather take half of both terms; broadcast and reduce stream the vector
    once around the ring: S/bw + (n-1) hops.
    """

    #: Traffic over the slowest link, in units of (n-1)/n vectors.
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
        if passes and group.library.nvlink:
            traffic = traffic + np.where(group.n_nodes > 1, 0.0, nccl.RING_OPEN_STEP / n)
        return self._nccl(op, group, traffic, rounds)

    def _plain(self, group: Group, traffic: Array, rounds: float) -> Option:
        """The option of a library other than NCCL: one protocol, latencies of the links."""
        n, nodes = group.n_ranks, group.n_nodes
        across = np.where(nodes > 1, rounds * nodes, 0.0)
        inside = np.maximum(rounds * (n - 1) - across, 0.0)
        fixed = group.base_s + inside * group.intra_hop_s + across * group.inter_hop_s
        per_byte = traffic / group.bus_bw_bytes_per_s
        return option(group, "Ring", "", fixed, per_byte, ramp=group.ramp)

    def _nccl(self, op: Collective, group: Group, traffic: Array, rounds: float) -> list[Option]:
        n, nodes = group.n_ranks, group.n_nodes
        several = nodes > 1
        across = np.where(several, rounds * (nodes - 1), 0.0)
        inside = rounds * (n - 1) - across
        alone = n <= nodes  # one rank per node
        post = nccl.POST_AMD_S if group.library.amd_host else nccl.POST_S
        rows = nccl.protocols(op, group)
        hop = nccl.hop_s(group, nccl.RING_NVLINK_S[rows], nccl.RING_PCIE_S[rows])
        hop = np.where(several, np.maximum(hop, post * nccl.POSTS[rows]), hop)
        net = np.where(alone, nccl.TREE_NET_S[rows], nccl.RING_NET_S[rows])
        net = nccl.nets_s(group, net, rows)
        fixed = nccl.RING_BASE_S[rows] + inside * hop + across * net
        rate = group.bus_bw_bytes_per_s * nccl.RING_SHARE[rows]
        names = nccl.PROTOCOLS[rows]
        rate[0] = np.minimum(rate[0], nccl.ll_limit(group))
        if "LL128" in names:
            rate[1] = np.minimum(rate[1], nccl.channel_limit(group, nccl.RING_LL128_CHANNEL))
        return options_by_protocol(
            group, "Ring", names, fixed, traffic / rate, ramp=group.chunk_ramp
        )


ALGORITHMS.register("Ring")(Ring())
