"""The network of a cluster: facts by which NCCL chooses, and uncertainty where it was not stated.

A preset has the network of its maker's own systems. Other providers fit fewer adapters into the
same node: 8 A100 have eight of 200 Gbit/s in a DGX and four of 100 Gbit/s at AWS (``p4d-aws``).
Without further knowledge the logarithm of their number is assumed to be uniform from one adapter
per node to the preset's n: ln(bandwidth / preset's bandwidth) is uniform on [-ln n, 0].
"""

from __future__ import annotations

import math
from typing import Any

from simcore.base.record import dataclass
from simcore.hardware.cluster import ClusterSpec, NodeGroup, link_named
from simcore.hardware.paths import Path, places
from simcore.hardware.profile import Profile
from simcore.hardware.spec import GpuSpec

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
    cluster: ClusterSpec, profile: Profile, intra: Path, inter: Path
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


def unstated_network(cluster: ClusterSpec, profile: Profile) -> Unstated | None:
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


def network_assumptions(cluster: ClusterSpec, profile: Profile) -> tuple[str, ...]:
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
