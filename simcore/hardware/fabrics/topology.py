"""The graph of a fabric: ports of nodes, switches, links with rates, and routes through them.

# V vertices (the nodes' ports first), L links of one direction each, F flows, S parts of routes
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.errors import InvalidConfig, UsageError
from simcore.base.record import dataclass

Index = NDArray[np.intp]
#: How a switch chooses among links that are equally near to the goal: it spreads traffic evenly
#: over all of them, or takes one at random for each flow (a hash of its addresses).
Routing = Literal["spread", "hashed"]
#: Bounds of memory while routes are found: destinations whose distances are held at a time, and
#: links that are compared at a time for the next hop.
_AT_ONCE, _CANDIDATES = 512, 2_000_000


class Routes(NamedTuple):
    """Links of flows [S]: ``flow`` sends the share ``frac`` of its traffic over ``link``."""

    flow: Index
    link: Index
    frac: Array


class Cables:
    """Collects vertices and links while a fabric is built; each cable is two links."""

    def __init__(self, ports: Sequence[str]) -> None:
        self.names = list(ports)
        self._ends: list[tuple[Index, Index]] = []
        self._rates: list[Array] = []

    def switches(self, names: Sequence[str]) -> Index:
        """The vertices of new switches."""
        first = len(self.names)
        self.names += names
        return np.arange(first, len(self.names))

    def join(self, one: Any, other: Any, bytes_per_s: Any) -> None:
        """Add cables between vertices, pair by pair, each of a rate per direction."""
        ends = np.broadcast_arrays(*(np.asarray(x, dtype=np.intp) for x in (one, other)))
        a, b = (np.atleast_1d(e) for e in ends)
        self._ends.append((a, b))
        self._rates.append(np.broadcast_to(np.asarray(bytes_per_s, float), a.shape))

    def links(self) -> tuple[Index, Index, Array]:
        """(from, to, bytes/s) of both directions of every cable, [L] each."""
        if not self._ends:
            return np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0)
        a, b = (np.concatenate(ends) for ends in zip(*self._ends, strict=True))
        both = np.stack([a, b], axis=1)
        return both.ravel(), both[:, ::-1].ravel(), np.repeat(np.concatenate(self._rates), 2)


@dataclass(frozen=True, eq=False)
class Topology:
    """A fabric's graph. Vertex ``node · rails + rail`` is a port of a node, the rest are switches.

    ``rails``: ports of a node, alike in every way. ``forwards``: whether nodes pass on traffic of
    others, as in a torus. ``tail``, ``head``, ``bytes_per_s`` [L]: links of one direction each.
    ``paths``: the routes of flows between ports where the kind of fabric knows them by itself.
    """

    n_nodes: int
    rails: int
    names: tuple[str, ...]
    tail: Index
    head: Index
    bytes_per_s: Array
    routing: Routing = "spread"
    forwards: bool = False
    paths: Callable[[Index, Index], Routes] | None = None

    @staticmethod
    def of(cables: Cables, n_nodes: int, rails: int = 1, **more: Any) -> Topology:
        """The graph of collected cables."""
        return Topology(n_nodes, rails, tuple(cables.names), *cables.links(), **more)

    @property
    def n_ports(self) -> int:
        """Ports of all nodes: the first vertices."""
        return self.n_nodes * self.rails

    def link_name(self, link: int) -> str:
        """A link in words."""
        return f"{self.names[self.tail[link]]} to {self.names[self.head[link]]}"

    @cached_property
    def _single(self) -> Index:
        """For each vertex, the only link out of it if it is a port with one cable, else -1 [V]."""
        degree = np.bincount(self.tail, minlength=len(self.names))
        first = np.full(len(self.names), -1)
        first[self.tail] = np.arange(len(self.tail))
        ends = (degree == 1) & (np.arange(len(self.names)) < self.n_ports)
        return np.where(ends, first, -1)

    @cached_property
    def _inner(self) -> tuple[Index, Index]:
        """Links that end at no port with one cable, by tail, and the first of each tail [V + 1]."""
        single = self._single >= 0
        links = np.flatnonzero(~(single[self.tail] | single[self.head]))
        links = links[np.argsort(self.tail[links], kind="stable")]
        return links, np.searchsorted(self.tail[links], np.arange(len(self.names) + 1))

    def routes(self, source: Index, target: Index, seed: int = 0) -> Routes:
        """The links of flows between ports [F], by the fewest hops. Raises InvalidConfig.

        ``seed``: of the random choices of routing "hashed".
        """
        if self.paths is not None:
            return self.paths(source, target)
        flow = np.flatnonzero(source != target)
        ends, parts = [source.copy(), target.copy()], []
        for side, end in enumerate(ends):
            link = self._single[end[flow]]
            has = link >= 0
            end[flow[has]] = self.head[link[has]]  # cable 2k, 2k + 1: its other direction
            parts.append(Routes(flow[has], link[has] ^ side, np.ones(int(has.sum()))))
        at, goal = ends
        flow = flow[at[flow] != goal[flow]]
        goals, row = np.unique(goal[flow], return_inverse=True)
        rng = np.random.default_rng(seed)
        for first in range(0, len(goals), _AT_ONCE):
            near = self._distances(goals[first : first + _AT_ONCE])
            here = (row >= first) & (row < first + _AT_ONCE)
            parts += self._hops(flow[here], at[flow[here]], row[here] - first, near, rng)
        return Routes(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _distances(self, goals: Index) -> NDArray[np.int16]:
        """Hops from every vertex to each goal [G, V], -1 where there is no way."""
        links, starts = self._inner
        tails = np.flatnonzero(np.diff(starts))
        found = np.full((len(goals), len(self.names)), -1, dtype=np.int16)
        found[np.arange(len(goals)), goals] = 0
        reached = found == 0
        passes = np.ones(len(self.names), dtype=bool)
        passes[: self.n_ports] = self.forwards
        hops = 0
        while reached.any() and len(tails):
            hops += 1
            ahead = np.logical_or.reduceat(reached[:, self.head[links]], starts[tails], axis=1)
            reached = np.zeros_like(reached)
            reached[:, tails] = ahead & (found[:, tails] < 0)
            found[reached] = hops
            reached &= passes
        return found

    def _hops(
        self, flow: Index, at: Index, goal: Index, near: NDArray[np.int16],
        rng: np.random.Generator,
    ) -> list[Routes]:  # fmt: skip
        """The links of flows from vertices to goals (rows of ``near``), hop by hop."""
        if (near[goal, at] < 0).any():
            lost = int(np.flatnonzero(near[goal, at] < 0)[0])
            raise InvalidConfig([f"the fabric has no path from {self.names[at[lost]]}"])
        frac: Array = np.ones(len(flow))
        parts: list[Routes] = []
        while len(flow):
            link, starts, of = self._nearer(at, goal, near)
            ways = np.diff(starts)[of]
            first = starts[of]
            if self.routing == "spread":
                state: Index = np.repeat(np.arange(len(flow)), ways)
                nth = np.arange(len(state)) - np.repeat(np.cumsum(ways) - ways, ways)
                link = link[first[state] + nth]
                frac = frac[state] / ways[state]
            else:
                state = np.arange(len(flow))
                link = link[first + (rng.random(len(flow)) * ways).astype(np.intp)]
            flow, goal, at = flow[state], goal[state], self.head[link]
            parts.append(Routes(flow, link, frac))
            going = near[goal, at] > 0
            flow, goal, at, frac = flow[going], goal[going], at[going], frac[going]
            if self.routing == "spread" and len(flow):  # parts of a flow that meet go on as one
                key = flow * len(self.names) + at
                _, one, same = np.unique(key, return_index=True, return_inverse=True)
                frac = np.bincount(same, frac).astype(float)
                flow, goal, at = flow[one], goal[one], at[one]
        return parts

    def _nearer(
        self, at: Index, goal: Index, near: NDArray[np.int16]
    ) -> tuple[Index, Index, Index]:
        """The links that lead nearer to a goal, of each pair of a vertex and a goal.

        (links by pair, first of each pair and the end, pair of each entry of ``at``).
        """
        links, starts = self._inner
        pairs, of = np.unique(goal * len(self.names) + at, return_inverse=True)
        goals, vertices = np.divmod(pairs, len(self.names))
        count: Index = starts[vertices + 1] - starts[vertices]
        found, ways = [], np.zeros(len(pairs), dtype=np.intp)
        bounds = np.searchsorted(np.cumsum(count), np.arange(0, count.sum(), _CANDIDATES))
        for first, end in pairwise([*np.unique(bounds), len(pairs)]):
            some = np.repeat(np.arange(first, end), count[first:end])
            before = np.cumsum(count[first:end]) - count[first:end]
            nth = np.arange(len(some)) - before[some - first]
            link = links[starts[vertices[some]] + nth]
            leads = near[goals[some], self.head[link]] == near[goals[some], vertices[some]] - 1
            found.append(link[leads])
            ways += np.bincount(some[leads], minlength=len(pairs))
        return np.concatenate(found), np.concatenate([[0], np.cumsum(ways)]), of

    def graph(self) -> Any:
        """The same as a ``networkx.DiGraph``; edges carry ``bytes_per_s``. Raises UsageError."""
        needed = "a fabric's graph needs networkx: pip install '.[fabric]'"
        try:
            import networkx as nx
        except ImportError:
            raise UsageError(needed) from None
        graph = nx.DiGraph()
        for v, name in enumerate(self.names):
            graph.add_node(v, name=name, node=v // self.rails if v < self.n_ports else -1)
        for a, b, rate in zip(self.tail, self.head, self.bytes_per_s, strict=True):
            known = graph.get_edge_data(int(a), int(b), {"bytes_per_s": 0.0})["bytes_per_s"]
            graph.add_edge(int(a), int(b), bytes_per_s=known + float(rate))
        return graph

    def cut_bytes_per_s(self, nodes: int) -> float:
        """Most bytes/s from the first ``nodes`` nodes to the others together (a maximum flow)."""
        import networkx as nx

        graph = self.graph()
        for v in range(self.n_ports):
            edge = ("from", v) if v < nodes * self.rails else (v, "to")
            graph.add_edge(*edge)  # without a rate: unlimited
        return float(nx.maximum_flow_value(graph, "from", "to", capacity="bytes_per_s"))
