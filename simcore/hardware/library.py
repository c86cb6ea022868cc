"""What NCCL looks at when it chooses an algorithm, for ``physics.collectives.Library``."""

from __future__ import annotations

from typing import Any

from simcore.base.units import MICRO
from simcore.hardware.cluster import ClusterSpec, link_named
from simcore.hardware.paths import Path
from simcore.hardware.profile import Profile, places
from simcore.hardware.spec import GpuSpec

#: Generations that NCCL's tables tell apart (src/graph/tuning.cc: 7.0, 8.0, 9.0 and 10.0 on).
_GENERATIONS = {
    "Kepler": 0, "Pascal": 0, "Volta": 0, "Turing": 0, "Ampere": 1, "Ada": 1, "Hopper": 2,
    "Blackwell": 3,
}  # fmt: skip
#: A NIC's hop in NCCL's table, Simple; what a link's record has beyond it is the NIC's own latency,
#: which that protocol waits for twice.
NET_HOP_S = 14.0 * MICRO
#: Routes within a node whose jobs over several nodes were measured; of PCIe nodes none were.
MEASURED_INSIDE = ("nvlink", "none")


def nccl_generation(gpu: GpuSpec) -> int:
    """Which row of NCCL's tables a device has; -1: another vendor's library."""
    if gpu.vendor.upper() != "NVIDIA":
        return -1
    return _GENERATIONS.get(gpu.architecture.split()[0], 0)


def library_values(
    cluster: ClusterSpec, profile: Profile, intra: Path, inter: Path
) -> dict[str, Any]:
    """NCCL's view of a cluster and its network; of several types of GPU the oldest decides."""
    groups = cluster.groups
    node, _ = places(cluster)
    measured = profile.measured.link if profile.measured else None
    ours = min(nccl_generation(g.gpu) for g in groups)
    if measured is not None and measured.node == node:
        ours = -1  # rate and hop are fits of a plain ring to this machine
    switched = all(g.node.fabric == "nvswitch" and g.gpu.nvlink_bw for g in groups)
    share = min(profile.in_switch_share(g.gpu) for g in groups) if switched else 0.0
    nvlink = min(g.gpu.nvlink_bw.value if g.gpu.nvlink_bw else 0.0 for g in groups)
    latency = max(
        (link_named(n.link).latency.value for g in groups for n in g.node.nics), default=0.0
    )
    fabric = cluster.fabric
    nics = max((sum(n.count for n in g.node.nics) for g in groups), default=1)
    return {
        "generation": ours,
        "nvlink": intra.route == "nvlink",
        "amd_host": any("AMD" in g.node.cpu.model for g in groups),
        "nvls_bw_bytes_per_s": nvlink * share,
        "sharp": fabric.sharp,
        "nic_latency_s": max(0.0, latency - NET_HOP_S) / 2.0,
        "intra_chunk_ramp": profile.chunk_ramp(intra.route),
        "inter_chunk_ramp": profile.chunk_ramp(inter.route) * (intra.route in MEASURED_INSIDE),
        "leaf_nodes": fabric.nodes_of_leaf(nics),
        "oversubscription": fabric.oversubscription,
        "rails": fabric.rails,
    }
