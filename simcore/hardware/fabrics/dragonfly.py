"""Dragonflies: groups of switches joined all to all, and groups joined all to all."""

from __future__ import annotations

from typing import Literal

import numpy as np

from simcore.base.figures import entry
from simcore.hardware.fabrics.record import KINDS, FabricRecord, Rate, rate_of
from simcore.hardware.fabrics.topology import Cables, Topology

_MOST_SWITCHES = 1_000


@KINDS.register("dragonfly")
class Dragonfly(FabricRecord):
    """A dragonfly (Kim et al. 2008), with traffic on its shortest paths of one global link at most.

    ``groups`` of ``switches`` with ``switch_nodes`` nodes each. ``local_link``: rate between two
    switches of a group; ``global_links`` of rate ``global_link`` join each pair of groups, spread
    over their switches in turn. Rates are by default those of a node.
    """

    kind: Literal["dragonfly"] = "dragonfly"
    groups: int = entry(ge=1, le=1_000)
    switches: int = entry(ge=1, le=1_000)
    switch_nodes: int = entry(ge=1, le=1_000)
    global_links: int = entry(default=1, ge=1, le=64)
    local_link: Rate | None = None
    global_link: Rate | None = None

    def check(self) -> None:
        super().check()
        if self.groups * self.switches > _MOST_SWITCHES:
            raise ValueError(f"{self.groups * self.switches:,} switches are more than "
                             f"{_MOST_SWITCHES:,}")  # fmt: skip

    @property
    def most_nodes(self) -> int:
        return self.groups * self.switches * self.switch_nodes

    def in_words(self) -> str:
        return (
            f"dragonfly: {self.groups} groups of {self.switches} switches with {self.switch_nodes} "
            f"nodes each, {self.global_links} links between two groups"
        )

    def topology(self, n_nodes: int, node_bytes_per_s: float) -> Topology:
        a, groups, node = self.switches, self.groups, np.arange(n_nodes)
        cables = Cables([f"node{n}" for n in node])
        switch = cables.switches([f"switch{g}.{s}" for g in range(groups) for s in range(a)])
        cables.join(node, switch[node // self.switch_nodes], node_bytes_per_s)
        one, other = np.triu_indices(a, 1)
        local = rate_of(self.local_link) if self.local_link else node_bytes_per_s
        for g in range(groups):
            cables.join(switch[g * a + one], switch[g * a + other], local)
        first, second = np.triu_indices(groups, 1)
        far = rate_of(self.global_link) if self.global_link else node_bytes_per_s
        for k in range(self.global_links):
            here, there = (
                switch[x * a + ((y - x - 1) % groups * self.global_links + k) % a]
                for x, y in ((first, second), (second, first))
            )
            # A vertex halfway makes such a link two hops: no path crosses a third group.
            halfway = cables.switches([
                f"global{x}-{y}" + f".{k}" * (self.global_links > 1)
                for x, y in zip(first, second, strict=True)
            ])  # fmt: skip
            cables.join(here, halfway, far)
            cables.join(halfway, there, far)
        return Topology.of(cables, n_nodes, routing=self.routing)
