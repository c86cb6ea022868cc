"""What NCCL's algorithms and protocols cost by its own account: NCCL 2.30, src/graph/tuning.cc.

NCCL takes the cheapest of latency + bytes / bandwidth over algorithms and protocols. The tables
here are its latencies, its limits and the rules by which it enables a way; bandwidths are those of
the links at hand. Left out: its correction of trees by message size, for which the ramp of all
protocols stands, and limits a channel within a node, which do not bind on links in the database.

Generations: 0 Volta and before, 1 Ampere and Ada, 2 Hopper, 3 Blackwell.
# C configs, all arrays [C]; tables by protocol are columns [protocols, 1] in the order of PROTOCOLS
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from simcore.base.units import GIGA, MICRO
from simcore.physics.collectives.base import Array, Collective, Group

Protocol = Literal["LL", "LL128", "Simple"]
PROTOCOLS: Final[tuple[Protocol, ...]] = ("LL", "LL128", "Simple")
SIMPLE: Final = PROTOCOLS.index("Simple")
US: Final = MICRO


def _column(ll: float, ll128: float, simple: float) -> Array:
    return np.array([[ll], [ll128], [simple]])


RING_BASE_S: Final = _column(6.6 * US, 14.0 * US, 8.4 * US)
TREE_BASE_S: Final = _column(6.8 * US, 14.0 * US, 8.4 * US)
PAT_BASE_S: Final = 8.0 * US
#: Seconds of a hop over NVLink, over PCIe and between nodes.
RING_NVLINK_S: Final = _column(0.6 * US, 1.9 * US, 3.4 * US)
RING_PCIE_S: Final = _column(1.0 * US, 2.5 * US, 5.7 * US)
RING_NET_S: Final = _column(2.7 * US, 4.0 * US, 14.0 * US)
TREE_NVLINK_S: Final = _column(0.6 * US, 1.25 * US, 4.0 * US)
TREE_PCIE_S: Final = _column(1.0 * US, 1.9 * US, 4.0 * US)
TREE_NET_S: Final = _column(5.0 * US, 8.5 * US, 14.0 * US)
NVLS_S: Final = 25.0 * US
NVLS_NET_S: Final = 18.0 * US
NVLS_TREE_NET_S: Final = 20.9 * US
#: CollNet, in microseconds: a hop in the node; direct, what each further rank waits for its turn.
COLLNET_DIRECT_US, COLLNET_TURN_US, COLLNET_CHAIN_US = 3.7, 0.4, 2.8
COLLNET_DIRECT_NET_S, COLLNET_CHAIN_NET_S = 31.0 * US, 30.0 * US
#: Share of the bus bandwidth that direct CollNet has on devices from Hopper on.
COLLNET_DIRECT_SHARE: Final = 0.85
#: A ring posts to the NIC at every step, on hosts of Intel and Arm, and of AMD; three for Simple.
POST_S, POST_AMD_S = 1.0 * US, 2.0 * US
POSTS: Final = _column(1.0, 1.0, 3.0)
#: How often the NIC's own latency counts in a hop.
NIC_LATENCIES: Final = _column(1.0, 1.0, 2.0)
#: Share of the bus bandwidth that a protocol's words leave to data: 8-byte words carry 4; 120 of
#: 128 bytes; on one node a tree's LL128 has 7 of 9 threads to move data.
RING_SHARE: Final = _column(0.5, 0.92, 1.0)
#: Of the first and the last step of a ring's loop, of which one only sends and the other only
#: receives, what no other step hides, in steps of S/n bytes: device/all_reduce.h and all_gather.h
#: run 2n - 1 and n of them one after another, where 2n - 2 and n - 1 pieces cross a link. Fitted to
#: the curves that NVLink's rate is from: without it two ranks come out 16 to 42 % too fast.
RING_OPEN_STEP: Final = 0.5
TREE_SHARE: Final = 0.92
TREE_LL_SHARE: Final = 1.0 / 3.8
TREE_LL128_SHARE, TREE_LL128_NODE_SHARE = 120.0 / 128.0, 7.0 / 9.0
PAT_SHARE: Final = 0.75
#: Bytes/s that LL reaches at most on one node, by generation; on two nodes and on more, by host
#: (Intel and others, AMD).
_LL_NODE: Final = (39.0 * GIGA, 87.7 * GIGA, 141.0 * GIGA, 282.0 * GIGA)
_LL_NET: Final = ((39.0 * GIGA, 20.4 * GIGA), (22.5 * GIGA, 19.0 * GIGA))
#: Bytes/s of a channel at most between two nodes and between more, by generation.
TREE_CHANNEL: Final = ((18.5, 10.0), (23.6, 17.8), (41.4, 36.0), (42.8, 24.0))
TREE_LL128_CHANNEL: Final = ((20.0, 20.0), (20.0, 20.0), (36.7, 29.0), (31.67, 20.0))
RING_LL128_CHANNEL: Final = ((20.0, 20.0), (20.0, 20.0), (36.7, 36.7), (40.0, 40.0))
#: Ranks of a node from which on NCCL reduces in the NVLink switch: as it chose on H200 and B200.
NVLS_LEAST_RANKS: Final = (np.inf, np.inf, 5.0, 6.0)
#: Parts that a switch reduces side by side, of which one is always on its way.
NVLS_HEADS: Final = 8.0


def protocols(op: Collective, group: Group) -> slice:
    """Which of ``PROTOCOLS`` NCCL enables: LL128 over NVLink, where a node has but one rank, or if
    named.
    """
    safe = group.library.nvlink or bool((group.n_ranks <= group.n_nodes).all())
    named = "LL128" in group.library.allowed.of(op).protocols  # its own condition is a default's
    return slice(None) if safe or named else slice(None, None, SIMPLE)  # else the first and last


def hop_s(group: Group, nvlink_s: Array, pcie_s: Array) -> Array:
    """A hop within a node; over PCIe with what the path takes beyond one port."""
    if group.library.nvlink:
        return nvlink_s
    more: Array = np.maximum(group.intra_hop_s - RING_PCIE_S[SIMPLE], 0.0) + pcie_s
    return more


def net_s(group: Group, seconds: float, latencies: float = 2.0) -> float:
    """A hop between nodes; a NIC's own latency counts twice where data is flushed (Simple)."""
    return seconds + latencies * group.library.nic_latency_s


def nets_s(group: Group, seconds: Array, rows: slice) -> Array:
    """``net_s`` of several protocols."""
    return seconds + NIC_LATENCIES[rows] * group.library.nic_latency_s


def ll_limit(group: Group) -> Array:
    """Bytes/s that LL reaches at most."""
    two, more = _LL_NET[group.library.amd_host]
    wide = np.where(group.n_nodes > 2, more, two)
    found: Array = np.where(group.n_nodes > 1, wide, _LL_NODE[group.library.generation])
    return found


def channel_limit(group: Group, table: tuple[tuple[float, float], ...]) -> Array | float:
    """Bytes/s that the channels of a group between nodes reach at most, all together."""
    each = group.library.channel_bw_bytes_per_s
    if not each:
        return np.inf
    two, more = table[group.library.generation]
    share = np.where(group.n_nodes > 2, more, two) * (GIGA / each)
    found: Array = np.where(group.n_nodes > 1, group.inter_bw_bytes_per_s * share, np.inf)
    return found


def depth(nodes: Array) -> Array:
    """Levels of a tree over nodes: floor(log2 nodes)."""
    found: Array = np.floor(np.log2(np.maximum(nodes, 1.0)))
    return found
