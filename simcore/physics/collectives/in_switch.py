"""Collectives that switches reduce: NVLink SHARP within a node, SHARP in the network."""

from __future__ import annotations

import numpy as np

from simcore.base.arrays import TINY
from simcore.physics.collectives import nccl
from simcore.physics.collectives.base import (
    ALGORITHMS,
    Algorithm,
    Array,
    Collective,
    Flags,
    Group,
    Option,
    option,
)
from simcore.physics.collectives.tree import LEAF_CROSSINGS


def switch_bus(group: Group) -> Array:
    """Bus bandwidth of an all-reduce in the NVLink switch: heads work side by side, one fills.

    On H100 and B200 this is 1.05 and 0.93 of the NVLink rate with 8 ranks, where 445 to 480 and
    838 GB/s are measured; on B200 with 6 and 7 ranks 778 and 811.
    """
    heads = np.minimum(group.a_node, nccl.NVLS_HEADS)
    found: Array = group.nvls_bw_bytes_per_s * (heads - 1.0) / heads
    return found


def _has_switch(group: Group) -> Flags:
    lib = group.library
    if lib.generation < 0 or not lib.nvls_bw_bytes_per_s:
        return np.zeros(1, dtype=bool)
    found: Flags = group.a_node >= nccl.NVLS_LEAST_RANKS[lib.generation]
    return found


def _simple(
    group: Group, name: str, fixed_s: Array | float, s_per_byte: Array, ok: Flags
) -> list[Option]:
    """These algorithms have but one protocol."""
    if not ok.any():
        return []
    fixed = np.broadcast_to(fixed_s, np.shape(group.n_ranks))
    return [option(group, name, "Simple", fixed, s_per_byte, ramp=group.chunk_ramp, ok=ok)]


def _once(group: Group, bus: Array) -> Array:
    """Seconds a byte of an all-reduce at a bus bandwidth."""
    n = group.n_ranks
    found: Array = 2.0 * (n - 1.0) / n / np.maximum(bus, TINY)
    return found


class Nvls(Algorithm):
    """All-reduce in the NVLink switch: every rank sends its vector once and receives the sum.

    25 us + 2(n-1)/n·S/switch; with SHARP in the network too, 18 us more and no faster than twice
    the NICs, which then carry each vector once a direction. NCCL reduce-scatters and all-gathers
    so at the most at half the all-reduce's rate, and rings are quicker.
    """

    def options(self, op: Collective, group: Group) -> list[Option]:
        if op not in ("all_reduce", "reduce_scatter", "all_gather"):
            return []
        several = group.n_nodes > 1
        ok = _has_switch(group) & (~several | group.library.sharp)
        if not ok.any():
            return []
        bus = np.minimum(switch_bus(group), np.where(several, 2.0 * group.across(1.0), np.inf))
        fixed = nccl.NVLS_S + np.where(several, nccl.net_s(group, nccl.NVLS_NET_S), 0.0)
        if op == "all_reduce":
            return _simple(group, "NVLS", fixed, _once(group, bus), ok)
        share = (group.a_node - 1.0) / group.a_node / 2.0
        per_byte = 1.0 / np.maximum(bus * share, TINY)
        return _simple(group, "NVLS", fixed, per_byte, ok & ~several)


class NvlsTree(Algorithm):
    """Reduction in each node's switch, a tree between nodes.

    25 us + 2 log2(nodes)·20.9 us + 2(n-1)/n·S / min(switch, NICs); two nodes exchange their sums
    directly, which is half the traffic of a ring.
    """

    def options(self, op: Collective, group: Group) -> list[Option]:
        nodes = group.n_nodes
        if op != "all_reduce":
            return []
        ok = _has_switch(group) & (nodes > 1)
        if not ok.any():
            return []
        fixed = nccl.NVLS_S + 2.0 * nccl.depth(nodes) * nccl.net_s(group, nccl.NVLS_TREE_NET_S)
        between = np.where(nodes <= 2, 2.0 * group.across(1.0), group.across(LEAF_CROSSINGS))
        bus = np.minimum(switch_bus(group), between)
        return _simple(group, "NVLSTree", fixed, _once(group, bus), ok)


class CollNet(Algorithm):
    """The network's switches reduce what chains, or all ranks at once, have summed in a node.

    NCCL counts half the bus bandwidth as algorithm bandwidth.
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
