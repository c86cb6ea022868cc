"""The communication groups of a job on a fabric: their nodes and NICs, and what each gets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from simcore.base.errors import InvalidConfig
from simcore.base.record import dataclass
from simcore.hardware.cluster import ClusterSpec, parse_cluster
from simcore.hardware.fabrics.record import FabricRecord, Pattern, node_range
from simcore.hardware.fabrics.topology import Topology
from simcore.hardware.paths import cluster_paths, over_nvlink
from simcore.physics.fabric_shares import FabricShares, shares_on
from simcore.strategy.layout import DEGREES, Layout
from simcore.timing.collectives import nodes_of

#: Degrees that the words of a job may state.
_DEGREES = tuple(name for name in DEGREES if name != "vpp")
_WORD = re.compile(r"^([a-z]+)=?(\d+)$")


@dataclass(frozen=True)
class GroupShare:
    """One kind of communication group of a job, all of which send at the same time.

    ``apart``: distance of a group's nodes. ``nics``: indices of the GPUs, and so of the NICs, that
    the first group has in each of its nodes. ``share`` of its nodes' rate; ``link``: what limits
    it, empty where it is the nodes' own network.
    """

    name: str
    sends: Pattern
    n_ranks: int
    n_nodes: int
    apart: int
    nics: tuple[int, ...]
    share: float
    gpu_bytes_per_s: float
    link: str


@dataclass(frozen=True, eq=False)
class FabricView:
    """A fabric with a job on it.

    ``bisection_frac``: rate from the first half of the nodes to the second over what the first
    half can send. ``tiers``: (kind of link, how many, bytes/s of one per direction).
    """

    record: FabricRecord
    job: str
    cluster: ClusterSpec
    shares: FabricShares
    groups: tuple[GroupShare, ...]
    bisection_bytes_per_s: float
    bisection_frac: float
    tiers: tuple[tuple[str, int, float], ...]

    @property
    def other_nodes(self) -> int:
        """Nodes of other jobs."""
        return len({n for job in self.record.jobs for n in node_range(job.nodes)})


def job_of(text: str) -> tuple[str, Layout]:
    """GPUs and layout of words such as ``64x8xH100 tp8 pp4``. Raises InvalidConfig."""
    gpus, *words = text.split() or [""]
    degrees: dict[str, Any] = {}
    problems = []
    for word in words:
        match = _WORD.match(word.lower())
        if match is None or match[1] not in _DEGREES:
            known = ", ".join(_DEGREES)
            problems.append(f"{word!r} of the job is no degree such as tp8 (one of {known})")
        else:
            degrees[match[1]] = int(match[2])
    if problems:
        raise InvalidConfig(problems)
    return gpus, Layout(**degrees)


def fabric_view(record: FabricRecord, job: str, network: str | None = None) -> FabricView:
    """A fabric with a job on it; ``job`` as in ``job_of``, by default 8 H100 in each of its nodes
    (64 nodes at most). Raises InvalidConfig.
    """
    if not job:
        others = len({n for other in record.jobs for n in node_range(other.nodes)})
        free = len(node_range(record.job_nodes)) if record.job_nodes else record.most_nodes - others
        job = f"{max(1, min(64, free))}x8xH100"
    gpus, layout = job_of(job)
    cluster = parse_cluster(gpus, network=network, fabric=record)
    problems = layout.violations(cluster.n_gpus, layout.pp)
    if cluster.n_nodes == 1:
        problems.append(f"a job on a fabric has several nodes, and {gpus} is one")
    if problems:
        raise InvalidConfig(problems)
    rate = cluster_paths(cluster)[1].bw_bytes_per_s
    by_nvlink = all(map(over_nvlink, cluster.groups))
    shares = shares_on(record, cluster.n_nodes, rate, not by_nvlink)
    topology = shares.topology
    half = topology.n_nodes // 2
    cut = topology.cut_bytes_per_s(half)
    return FabricView(
        record, job, cluster, shares, tuple(_groups(cluster, layout, shares)), cut,
        cut / (half * rate), tuple(_tiers(topology)),
    )  # fmt: skip


def _groups(cluster: ClusterSpec, layout: Layout, shares: FabricShares) -> list[GroupShare]:
    """Every kind of group that the layout has, with what all of them get at the same time."""
    a_node = max(g.gpus_per_node for g in cluster.groups)
    data = cluster.n_gpus // (layout.tp * layout.pp)
    kinds: list[tuple[str, Pattern, int, int]] = [
        ("tensor", "ring", layout.tp, 1),
        ("context", "ring", layout.cp, layout.tp),
        ("expert", "all-to-all", layout.ep, layout.expert_tp),
        ("data", "ring", data, layout.tp),
        ("data", "tree", data, layout.tp),
        ("pipeline", "chain", layout.pp, cluster.n_gpus // layout.pp),
    ]
    found = []
    for name, sends, size, stride in kinds:
        if size == 1:
            continue
        here, nodes, apart = nodes_of(np.array([float(size)]), float(stride), a_node)
        n_nodes, local = int(nodes[0]), stride % a_node or (0 if stride > 1 else 1)
        nics = tuple(k * local % a_node for k in range(int(here[0])))
        got = shares.bottleneck(sends, n_nodes, apart)
        if n_nodes > 1:
            rate = got.share * shares.node_bytes_per_s / a_node
            found.append(GroupShare(name, sends, size, n_nodes, round(apart), nics, got.share,
                                    rate, got.link))  # fmt: skip
    return found


def _tiers(topology: Topology) -> list[tuple[str, int, float]]:
    """Links of one direction upwards by the kinds of vertices that they join and their rate."""

    def kind(vertex: int) -> str:
        return re.sub(r"[\d.-]+$", "", topology.names[vertex])

    cables = range(0, len(topology.tail), 2)
    count = Counter(
        (f"{kind(topology.tail[k])} to {kind(topology.head[k])}", float(topology.bytes_per_s[k]))
        for k in cables
    )
    return [(name, n, rate) for (name, rate), n in count.items()]


def view_dict(view: FabricView) -> Mapping[str, object]:
    """The view as plain data for JSON."""
    record = view.record
    return {
        "name": record.name, "kind": record.kind, "full_name": record.full_name,
        "is": record.in_words(), "source": record.source, "routing": record.routing,
        "oversubscription": record.oversubscription, "job": view.job,
        "n_nodes": view.shares.topology.n_nodes,
        "node_bytes_per_s": view.shares.node_bytes_per_s,
        "bisection_bytes_per_s": view.bisection_bytes_per_s,
        "bisection_frac": view.bisection_frac,
        "links": [
            {"between": name, "count": n, "bytes_per_s": rate} for name, n, rate in view.tiers
        ],
        "other_jobs": [job.model_dump() for job in record.jobs],
        "groups": [
            {
                "name": g.name, "sends": g.sends, "n_ranks": g.n_ranks, "n_nodes": g.n_nodes,
                "apart": g.apart, "nics": list(g.nics), "share": g.share,
                "gpu_bytes_per_s": g.gpu_bytes_per_s, "limited_by": g.link,
            }
            for g in view.groups
        ],
    }  # fmt: skip
