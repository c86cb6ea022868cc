"""A network between nodes that nobody stated: what it may be beside what the preset has.

A preset has the network that its maker's own systems have. Others fit fewer adapters into the same
node: 8 A100 have eight of 200 Gbit/s in a DGX and four of 100 at AWS (``p4d-aws``). Nothing else
known, their number is taken to be as likely one as any other to the logarithm, from one a node to
as many as the preset has: ln(bandwidth / preset's) is then uniform on [-ln n, 0].
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from simcore.hardware.cluster import ClusterSpec, NodeGroup
from simcore.hardware.profile import Profile, places

_FEWER = " (fewer are slower: say --network)"


@dataclass(frozen=True, slots=True)
class Unstated:
    """What is not known of the bandwidth between nodes, as ``most`` adapters a node leave it."""

    most: float

    @property
    def mean_log(self) -> float:
        """Of ln(bandwidth / preset's): the middle of [-ln n, 0]."""
        return -math.log(self.most) / 2.0

    @property
    def sd_log(self) -> float:
        """Its standard deviation: a twelfth of the range's square is a uniform one's variance."""
        return math.log(self.most) / math.sqrt(12.0)


def unstated_network(cluster: ClusterSpec, profile: Profile) -> Unstated | None:
    """None where somebody stated the network, a calibration met it, or all have one adapter."""
    link = places(cluster)[1]
    met = any(k.knob == "inter" and k.link in ("", link) for k in profile.knob_values)
    if cluster.network_stated or cluster.n_nodes == 1 or met:
        return None
    most = max(map(_adapters, cluster.groups))
    return Unstated(most) if most > 1.0 else None


def network_assumptions(cluster: ClusterSpec, profile: Profile) -> tuple[str, ...]:
    """What a cluster assumes; of a network that may have fewer adapters, what to do about it."""
    unstated = unstated_network(cluster, profile) is not None
    return tuple(
        a + _FEWER if unstated and a.startswith("network: ") else a for a in cluster.assumptions
    )


def _adapters(group: NodeGroup) -> float:
    """Adapters of the preset in one node, or in one tray of a rack of several."""
    node = group.node
    trays = max(1.0, group.gpus_per_node / node.tray_gpus) if node.tray_gpus else 1.0
    return sum(n.count for n in node.nics) / trays
