"""NCCL's cost tables, from its own tuning (2.30, src/graph/tuning.cc), and its rings and trees.

What later releases changed is in ``CHANGED``.

NCCL chooses the lowest latency + bytes / bandwidth over algorithms and protocols. The tables here
are its latencies, its bandwidth limits and the conditions under which it enables a protocol; the
bandwidths are those of the cluster's links. Left out: NCCL's correction of trees by message size,
which the ramp of all protocols replaces, and its limits per channel within a node, which are above
all links in the database.

Generations: 0 Volta and older, 1 Ampere and Ada, 2 Hopper, 3 Blackwell.
# C configs, all arrays [C]; tables by protocol are columns [protocols, 1] in the order of PROTOCOLS
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from simcore.base.arrays import Array
from simcore.base.units import GIGA, MICRO
from simcore.physics.collectives import (
    ALGORITHMS,
    Algorithm,
    Collective,
    Group,
    Option,
    option,
    options_by_protocol,
)

Protocol = Literal["LL", "LL128", "Simple"]
PROTOCOLS: Final[tuple[Protocol, ...]] = ("LL", "LL128", "Simple")
SIMPLE: Final = PROTOCOLS.index("Simple")
US: Final = MICRO


def _column(ll: float, ll128: float, simple: float) -> Array:
    return np.array([[ll], [ll128], [simple]])


RING_BASE_S: Final = _column(6.6 * US, 14.0 * US, 8.4 * US)
TREE_BASE_S: Final = _column(6.8 * US, 14.0 * US, 8.4 * US)
PAT_BASE_S: Final = 8.0 * US
#: Seconds per hop over NVLink, over PCIe and between nodes.
RING_NVLINK_S: Final = _column(0.6 * US, 1.9 * US, 3.4 * US)
RING_PCIE_S: Final = _column(1.0 * US, 2.5 * US, 5.7 * US)
RING_NET_S: Final = _column(2.7 * US, 4.0 * US, 14.0 * US)
TREE_NVLINK_S: Final = _column(0.6 * US, 1.25 * US, 4.0 * US)
TREE_PCIE_S: Final = _column(1.0 * US, 1.9 * US, 4.0 * US)
TREE_NET_S: Final = _column(5.0 * US, 8.5 * US, 14.0 * US)
NVLS_S: Final = 25.0 * US
NVLS_NET_S: Final = 18.0 * US
NVLS_TREE_NET_S: Final = 20.9 * US
#: CollNet [us]: a hop within the node (direct), the wait per further rank (direct), a hop (chain).
COLLNET_DIRECT_US, COLLNET_TURN_US, COLLNET_CHAIN_US = 3.7, 0.4, 2.8
COLLNET_DIRECT_NET_S, COLLNET_CHAIN_NET_S = 31.0 * US, 30.0 * US
#: Share of the bus bandwidth that direct CollNet reaches from Hopper on.
COLLNET_DIRECT_SHARE: Final = 0.85
#: Seconds to post to the NIC, which a ring does at every step: on hosts with Intel or Arm
#: processors, and with AMD. POSTS: posts per step, three for Simple.
POST_S, POST_AMD_S = 1.0 * US, 2.0 * US
POSTS: Final = _column(1.0, 1.0, 3.0)
#: How many times the NIC's own latency counts in a hop.
NIC_LATENCIES: Final = _column(1.0, 1.0, 2.0)
#: Share of the bus bandwidth that carries data: LL's 8-byte words carry 4 bytes, LL128's 128-byte
#: lines 120; in a tree within one node 7 of 9 threads of LL128 move data.
RING_SHARE: Final = _column(0.5, 0.92, 1.0)
#: Exposed part of the first and last step of a ring's loop, in steps of S/n bytes. The first step
#: only sends and the last only receives: device/all_reduce.h and all_gather.h run 2n - 1 and n
#: steps, where 2n - 2 and n - 1 pieces cross a link. Fitted to the curves that also give NVLink's
#: rate; without it two ranks come out 16 to 42 % too fast.
RING_OPEN_STEP: Final = 0.5
TREE_SHARE: Final = 0.92
TREE_LL_SHARE: Final = 1.0 / 3.8
TREE_LL128_SHARE, TREE_LL128_NODE_SHARE = 120.0 / 128.0, 7.0 / 9.0
PAT_SHARE: Final = 0.75
#: Largest bytes/s of LL: on one node, by generation; by host (Intel and others, AMD), on two nodes
#: and on more.
_LL_NODE: Final = (39.0 * GIGA, 87.7 * GIGA, 141.0 * GIGA, 282.0 * GIGA)
_LL_NET: Final = ((39.0 * GIGA, 20.4 * GIGA), (22.5 * GIGA, 19.0 * GIGA))
#: Largest bandwidth per channel [GB/s] between (two, more) nodes, by generation.
TREE_CHANNEL: Final = ((18.5, 10.0), (23.6, 17.8), (41.4, 36.0), (42.8, 24.0))
TREE_LL128_CHANNEL: Final = ((20.0, 20.0), (20.0, 20.0), (36.7, 29.0), (31.67, 20.0))
RING_LL128_CHANNEL: Final = ((20.0, 20.0), (20.0, 20.0), (36.7, 36.7), (40.0, 40.0))
#: Since NCCL 2.32 two limits of Blackwell are others: of LL on one node, and of Tree with LL128 on
#: two. Read in the tables of the libraries that NVIDIA ships (wheels nvidia-nccl-cu13 2.31.2, whose
#: tables are those of 2.30.7's source, and 2.32.3, whose source is not public in November 2026).
CHANGED: Final = (2, 32)
_LL_NODE_SINCE: Final = (*_LL_NODE[:3], 282.4 * GIGA)
_TREE_LL128_SINCE: Final = (*TREE_LL128_CHANNEL[:3], (36.7, 20.0))
#: Least ranks per node with which NCCL reduces in the NVLink switch, by generation; from its
#: choices on H200 and B200.
NVLS_LEAST_RANKS: Final = (np.inf, np.inf, 5.0, 6.0)
#: Heads: parts of the vector that the switch reduces in parallel, one of which is in transit.
NVLS_HEADS: Final = 8.0


def protocols(op: Collective, group: Group) -> slice:
    """The slice of ``PROTOCOLS`` that NCCL enables for a collective.

    LL128 only over NVLink, with one rank per node, or where the user allows it by name.
    """
    safe = group.library.nvlink or bool((group.n_ranks <= group.n_nodes).all())
    named = "LL128" in group.library.allowed.of(op).protocols  # a name overrides NCCL's condition
    return slice(None) if safe or named else slice(None, None, SIMPLE)  # else LL and Simple


def hop_s(group: Group, nvlink_s: Array, pcie_s: Array) -> Array:
    """Seconds per hop within a node; over PCIe plus the path's latency beyond that of one port."""
    if group.library.nvlink:
        return nvlink_s
    return np.maximum(group.intra_hop_s - RING_PCIE_S[SIMPLE], 0.0) + pcie_s


def net_s(group: Group, seconds: float) -> float:
    """Seconds per hop between nodes with Simple: the NIC's latency counts twice, as it flushes."""
    return seconds + 2.0 * group.library.nic_latency_s


def nets_s(group: Group, seconds: Array, rows: slice) -> Array:
    """``net_s`` for the protocols in ``rows``: [protocols, C]."""
    return seconds + NIC_LATENCIES[rows] * group.library.nic_latency_s


def ll_limit(group: Group) -> Array:
    """Largest bytes/s of protocol LL."""
    two, more = _LL_NET[group.library.amd_host]
    between = np.where(group.n_nodes > 2, more, two)
    node = _LL_NODE_SINCE if group.library.release >= CHANGED else _LL_NODE
    return np.where(group.n_nodes > 1, between, node[group.library.generation])


def tree_ll128_limit(group: Group) -> Array | float:
    """Largest bytes/s of a tree with LL128 between nodes."""
    since = group.library.release >= CHANGED
    return channel_limit(group, _TREE_LL128_SINCE if since else TREE_LL128_CHANNEL)


def channel_limit(group: Group, table: tuple[tuple[float, float], ...]) -> Array | float:
    """Largest bytes/s of all channels of a group between nodes, by the limits per channel."""
    each = group.library.channel_bw_bytes_per_s
    if not each:
        return np.inf
    two, more = table[group.library.generation]
    share = np.where(group.n_nodes > 2, more, two) * (GIGA / each)
    return np.where(group.n_nodes > 1, group.inter_bw_bytes_per_s * share, np.inf)


def depth(nodes: Array) -> Array:
    """Levels of a tree over nodes: floor(log2 nodes)."""
    return np.floor(np.log2(np.maximum(nodes, 1.0)))


class Tree(Algorithm):
    """Two binary trees, each with half of the vector: chains within a node, trees between nodes.

    Sanders, Speck & Träff 2009, as NCCL runs it. Every rank's vector goes up and down once, so that
    algorithm bandwidth is half the bus bandwidth; NCCL assumes 0.92 of a ring's bus bandwidth:
    2·S/(0.92 bw) + 2[(ranks per node - 1)·intra + log2(nodes)·inter].
    """

    bus_frac = TREE_SHARE

    def options(self, op: Collective, group: Group) -> list[Option]:
        if op != "all_reduce":
            return []
        if group.library.generation < 0:
            return [self._plain(group)]
        return self._nccl(group)

    def _plain(self, group: Group) -> Option:
        chain = group.a_node - 1.0
        inside, across = chain * group.intra_hop_s, depth(group.n_nodes) * group.inter_hop_s
        fixed = group.base_s + 2.0 * (inside + across)
        per_byte = 2.0 / (self.bus_frac * group.bus("tree"))
        return option(group, "Tree", "", fixed, per_byte, ramp=group.ramp)

    def _nccl(self, group: Group) -> list[Option]:
        chain, levels = group.a_node - 1.0, depth(group.n_nodes)
        bus = self.bus_frac * group.bus("tree")
        bus = np.minimum(bus, channel_limit(group, TREE_CHANNEL))
        rows = protocols("all_reduce", group)
        hop = hop_s(group, TREE_NVLINK_S[rows], TREE_PCIE_S[rows])
        net = nets_s(group, TREE_NET_S[rows], rows)
        fixed = TREE_BASE_S[rows] + 2.0 * (chain * hop + levels * net)
        names = PROTOCOLS[rows]
        rate = np.repeat(bus[None, :], len(names), axis=0)
        rate[0] = np.minimum(bus * TREE_LL_SHARE, ll_limit(group))
        if "LL128" in names:
            shares = TREE_LL128_SHARE, TREE_LL128_NODE_SHARE
            rate[1] = bus * np.where(group.n_nodes > 1, *shares)
            rate[1] = np.minimum(rate[1], tree_ll128_limit(group))
        return options_by_protocol(group, "Tree", names, fixed, 2.0 / rate, ramp=group.chunk_ramp)


ALGORITHMS.register("Tree")(Tree())


class Ring(Algorithm):
    """Every rank passes pieces to the next: 2(n-1)/n·S/bw and 2(n-1) hops for all-reduce.

    Patarasuk & Yuan 2009; latencies and protocols from NCCL's tuning. Over NVLink within a node the
    exposed part of the loop's first and last step is added (``RING_OPEN_STEP``).
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
            traffic = traffic + np.where(group.n_nodes > 1, 0.0, RING_OPEN_STEP / n)
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
        post = POST_AMD_S if group.library.amd_host else POST_S
        rows = protocols(op, group)
        hop = hop_s(group, RING_NVLINK_S[rows], RING_PCIE_S[rows])
        hop = np.where(several, np.maximum(hop, post * POSTS[rows]), hop)
        net = np.where(alone, TREE_NET_S[rows], RING_NET_S[rows])
        net = nets_s(group, net, rows)
        fixed = RING_BASE_S[rows] + inside * hop + across * net
        rate = group.bus_bw_bytes_per_s * RING_SHARE[rows]
        names = PROTOCOLS[rows]
        rate[0] = np.minimum(rate[0], ll_limit(group))
        if "LL128" in names:
            rate[1] = np.minimum(rate[1], channel_limit(group, RING_LL128_CHANNEL))
        return options_by_protocol(
            group, "Ring", names, fixed, traffic / rate, ramp=group.chunk_ramp
        )


ALGORITHMS.register("Ring")(Ring())
