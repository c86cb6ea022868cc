"""Double binary tree all-reduce: latency grows with the logarithm of the number of nodes."""

from __future__ import annotations

import numpy as np

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


class Tree(Algorithm):
    """Two binary trees, each with half of the vector: chains within a node, trees between nodes.

    Sanders, Speck & Träff 2009, as NCCL runs it. Every rank's vector goes up and down once, so that
    algorithm bandwidth is half the bus bandwidth; NCCL assumes 0.92 of a ring's bus bandwidth:
    2·S/(0.92 bw) + 2[(ranks per node - 1)·intra + log2(nodes)·inter].
    """

    bus_frac = nccl.TREE_SHARE

    def options(self, op: Collective, group: Group) -> list[Option]:
        if op != "all_reduce":
            return []
        if group.library.generation < 0:
            return [self._plain(group)]
        return self._nccl(group)

    def _plain(self, group: Group) -> Option:
        chain = group.a_node - 1.0
        inside, across = chain * group.intra_hop_s, nccl.depth(group.n_nodes) * group.inter_hop_s
        fixed = group.base_s + 2.0 * (inside + across)
        per_byte = 2.0 / (self.bus_frac * group.bus("tree"))
        return option(group, "Tree", "", fixed, per_byte, ramp=group.ramp)

    def _nccl(self, group: Group) -> list[Option]:
        chain, levels = group.a_node - 1.0, nccl.depth(group.n_nodes)
        bus = self.bus_frac * group.bus("tree")
        bus = np.minimum(bus, nccl.channel_limit(group, nccl.TREE_CHANNEL))
        rows = nccl.protocols("all_reduce", group)
        hop = nccl.hop_s(group, nccl.TREE_NVLINK_S[rows], nccl.TREE_PCIE_S[rows])
        net = nccl.nets_s(group, nccl.TREE_NET_S[rows], rows)
        fixed = nccl.TREE_BASE_S[rows] + 2.0 * (chain * hop + levels * net)
        names = nccl.PROTOCOLS[rows]
        rate = np.repeat(bus[None, :], len(names), axis=0)
        rate[0] = np.minimum(bus * nccl.TREE_LL_SHARE, nccl.ll_limit(group))
        if "LL128" in names:
            shares = nccl.TREE_LL128_SHARE, nccl.TREE_LL128_NODE_SHARE
            rate[1] = bus * np.where(group.n_nodes > 1, *shares)
            rate[1] = np.minimum(rate[1], nccl.tree_ll128_limit(group))
        return options_by_protocol(group, "Tree", names, fixed, 2.0 / rate, ramp=group.chunk_ramp)


ALGORITHMS.register("Tree")(Tree())
