"""A fabric as a list of its links, for networks that are none of the regular kinds."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from simcore.base.figures import Part, Reads, entry
from simcore.hardware.fabrics.record import (
    KINDS,
    MOST_CABLES,
    FabricRecord,
    Rate,
    host_list,
    rate_of,
)
from simcore.hardware.fabrics.topology import Cables, Topology

_MOST_NODES = 2_048


def _hosts(text: str) -> str:
    host_list(text)
    return text


Hosts = Annotated[str, Reads(_hosts, after=True)]


class Link(Part):
    """Cables of one rate from each of ``between`` to each of ``to``: ``leaf[0-3]`` is four."""

    between: Hosts
    to: Hosts
    rate: Rate


@KINDS.register("links")
class Links(FabricRecord):
    """A fabric by its ``links``. ``nodes``: names of the nodes, in the order of ranks; every other
    name is a switch. Traffic spreads over all shortest paths.
    """

    kind: Literal["links"] = "links"
    nodes: Hosts
    links: tuple[Link, ...] = entry(min_length=1)

    def check(self) -> None:
        super().check()
        names = set(host_list(self.nodes))
        if len(names) > _MOST_NODES:
            raise ValueError(f"{len(names):,} nodes are more than {_MOST_NODES:,}")
        joined: set[str] = set()
        cables = 0
        for link in self.links:
            one, other = host_list(link.between), host_list(link.to)
            cables += len(one) * len(other)
            if cables > MOST_CABLES:
                raise ValueError(f"more than {MOST_CABLES:,} cables")
            if both := sorted(set(one) & set(other)):
                raise ValueError(f"a link joins {both[0]} to itself")
            joined.update(one, other)
        if alone := sorted(names - joined):
            raise ValueError(f"node {alone[0]} has no link")

    @property
    def most_nodes(self) -> int:
        return len(host_list(self.nodes))

    def in_words(self) -> str:
        return f"own links of {self.most_nodes} nodes"

    def topology(self, n_nodes: int, node_bytes_per_s: float) -> Topology:
        nodes = host_list(self.nodes)
        cables = Cables(nodes)
        number = {name: v for v, name in enumerate(nodes)}
        for link in self.links:
            one, other = host_list(link.between), host_list(link.to)
            for name in (*one, *other):
                if name not in number:
                    number[name] = int(cables.switches([name])[0])
            ends = np.array([(number[a], number[b]) for a in one for b in other])
            cables.join(ends[:, 0], ends[:, 1], rate_of(link.rate))
        return Topology.of(cables, len(nodes), routing=self.routing)
