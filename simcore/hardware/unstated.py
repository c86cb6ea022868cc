"""Uncertainty of the bandwidth between nodes where the user did not state the network.

A preset has the network of its maker's own systems. Other providers fit fewer adapters into the
same node: 8 A100 have eight of 200 Gbit/s in a DGX and four of 100 Gbit/s at AWS (``p4d-aws``).
Without further knowledge the logarithm of their number is assumed to be uniform from one adapter
per node to the preset's n: ln(bandwidth / preset's bandwidth) is uniform on [-ln n, 0].
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from simcore.hardware.cluster import ClusterSpec, NodeGroup
from simcore.hardware.profile import Profile, places

_FEWER = " (fewer are slower: state --network)"


@dataclass(frozen=True, slots=True)
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
