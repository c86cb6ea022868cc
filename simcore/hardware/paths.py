"""Paths of a cluster: bandwidth and latency between ranks, and the facts by which NCCL chooses.

Bandwidth and latency are closed forms for the regular nodes of ``hardware_db``; a test compares
them with a topology graph. Bandwidths are per direction, before the efficiency of the collective.

Where a network was not stated, its bandwidth is uncertain. A preset has the network of its maker's
own systems. Other providers fit fewer adapters into the same node: 8 A100 have eight of 200 Gbit/s
in a DGX and four of 100 Gbit/s at AWS (``p4d-aws``). Without further knowledge the logarithm of
their number is assumed to be uniform from one adapter per node to the preset's n:
ln(bandwidth / preset's bandwidth) is uniform on [-ln n, 0].
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Literal

from simcore.base.database import read_yaml, shipped_root
from simcore.base.record import dataclass
from simcore.base.units import GIGA
from simcore.hardware.calibrations import CalibratedKnob, Knob, MeasuredDevice
from simcore.hardware.cluster import ClusterSpec, NodeGroup, link_named, nic_bytes_per_s
from simcore.hardware.estimates import Estimate, families_of, leaf
from simcore.hardware.spec import GpuSpec, LinkSpec, NodeSpec

#: How neighbouring devices exchange data; the efficiency of a collective depends on it.
#: ``ici``: links of a torus.
#: ``pcie_host``: staged through host memory, one device per PCIe root port; ``_shared``: several
#: devices per root port; ``_far``: across the sockets of an AMD host whose root ports are shared or
#: whose sockets have few memory domains; ``_gen3``: hosts of PCIe 3 and older; ``_gen5``: hosts of
#: PCIe 5 and newer.
Route = Literal[
    "nvlink", "ici", "pcie_p2p", "pcie_host", "pcie_host_shared", "pcie_host_far", "pcie_host_gen3",
    "pcie_host_gen5", "network_rdma", "network_tcp", "none",
]  # fmt: skip


@dataclass(frozen=True)
class Path:
    """Bottleneck of a ring: bytes/s per direction, seconds per hop, kind of route, link name."""

    bw_bytes_per_s: float
    hop_s: float
    route: Route
    bottleneck: str


LOOPBACK = Path(float("inf"), 0.0, "none", "none")


def pcie_generation(slot: LinkSpec) -> int:
    """Generation of a PCIe link; 0 for other links and for bare rates."""
    match = re.match(r"pcie(\d)", slot.name)
    return int(match[1]) if match else 0


def port_share(gpu: GpuSpec, slot: LinkSpec) -> float:
    """Share of the slot's bandwidth that the card's PCIe generation and lanes allow."""
    if gpu.pcie is None:
        return 1.0
    older = max(0, pcie_generation(slot) - gpu.pcie.generation)
    return min(1.0, gpu.pcie.lanes / PCIE_FULL_LANES) * 0.5**older  # a generation doubles the rate


def mesh_share(node: NodeSpec, n_gpus: int) -> float:
    """Share of a device's NVLinks that rings over the node's first ``n_gpus`` devices use.

    1 where the fabric is no mesh.
    """
    if node.fabric != "nvlink-mesh" or not node.mesh_rings:
        return 1.0
    return node.mesh_rings[n_gpus - 2] / node.mesh_rings[-1]


def over_nvlink(group: NodeGroup) -> bool:
    """Whether NVLink joins all devices in use of a node, and peer-to-peer access is allowed."""
    gpu, node = group.gpu, group.node
    joined = node.fabric in ("nvswitch", "nvlink-mesh") or (
        node.fabric == "nvlink-pairs" and group.gpus_per_node == 2
    )
    return gpu.nvlink_bw is not None and node.peer_to_peer and joined


def hidden_crossings(n: int) -> float:
    """Exchanges of a ring over n devices that cross a hidden socket link each way.

    Every buffer lies on the socket of its devices or, as likely, on the other one. Between devices
    of one socket it is then written and read across the link, half a crossing each way on average;
    between sockets either its write or its read crosses. A ring with all buffers in place crosses
    once.
    """
    return n / 2.0


@lru_cache(maxsize=4096)
def intra_node_path(group: NodeGroup) -> Path:
    """Path of a ring over the group's devices within one node; ``LOOPBACK`` for one device."""
    gpu, node, n = group.gpu, group.node, group.gpus_per_node
    if n == 1:
        return LOOPBACK
    if gpu.nvlink_bw is not None and node.torus is not None:
        return Path(gpu.nvlink_bw.value, ICI_HOP_S, "ici", f"links of {gpu.name}'s torus")
    if gpu.nvlink_bw is not None and over_nvlink(group):
        bw = gpu.nvlink_bw.value * mesh_share(node, n)
        return Path(bw, NVLINK_HOP_S, "nvlink", f"NVLink of {gpu.name}")
    port = link_named(node.pcie_link)
    port_bw = port.bw.value * port.payload_frac.value * port_share(gpu, port)
    if gpu.peer_to_peer == "none" or not node.peer_to_peer:
        # Through host memory: each device's data crosses its root port in both directions.
        sharing = min(n, node.gpus_per_pcie_root)
        through_root = port_bw / sharing
        dram = node.cpu.dram_bw_per_socket.value * node.cpu.sockets
        through_dram = dram / (2.0 * n)  # each hop writes host memory once and reads it once
        route: Route = "pcie_host" if sharing == 1 else "pcie_host_shared"
        a_socket = min(node.max_gpus // node.cpu.sockets, CARDS_A_SOCKET)
        across = n > a_socket if node.sockets_visible else node.cpu.sockets > 1
        slow = sharing > 1 or (node.memory_domains or DOMAINS_A_SOCKET) < DOMAINS_A_SOCKET
        if across and slow and (node.socket_link or "").startswith("xgmi"):
            route = "pcie_host_far"
            through_root /= 1.0 if node.sockets_visible else hidden_crossings(n)
        generation = pcie_generation(port)
        slower = min(generation, gpu.pcie.generation if gpu.pcie else generation)
        if generation >= FAST_HOST_GENERATION:
            route = "pcie_host_gen5"
        elif 0 < slower < SLOW_PORT_GENERATION:
            route, through_root = "pcie_host_gen3", min(through_root, STAGING_BYTES_PER_S)
        if through_dram < through_root:
            return Path(through_dram, port.latency.value * 2, route, "host memory")
        return Path(through_root, port.latency.value * 2, route, f"{port.full_name} to host memory")
    bw, name = port_bw, port.full_name
    if node.socket_link is not None and n > node.max_gpus // node.cpu.sockets:
        socket = link_named(node.socket_link)
        socket_bw = socket.bw.value * socket.payload_frac.value
        if socket_bw < bw:  # a ring crosses the socket link once per direction
            bw, name = socket_bw, socket.full_name
    return Path(bw, port.latency.value, "pcie_p2p", name)


@lru_cache(maxsize=4096)
def node_network_path(group: NodeGroup) -> Path:
    """Path from one node of the group to other nodes, over all its NICs together."""
    if not group.node.nics:
        return LOOPBACK
    bw, hop, route, names = 0.0, 0.0, "network_rdma", []
    for nic in group.node.nics:
        link = link_named(nic.link)
        bw += nic_bytes_per_s(nic)
        hop = max(hop, link.latency.value)
        route = "network_tcp" if link.kind == "ethernet" else route
        names.append(f"{nic.count} x {link.full_name}")
    return Path(bw, hop, route, " + ".join(names))  # type: ignore[arg-type]


@lru_cache(maxsize=4096)
def cluster_paths(cluster: ClusterSpec) -> tuple[Path, Path]:
    """(within nodes, between nodes): the slowest path of any group, which bounds a global ring."""
    intra = intra_node_path(_slowest(cluster, intra_node_path))
    if cluster.n_nodes == 1:
        return intra, LOOPBACK
    return intra, node_network_path(_slowest(cluster, node_network_path))


def _slowest(cluster: ClusterSpec, path_of: Callable[[NodeGroup], Path]) -> NodeGroup:
    """The group whose path is slowest: by what its route passes, then by its latency."""
    if len(cluster.groups) == 1:
        return cluster.groups[0]

    def speed(group: NodeGroup) -> tuple[float, float]:
        path = path_of(group)
        return path.bw_bytes_per_s * usual_share(path.route), -path.hop_s

    return min(cluster.groups, key=speed)


@lru_cache(maxsize=32)
def usual_share(route: Route) -> float:
    """Share of the slowest link's rate that collectives reach on a route, without calibration."""
    if route == "none":
        return 1.0
    runtime = read_yaml(shipped_root() / "hardware_db" / "calibrations" / "runtime.yaml")
    return leaf(runtime["route_efficiency"][route]).value


#: Hop latency of a ring over NVLink in the protocol of least latency (LL), from NCCL 2.30's tuning
#: table, src/graph/tuning.cc. Larger messages use other protocols; a collective's ramp includes
#: what they lose.
NVLINK_HOP_S = 0.6e-6
#: Latency of a hop between neighbours on a torus ("How to Scale Your Model", TPUs: about 1 us).
ICI_HOP_S = 1e-6
PCIE_FULL_LANES = 16
#: Largest rate of NCCL's copies through host memory per device; a slower port limits them further.
#: They reach 5.16 GB/s on PCIe 4, 0.20 of its payload rate (four L40S, all-reduce of 512 MiB in
#: ``collectives.yaml``; fewer devices were not timed). Divided by 0.78, the efficiency of the route
#: peer to peer. A port older than PCIe 4 that two devices share carries less.
STAGING_BYTES_PER_S = 5.16 * GIGA / 0.78
SLOW_PORT_GENERATION = 4
#: PCIe generation from which on hosts forward data between devices through their memory at nearly
#: the port's rate; older hosts reach less than a quarter of it (``runtime.yaml``, both measured).
FAST_HOST_GENERATION = 5
#: NUMA nodes of an AMD socket from which on each has the memory next to its ports.
DOMAINS_A_SOCKET = 4
#: x16 cards per socket of a two-socket server: the usual server has 8 slots.
CARDS_A_SOCKET = 4


def places(cluster: ClusterSpec) -> tuple[str, str]:
    """(node preset, network link): the names by which calibrations refer to a cluster's links.

    They are those of its slowest paths.
    """
    inside, network = _slowest(cluster, intra_node_path), _slowest(cluster, node_network_path)
    return inside.node.name, network.node.nics[0].link if network.node.nics else ""


class LinkFigures:
    """Figures of links, and a calibration's multipliers; the attributes are those of a profile."""

    name: str
    origin: str
    runtime: Mapping[str, Any]
    knob_values: tuple[Knob, ...]
    measured: MeasuredDevice | None

    def scaled(self, base: Estimate, knob: CalibratedKnob, **where: str) -> Estimate:
        """A figure times the calibration's multipliers of ``knob`` that apply to ``where``."""
        value, sd, source = base.value, base.sd_log, base.source
        for k in self.knob_values:
            if k.knob == knob and all(not getattr(k, key) or getattr(k, key) == at
                                      for key, at in where.items()):  # fmt: skip
                value, sd = value * k.value, k.sd_log
                source = f"{source} x {k.value:.3g} ({self.name})"
        return Estimate(value, sd, source)

    def route_efficiency(self, route: Route, *, node: str = "", link: str = "") -> Estimate:
        """Share of the slowest link's payload rate that collectives reach as bus bandwidth."""
        if route == "none":
            return Estimate(1.0, 0.0, "no link")
        own = self.measured.link if self.measured else None
        if own is not None and node == own.node and not route.startswith("network"):
            found = Estimate(own.efficiency.value, own.efficiency.sd_log, self.origin)
            return self.scaled(found, "intra", node=node)
        found = leaf(self.runtime["route_efficiency"][route])
        if route.startswith("network"):
            return self.scaled(found, "inter", link=link)
        return self.scaled(found, "intra", node=node)

    def hop_s(self, node: str, otherwise: float) -> float:
        """Seconds per hop of a collective within the node, or ``otherwise`` if not measured."""
        own = self.measured.link if self.measured else None
        return own.hop.value if own is not None and node == own.node else otherwise

    def collective_ramp(self, route: Route, node: str = "") -> float:
        """Loss of collectives between latency and bandwidth regime on a route (``Group.ramp``)."""
        own = self.measured.link if self.measured else None
        if own is not None and node == own.node and not route.startswith("network"):
            return own.ramp.value if own.ramp is not None else 0.0
        ramps: Mapping[str, Any] = self.runtime["collective_ramp"]
        return leaf(ramps[route]).value if route in ramps else 0.0

    def chunk_ramp(self, route: Route) -> float:
        """The same loss with the latencies of NCCL's own tables (``Group.chunk_ramp``)."""
        ramps: Mapping[str, Any] = self.runtime["chunk_ramp"]
        return leaf(ramps[route]).value if route in ramps else 0.0

    def in_switch_share(self, gpu: GpuSpec) -> float:
        """Bus bandwidth of in-switch reduction over NVLink's; 0 where the switch cannot reduce."""
        by_family: Mapping[str, Any] = self.runtime["in_switch"]
        found = next((by_family[f] for f in families_of(gpu) if f in by_family), None)
        return leaf(found).value if found else 0.0


#: Architecture -> row of NCCL's tuning tables, by compute capability (src/graph/tuning.cc: 7.0,
#: 8.0, 9.0, and 10.0 and later).
_GENERATIONS = {
    "Kepler": 0, "Pascal": 0, "Volta": 0, "Turing": 0, "Ampere": 1, "Ada": 1, "Hopper": 2,
    "Blackwell": 3, "Rubin": 3,
}  # fmt: skip
#: Routes within a node for which collectives over several nodes were measured; for nodes with PCIe
#: alone there are no measurements.
MEASURED_INSIDE = ("nvlink", "none")


def nccl_generation(gpu: GpuSpec) -> int:
    """Row of NCCL's tuning tables for a device; -1 for other vendors, whose library is not NCCL."""
    if gpu.vendor.upper() != "NVIDIA":
        return -1
    return _GENERATIONS.get(gpu.architecture.split()[0], 0)


def library_values(
    cluster: ClusterSpec, profile: LinkFigures, intra: Path, inter: Path
) -> dict[str, Any]:
    """Arguments of ``physics.collectives.Library`` for a cluster and its network.

    With several GPU types the oldest generation decides.
    """
    groups = cluster.groups
    node, _ = places(cluster)
    measured = profile.measured.link if profile.measured else None
    generation = min(nccl_generation(g.gpu) for g in groups)
    if measured is not None and measured.node == node:
        generation = -1  # rate and hop latency were fitted on this machine as a plain ring's
    switched = all(g.node.fabric == "nvswitch" and g.gpu.nvlink_bw for g in groups)
    share = min(profile.in_switch_share(g.gpu) for g in groups) if switched else 0.0
    nvlink = min(g.gpu.nvlink_bw.value if g.gpu.nvlink_bw else 0.0 for g in groups)
    nics = [n for g in groups for n in g.node.nics]
    fabric = cluster.fabric
    ports = max((sum(n.count for n in g.node.nics) for g in groups), default=1)
    torus = groups[0].node.torus
    return {
        "torus": (torus.axes, torus.ring_multiple) if torus else (),
        "generation": generation,
        "nvlink": intra.route == "nvlink",
        "amd_host": any("AMD" in g.node.cpu.model for g in groups),
        "nvls_bw_bytes_per_s": nvlink * share,
        "sharp": fabric.sharp,
        "nic_latency_s": max((link_named(n.link).nic_latency_s for n in nics), default=0.0),
        "channel_bw_bytes_per_s": _channel_bw(cluster, intra, inter, ports),
        "intra_chunk_ramp": profile.chunk_ramp(intra.route),
        "inter_chunk_ramp": profile.chunk_ramp(inter.route) * (intra.route in MEASURED_INSIDE),
        "leaf_nodes": fabric.nodes_of_leaf(ports),
        "oversubscription": fabric.oversubscription,
        "rails": fabric.rails,
    }


def _channel_bw(cluster: ClusterSpec, intra: Path, inter: Path, ports: int) -> float:
    """Bytes/s of one NCCL channel between nodes: a port's rate, or a device's share of a bare rate.

    0 for nodes without NVLink, where the number of channels that share a port is unknown.
    """
    if cluster.n_nodes == 1 or intra.route != "nvlink":
        return 0.0
    channels = ports if ports > 1 else max(g.gpus_per_node for g in cluster.groups)
    return inter.bw_bytes_per_s / channels


_FEWER = " (fewer are slower: state --network)"


@dataclass(frozen=True)
class Unstated:
    """Distribution of the bandwidth between nodes that have 1 to ``most`` adapters each."""

    most: float

    @property
    def mean_log(self) -> float:
        """Mean of ln(bandwidth / preset's bandwidth): the middle of [-ln n, 0]."""
        return -math.log(self.most) / 2.0

    @property
    def sd_log(self) -> float:
        """Standard deviation of the same: a uniform distribution's is its range over sqrt(12)."""
        return math.log(self.most) / math.sqrt(12.0)


def unstated_network(cluster: ClusterSpec, profile: LinkFigures) -> Unstated | None:
    """The uncertainty of a cluster's network; None where there is none.

    That is where the user stated the network, there is one node, a calibration covers the link, or
    every node has a single adapter.
    """
    link = places(cluster)[1]
    calibrated = any(k.knob == "inter" and k.link in ("", link) for k in profile.knob_values)
    if cluster.network_stated or cluster.n_nodes == 1 or calibrated:
        return None
    most = max(map(_adapters, cluster.groups))
    return Unstated(most) if most > 1.0 else None


def network_assumptions(cluster: ClusterSpec, profile: LinkFigures) -> tuple[str, ...]:
    """The cluster's assumptions, with advice where its network may have fewer adapters."""
    unstated = unstated_network(cluster, profile) is not None
    return tuple(
        a + _FEWER if unstated and a.startswith("network: ") else a for a in cluster.assumptions
    )


def _adapters(group: NodeGroup) -> float:
    """Network adapters of one node by its preset, or of one tray where the node is a rack."""
    node = group.node
    trays = max(1.0, group.gpus_per_node / node.tray_gpus) if node.tray_gpus else 1.0
    return sum(n.count for n in node.nics) / trays
