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

from simcore.base.units import GIGA
from simcore.hardware.cluster import ClusterSpec, NodeGroup, link_named
from simcore.hardware.spec import GpuSpec, LinkSpec, NodeSpec

#: How neighbouring devices of a node exchange data; the efficiency of a collective depends on it.
#: ``pcie_host``: staged through host memory, each device on a root of its own; ``_shared``:
#: several on a root; ``_far``: and over the sockets of an AMD host; ``_gen3``, ``_gen5``: hosts of
#: PCIe 3 and before, of PCIe 5.
Route = Literal[
    "nvlink", "pcie_p2p", "pcie_host", "pcie_host_shared", "pcie_host_far", "pcie_host_gen3",
    "pcie_host_gen5", "network_rdma", "network_tcp", "none",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Path:
    """A ring's bottleneck: bytes/s of one direction, seconds a hop, what kind, which link."""

    bw_bytes_per_s: float
    hop_s: float
    route: Route
    bottleneck: str


LOOPBACK = Path(float("inf"), 0.0, "none", "none")


def pcie_generation(slot: LinkSpec) -> int:
    """Generation of a PCIe link, 0 of others and of bare rates."""
    match = re.match(r"pcie(\d)", slot.name)
    return int(match[1]) if match else 0


def port_share(gpu: GpuSpec, slot: LinkSpec) -> float:
    """Share of the slot's rate that the card's own generation and lanes allow."""
    if gpu.pcie is None:
        return 1.0
    older = max(0, pcie_generation(slot) - gpu.pcie.generation)
    return min(1.0, gpu.pcie.lanes / PCIE_FULL_LANES) * 0.5**older  # a generation doubles


def mesh_share(node: NodeSpec, n_gpus: int) -> float:
    """Share of a device's NVLinks that rings over the node's first ``n_gpus`` devices use."""
    if node.fabric != "nvlink-mesh" or not node.mesh_rings:
        return 1.0
    return node.mesh_rings[n_gpus - 2] / node.mesh_rings[-1]


def over_nvlink(group: NodeGroup) -> bool:
    """Whether NVLink joins all devices of the group that are in use, and may be used."""
    gpu, node = group.gpu, group.node
    joined = node.fabric in ("nvswitch", "nvlink-mesh") or (
        node.fabric == "nvlink-pairs" and group.gpus_per_node == 2
    )
    return gpu.nvlink_bw is not None and node.peer_to_peer and joined


@lru_cache(maxsize=4096)
def intra_node_path(group: NodeGroup) -> Path:
    """Bottleneck of a ring over the group's devices within one node."""
    gpu, node, n = group.gpu, group.node, group.gpus_per_node
    if n == 1:
        return LOOPBACK
    if gpu.nvlink_bw is not None and over_nvlink(group):
        bw = gpu.nvlink_bw.value * mesh_share(node, n)
        return Path(bw, NVLINK_HOP_S, "nvlink", f"NVLink of {gpu.name}")
    port = link_named(node.pcie_link)
    port_bw = port.bw.value * port.payload_frac.value * port_share(gpu, port)
    if gpu.peer_to_peer == "none" or not node.peer_to_peer:
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
        generation = pcie_generation(port)
        if generation >= FAST_HOST_GENERATION:
            route = "pcie_host_gen5"
        elif 0 < generation < SLOW_PORT_GENERATION:
            route, through_root = "pcie_host_gen3", min(through_root, STAGING_BYTES_PER_S)
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
#: What staging itself takes of a port, whose own rate counts below that: NCCL's copies through host
#: memory reach 5.16 GB/s on PCIe 4, 0.20 of its payload rate (four L40S, all-reduce of 512 MiB in
#: ``collectives.yaml``; fewer were not timed), of a wire that is used as well as peer to peer
#: (0.78). Before that generation a port shared by two carries less.
STAGING_BYTES_PER_S = 5.16 * GIGA / 0.78
SLOW_PORT_GENERATION = 4
#: From this generation of PCIe on, hosts pass on what devices leave in their memory at nearly the
#: port's rate; processors before do not reach a quarter of it (``runtime.yaml``, both measured).
FAST_HOST_GENERATION = 5
#: Cards of x16 that a socket of a two-socket server takes: 8 slots over both is the usual box.
CARDS_A_SOCKET = 4
