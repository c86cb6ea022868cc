"""Collectives reduced in switches: NVLink SHARP within a node, SHARP in the network."""

from __future__ import annotations

import numpy as np

from simcore.base.arrays import TINY, Array
from simcore.physics.collectives import (
    ALGORITHMS,
    Algorithm,
    Collective,
    Flags,
    Group,
    Option,
    nccl,
    option,
)


def switch_bus(group: Group) -> Array:
    """Bus bandwidth of an all-reduce in the NVLink switch: rate · (heads - 1) / heads.

    Heads are parts of the vector that the switch reduces in parallel; one is always in transit. On
    H100 and B200 the result is 1.05 and 0.93 of the NVLink rate with 8 ranks (measured: 445 to 480
    and 838 GB/s); measured on B200 with 6 and 7 ranks: 778 and 811 GB/s.
    """
    heads = np.minimum(group.a_node, nccl.NVLS_HEADS)
    return group.nvls_bw_bytes_per_s * (heads - 1.0) / heads


def _has_switch(group: Group) -> Flags:
    """Whether NCCL reduces in the NVLink switch, by configuration [C]."""
    lib = group.library
    if lib.generation < 0 or not lib.nvls_bw_bytes_per_s:
        return np.zeros(1, dtype=bool)
    return group.a_node >= nccl.NVLS_LEAST_RANKS[lib.generation]


def _simple(
    group: Group, name: str, fixed_s: Array | float, s_per_byte: Array, ok: Flags
) -> list[Option]:
    """The only option of an algorithm with protocol Simple alone; none if it is never offered."""
    if not ok.any():
        return []
    fixed = np.broadcast_to(fixed_s, np.shape(group.n_ranks))
    return [option(group, name, "Simple", fixed, s_per_byte, ramp=group.chunk_ramp, ok=ok)]


def _all_reduce_s_per_byte(group: Group, bus: Array) -> Array:
    """Seconds per byte of an all-reduce at a bus bandwidth."""
    n = group.n_ranks
    return 2.0 * (n - 1.0) / n / np.maximum(bus, TINY)


class Nvls(Algorithm):
    """All-reduce in the NVLink switch: every rank sends its vector once and receives the sum.

    25 us + 2(n-1)/n·S/switch. With SHARP in the network it spans nodes, for 18 us more and at most
    at twice the NICs' rate, since these carry each vector once per direction. NCCL runs
    reduce-scatter and all-gather this way at half the all-reduce's rate or less, so that rings are
    faster.
    """

    def options(self, op: Collective, group: Group) -> list[Option]:
        if op not in ("all_reduce", "reduce_scatter", "all_gather"):
            return []
        several = group.n_nodes > 1
        ok = _has_switch(group) & (~several | group.library.sharp)
        if not ok.any():
            return []
        bus = np.minimum(switch_bus(group), np.where(several, 2.0 * group.across("ring"), np.inf))
        fixed = nccl.NVLS_S + np.where(several, nccl.net_s(group, nccl.NVLS_NET_S), 0.0)
        if op == "all_reduce":
            return _simple(group, "NVLS", fixed, _all_reduce_s_per_byte(group, bus), ok)
        share = (group.a_node - 1.0) / group.a_node / 2.0
        per_byte = 1.0 / np.maximum(bus * share, TINY)
        return _simple(group, "NVLS", fixed, per_byte, ok & ~several)


class NvlsTree(Algorithm):
    """All-reduce in each node's NVLink switch, and by a tree between nodes.

    25 us + 2 log2(nodes)·20.9 us + 2(n-1)/n·S / min(switch, NICs). Two nodes exchange their sums
    directly, with half the traffic of a ring.
    """

    def options(self, op: Collective, group: Group) -> list[Option]:
        nodes = group.n_nodes
        if op != "all_reduce":
            return []
        ok = _has_switch(group) & (nodes > 1)
        if not ok.any():
            return []
        fixed = nccl.NVLS_S + 2.0 * nccl.depth(nodes) * nccl.net_s(group, nccl.NVLS_TREE_NET_S)
        between = np.where(nodes <= 2, 2.0 * group.across("ring"), group.across("tree"))
        bus = np.minimum(switch_bus(group), between)
        return _simple(group, "NVLSTree", fixed, _all_reduce_s_per_byte(group, bus), ok)


class CollNet(Algorithm):
    """All-reduce whose sums within nodes are reduced in the network's switches (SHARP).

    Within a node the sum runs along a chain, or over all ranks at once (``direct``). NCCL takes
    half the bus bandwidth as algorithm bandwidth.
    """

    def __init__(self, *, direct: bool) -> None:
        self.direct = direct

    def options(self, op: Collective, group: Group) -> list[Option]:
        lib = group.library
        if op != "all_reduce" or lib.generation < 0 or not lib.sharp:
            return []
        ok = group.n_nodes > 1
        others = group.a_node - 1.0
        share = 1.0
        if self.direct:
            ok = ok & (group.a_node <= nccl.NVLS_HEADS) & lib.nvlink
            hops = np.minimum(1.0, others) * nccl.COLLNET_DIRECT_US + nccl.COLLNET_TURN_US * others
            fixed = 2.0 * hops * nccl.US + nccl.net_s(group, nccl.COLLNET_DIRECT_NET_S)
            share = nccl.COLLNET_DIRECT_SHARE if lib.generation >= 2 else 1.0
        else:
            hops = others * nccl.COLLNET_CHAIN_US
            fixed = 2.0 * hops * nccl.US + nccl.net_s(group, nccl.COLLNET_CHAIN_NET_S)
        name = "CollNetDirect" if self.direct else "CollNetChain"
        per_byte = 2.0 / (share * group.bus_bw_bytes_per_s)
        return _simple(group, name, fixed, per_byte, ok)


ALGORITHMS.register("NVLS")(Nvls())
ALGORITHMS.register("NVLSTree")(NvlsTree())
ALGORITHMS.register("CollNetDirect")(CollNet(direct=True))
ALGORITHMS.register("CollNetChain")(CollNet(direct=False))
