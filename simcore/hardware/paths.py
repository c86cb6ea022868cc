"""What a group of ranks gets from the wires: bottleneck rate and hop latency, in closed form.

The closed forms are what the topology graph (``topology.py``) yields for the regular nodes of
``hardware_db``; a test holds the two against each other. Rates are of one direction, before
the efficiency of the collective itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from simcore.hardware.cluster import ClusterSpec, NodeGroup, link_named
from simcore.hardware.spec import GpuSpec, LinkSpec, NodeSpec

#: How neighbouring devices of a node exchange data; the efficiency of a collective depends on it.
#: ``pcie_host``: staged through host memory, each device on a root of its own; ``_shared``:
#: several on a root; ``_far``: and over the sockets of an AMD host.
Route = Literal[
    "nvlink", "pcie_p2p", "pcie_host", "pcie_host_shared", "pcie_host_far", "network_rdma",
    "network_tcp", "none",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Path:
    """A ring's bottleneck: bytes/s of one direction, seconds a hop, what kind, which link."""

    bw_bytes_per_s: float
    hop_s: float
    route: Route
    bottleneck: str


LOOPBACK = Path(float("inf"), 0.0, "none", "none")


def port_share(gpu: GpuSpec, slot: LinkSpec) -> float:
    """Share of the slot's rate that the card's own generation and lanes allow."""
    if gpu.pcie is None:
        return 1.0
    generation = int(match[1]) if (match := re.match(r"pcie(\d)", slot.name)) else None
    older = max(0, generation - gpu.pcie.generation) if generation else 0
    return min(1.0, gpu.pcie.lanes / PCIE_FULL_LANES) * 0.5**older  # a generation doubles


def mesh_share(node: NodeSpec, n_gpus: int) -> float:
    """Share of a device's NVLinks that rings over the node's first ``n_gpus`` devices use."""
    if node.fabric != "nvlink-mesh" or not node.mesh_rings:
        return 1.0
    return node.mesh_rings[n_gpus - 2] / node.mesh_rings[-1]


@lru_cache(maxsize=4096)
def intra_node_path(group: NodeGroup) -> Path:
    """Bottleneck of a ring over the group's devices within one node."""
    gpu, node, n = group.gpu, group.node, group.gpus_per_node
    if n == 1:
        return LOOPBACK
    bridged = node.fabric == "nvlink-pairs" and n == 2
    if gpu.nvlink_bw is not None and (node.fabric in ("nvswitch", "nvlink-mesh") or bridged):
        bw = gpu.nvlink_bw.value * mesh_share(node, n)
        return Path(bw, NVLINK_HOP_S, "nvlink", f"NVLink of {gpu.name}")
    port = link_named(node.pcie_link)
    port_bw = port.bw.value * port.payload_frac.value * port_share(gpu, port)
    if gpu.peer_to_peer == "none":
        # Through host memory: every hop of every device crosses its root port both ways.
        sharing = min(n, node.gpus_per_pcie_root)
        through_root = port_bw / sharing
        dram = node.cpu.dram_bw_per_socket.value * node.cpu.sockets
        through_dram = dram / (2.0 * n)  # each hop writes host memory once and reads it once
        route: Route = "pcie_host" if sharing == 1 else "pcie_host_shared"
        a_socket = min(node.max_gpus // node.cpu.sockets, CARDS_A_SOCKET)
        across = n > a_socket and (node.socket_link or "").startswith("xgmi")
        if across and sharing > 1:
            route = "pcie_host_far"
        if through_dram < through_root:
            return Path(through_dram, port.latency.value * 2, route, "host memory")
        return Path(through_root, port.latency.value * 2, route, f"{port.full_name} to host memory")
    bw, name = port_bw, port.full_name
    if node.socket_link is not None and n > node.max_gpus // node.cpu.sockets:
        socket = link_named(node.socket_link)
        socket_bw = socket.bw.value * socket.payload_frac.value
        if socket_bw < bw:  # a ring crosses between sockets once in each direction
            bw, name = socket_bw, socket.full_name
    return Path(bw, port.latency.value, "pcie_p2p", name)


@lru_cache(maxsize=4096)
def node_network_path(group: NodeGroup) -> Path:
    """What one node of the group can send to other nodes, all its NICs together."""
    if not group.node.nics:
        return LOOPBACK
    bw, hop, route, names = 0.0, 0.0, "network_rdma", []
    for nic in group.node.nics:
        link = link_named(nic.link)
        bw += nic.count * link.bw.value * link.payload_frac.value
        hop = max(hop, link.latency.value)
        route = "network_tcp" if link.kind == "ethernet" else route
        names.append(f"{nic.count} x {link.full_name}")
    return Path(bw, hop, route, " + ".join(names))  # type: ignore[arg-type]


@lru_cache(maxsize=4096)
def cluster_paths(cluster: ClusterSpec) -> tuple[Path, Path]:
    """(within nodes, between nodes): the slowest of every group, as a global ring meets it."""
    intra = min((intra_node_path(g) for g in cluster.groups), key=lambda p: p.bw_bytes_per_s)
    if cluster.n_nodes == 1:
        return intra, LOOPBACK
    inter = min((node_network_path(g) for g in cluster.groups), key=lambda p: p.bw_bytes_per_s)
    return intra, inter


#: One hop of a ring over NVLink by the protocol of least latency (LL); NCCL 2.30's tuning table,
#: src/graph/tuning.cc. Larger messages go by others: a collective's ramp has what they lose.
NVLINK_HOP_S = 0.6e-6
PCIE_FULL_LANES = 16
#: Cards of x16 that a socket of a two-socket server takes: 8 slots over both is the usual box.
CARDS_A_SOCKET = 4
