"""Share of their nodes' rate that communication groups get on a fabric with other traffic.

What the nodes of groups send each other are flows; flows that share links have max-min fair rates
(progressive filling).

# G groups, m nodes a group, F flows, L links, S parts of routes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.record import dataclass
from simcore.hardware.fabrics.record import FabricRecord, Pattern, node_range
from simcore.hardware.fabrics.topology import Routes, Topology

Index = NDArray[np.intp]
#: Relative difference below which two rates or shares are equal.
_EQUAL = 1e-9


def max_min_rates(n_flows: int, flow: Index, link: Index, frac: Array, bytes_per_s: Array) -> Array:
    """Rates [F] of flows that are fair: none can rise without taking from one that is no faster.

    ``flow``, ``link``, ``frac`` [S]: each flow sends these shares of its traffic over these links,
    whose rates are ``bytes_per_s`` [L]. All flows rise together; a link that is full stops its own
    (Bertsekas & Gallager 1992, section 6.5.2). In each round all links stop their flows that are
    the narrowest link of each of these flows. That gives the rates of stopping one link at a time,
    in a few dozen rounds. Flows without links have an infinite rate.
    """
    rates = np.full(n_flows, np.inf)
    left = bytes_per_s.astype(float)
    n_links = len(left)
    while len(flow):
        weight = np.bincount(link, frac, n_links)
        share = np.divide(left, weight, out=np.full(n_links, np.inf), where=weight > 0)
        level = share[link]
        least = np.full(n_flows, np.inf)
        np.minimum.at(least, flow, level)
        wider = level > least[flow] * (1.0 + _EQUAL)
        narrowest = np.bincount(link, wider, n_links) == 0
        stopped = np.zeros(n_flows, dtype=bool)
        stopped[flow[narrowest[link]]] = True
        rates[stopped] = least[stopped]
        done = stopped[flow]
        taken = np.bincount(link[done], frac[done] * rates[flow[done]], n_links)
        left = np.maximum(left - taken, 0.0)
        flow, link, frac = flow[~done], link[~done], frac[~done]
    return rates


#: Most flows of an exchange of all with all; beyond, evenly chosen distances stand for all.
MOST_FLOWS = 150_000


class Flows(NamedTuple):
    """Flows from node to node [F], and the share of a node's rate that each needs [F]."""

    source: Index
    target: Index
    need: Array


def groups_of(n_nodes: int, size: int, stride: int) -> Index:
    """The nodes of all groups of ``size`` nodes ``stride`` apart, numbered within a job [G, m].

    Groups fill the job block by block, as ranks are numbered; a last block that is not full is left
    out, and a group larger than the job is the part that there is.
    """
    stride = min(stride, n_nodes)
    size = max(1, min(size, n_nodes // stride))
    blocks = max(1, n_nodes // (size * stride))
    first = np.arange(blocks)[:, None] * (size * stride) + np.arange(stride)
    return first.reshape(-1, 1) + stride * np.arange(size)


def _joined(groups: Index, one: Index, other: Index, need: Array | float) -> Flows:
    """Flows between places ``one`` and ``other`` of every group."""
    source, target = groups[:, one].ravel(), groups[:, other].ravel()
    needed = np.broadcast_to(need, (len(groups), len(one))).ravel()
    return Flows(source, target, needed.astype(float))


def ring(groups: Index) -> Flows:
    """Each node sends to the next at its whole rate."""
    at = np.arange(groups.shape[1])
    return _joined(groups, at, np.roll(at, -1), 1.0)


def tree_parents(n: int) -> Index:
    """The parent of each node but the first in NCCL's binary tree (src/graph/trees.cc) [n - 1]."""
    at = np.arange(1, n)
    low = at & -at
    up: Index = (at ^ low) | (low << 1)
    return np.where(up < n, up, at ^ low)


def tree(groups: Index) -> Flows:
    """NCCL's double binary tree: half of the vector up and down each of two trees.

    A node sends the vector twice in all (half to two children and to the parent in one tree, half
    to the parent in the other), so each of its flows needs a quarter of its rate. The second tree
    is the first one mirrored, with an odd number of nodes shifted by one.
    """
    n = groups.shape[1]
    child, parent = np.arange(1, n), tree_parents(n)
    second = [(x + 1) % n if n % 2 else n - 1 - x for x in (child, parent)]
    one, other = np.concatenate([child, second[0]]), np.concatenate([parent, second[1]])
    return _joined(groups, np.concatenate([one, other]), np.concatenate([other, one]), 0.25)


def all_to_all(groups: Index) -> Flows:
    """Each node sends to every other of its group, at equal parts of its rate.

    Where that makes more than ``MOST_FLOWS`` flows, evenly chosen distances stand for all.
    """
    n = groups.shape[1]
    most = max(1, MOST_FLOWS // groups.size)
    apart = np.arange(1, n)
    if len(apart) > most:
        apart = np.unique(np.linspace(1, n - 1, most).round().astype(np.intp))
    at = np.repeat(np.arange(n), len(apart))
    return _joined(groups, at, (at + np.tile(apart, n)) % n, 1.0 / max(1, len(apart)))


def chain(groups: Index) -> Flows:
    """Each node but the last sends to the next, as the stages of a pipeline do.

    Gradients go back over the same links in the other direction, between stages that then send no
    activations.
    """
    at = np.arange(groups.shape[1] - 1)
    return _joined(groups, at, at + 1, 1.0)


PATTERNS = {"ring": ring, "tree": tree, "all-to-all": all_to_all, "chain": chain}


class Traffic(NamedTuple):
    """Groups of nodes [G, m] that send at the same time, and what they send.

    ``across_rails``: whether an all-to-all also sends between NICs of unequal index (where no
    NVLink hands the traffic to the GPU on the other rail first).
    """

    groups: Index
    sends: Pattern
    across_rails: bool = False


class Bottleneck(NamedTuple):
    """The share of its nodes' rate that the slowest flow of a group gets, and the link that limits
    it (empty where it is the node's own).
    """

    share: float
    link: str = ""


def flows_of(traffic: Traffic, rails: int) -> Flows:
    """The flows of groups between ports, ``node · rails + rail``, and what part of a port's rate
    each needs. Where rails carry equal traffic, those of the first rail.
    """
    if traffic.sends == "all-to-all" and traffic.across_rails and rails > 1:
        ports = (traffic.groups[:, :, None] * rails + np.arange(rails)).reshape(
            len(traffic.groups), -1
        )
        source, target, need = all_to_all(ports)
        away = source // rails != target // rails
        source, target = source[away], target[away]
        return Flows(source, target, 1.0 / np.bincount(source)[source])
    source, target, need = PATTERNS[traffic.sends](traffic.groups)
    return Flows(source * rails, target * rails, need)


def bottlenecks(
    topology: Topology, node_bytes_per_s: float, traffic: Sequence[Traffic]
) -> list[Bottleneck]:
    """What the groups of each traffic get while all send, by max-min fair shares of their flows.

    A flow's share is its rate over what it needs of its port. Shares rise together until links are
    full, so that of two nodes that send over a link neither gets more by opening more connections:
    switches serve their input ports in turn. A collective is as fast as its slowest flow. Flows are
    taken to send all the time: a group that another one slows does not leave its rate to others.
    """
    port = node_bytes_per_s / topology.rails
    parts = [flows_of(one, topology.rails) for one in traffic]
    source, target, need = (np.concatenate(column) for column in zip(*parts, strict=True))
    routes = topology.routes(source, target)
    # A port's own rate is a link of its own at each end: a fabric may have faster cables.
    n_links, n_ports = len(topology.tail), topology.n_ports
    each = np.arange(len(source))
    routes = Routes(
        np.concatenate([routes.flow, each, each]),
        np.concatenate([routes.link, n_links + source, n_links + n_ports + target]),
        np.concatenate([routes.frac * need[routes.flow], need, need]),
    )
    limits = np.concatenate([topology.bytes_per_s, np.full(2 * n_ports, port)])
    shares = max_min_rates(len(source), *routes, limits) / port
    used = np.bincount(routes.link, routes.frac * shares[routes.flow], len(limits)) * port / limits
    largest = np.zeros(len(limits))
    np.maximum.at(largest, routes.link, shares[routes.flow])
    found, first = [], 0
    for part in parts:
        mine = slice(first, first + len(part.need))
        first = mine.stop
        if not len(part.need):
            found.append(Bottleneck(1.0))
            continue
        slowest = mine.start + int(np.argmin(shares[mine]))
        share = min(1.0, float(shares[slowest]))
        links = routes.link[routes.flow == slowest]
        # The full link on which no flow has more (Bertsekas & Gallager's bottleneck of a flow).
        by_fit = used[links] - largest[links] / shares[slowest]
        limit = int(links[np.argmax(by_fit.round(9))])
        name = topology.link_name(limit) if share < 1.0 - _EQUAL and limit < n_links else ""
        found.append(Bottleneck(share, name))
    return found


@dataclass(frozen=True, eq=False)
class FabricShares:
    """The shares that groups of a job's nodes get on a fabric, computed once for each group.

    ``nodes``: those of the job on the fabric, in the order of ranks. ``others``: the traffic of
    other jobs, and the share of time that each sends.
    """

    topology: Topology
    node_bytes_per_s: float
    nodes: Index
    others: tuple[tuple[Traffic, float], ...]
    across_rails: bool
    known: dict[tuple[Pattern, int, int], Bottleneck] = field(default_factory=dict, repr=False)

    def bottleneck(self, sends: Pattern, n_nodes: float, stride: float) -> Bottleneck:
        """What groups of ``n_nodes`` of the job's nodes, ``stride`` apart, get at the same time.

        Where other jobs send part of the time, the mean over the states of all of them.
        """
        key = sends, round(n_nodes), max(1, round(stride))
        if key not in self.known:
            groups = self.nodes[groups_of(len(self.nodes), *key[1:])]
            own = Traffic(groups, sends, self.across_rails)
            self.known[key] = self._mean(own)
        return self.known[key]

    def _mean(self, own: Traffic) -> Bottleneck:
        total, worst = 0.0, Bottleneck(2.0)
        for states in product(*((True, False) if b < 1.0 else (True,) for _, b in self.others)):
            often = 1.0
            for (_, busy), sending in zip(self.others, states, strict=True):
                often *= busy if sending else 1.0 - busy
            beside = [t for (t, _), sending in zip(self.others, states, strict=True) if sending]
            found = bottlenecks(self.topology, self.node_bytes_per_s, [own, *beside])[0]
            total += often * found.share
            worst = min(worst, found, key=lambda b: b.share)
        return Bottleneck(total, worst.link)

    def share(self, sends: Pattern, n_nodes: Array, stride: float = 1.0) -> Array:
        """Shares [C] of groups of ``n_nodes`` [C] nodes; 1 for groups within one node."""
        found = np.ones(n_nodes.shape)
        for n in {*n_nodes[n_nodes > 1].tolist()}:  # np.unique would import masked arrays
            found[n_nodes == n] = self.bottleneck(sends, float(n), stride).share
        return found


@lru_cache(maxsize=64)
def shares_on(
    record: FabricRecord, n_nodes: int, node_bytes_per_s: float, across_rails: bool
) -> FabricShares:
    """The shares of a job of ``n_nodes`` on a fabric. Raises InvalidConfig where it has fewer."""
    topology, nodes = record.of_job(n_nodes, node_bytes_per_s)
    others = tuple(
        (Traffic(np.array([node_range(job.nodes)]), job.sends, across_rails), job.busy)
        for job in record.jobs
    )
    return FabricShares(topology, node_bytes_per_s, np.array(nodes), others, across_rails)
