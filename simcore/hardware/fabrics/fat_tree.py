"""Fat trees: tiers of switches, each of which passes on a share of what enters it from below."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from simcore.base.figures import Part, entry
from simcore.hardware.fabrics.record import KINDS, MOST_NODES, FabricRecord
from simcore.hardware.fabrics.topology import Cables, Topology

_TIERS = ("leaf", "pod", "zone")
#: Most switches of the lowest tier and rails together: distances between all pairs are needed.
_MOST_LEAVES = 4_096


class Tier(Part):
    """A tier of switches: each joins ``members`` nodes, or switches of the tier below.

    ``oversubscription``: bandwidth from below over that of its uplinks.
    """

    members: int = entry(ge=1, le=MOST_NODES)
    oversubscription: float = entry(default=1.0, ge=1.0, le=64.0)


@KINDS.register("fat-tree")
class FatTree(FabricRecord):
    """A fat tree: ``tiers`` from the nodes upwards; above the last, spine switches join everything.

    ``spines``: their number; 0 stands for ideally spread traffic, as with any number of them and
    routing "spread". ``nodes``: how many nodes it has (as many as a job needs, if left out).
    """

    word: ClassVar[str] = "fat tree"

    kind: Literal["fat-tree", "rail-optimised"] = "fat-tree"
    tiers: tuple[Tier, ...] = entry(min_length=1, max_length=len(_TIERS))
    spines: int = entry(default=0, ge=0, le=512)
    rails: int = entry(default=1, ge=1, le=1)
    nodes: int | None = entry(default=None, ge=1, le=MOST_NODES)

    def check(self) -> None:
        super().check()
        if self.routing == "hashed" and not self.spines:
            raise ValueError("routing hashed needs the number of spines")
        leaves = -(-self.most_nodes // self.tiers[0].members) * self.rails
        if self.nodes and leaves > _MOST_LEAVES:
            raise ValueError(f"{leaves:,} leaf switches are more than {_MOST_LEAVES:,}")

    @property
    def most_nodes(self) -> int:
        each = _MOST_LEAVES // self.rails * self.tiers[0].members
        return self.nodes or min(MOST_NODES, each)

    @property
    def oversubscription(self) -> float:
        return float(np.prod([tier.oversubscription for tier in self.tiers]))

    def in_words(self) -> str:
        below, parts = "nodes", []
        for name, tier in zip(_TIERS, self.tiers, strict=False):
            parts.append(f"{tier.members} {below} a {name} at {tier.oversubscription:g}:1")
            below = {"leaf": "leaves"}.get(name, f"{name}s")
        return f"{self.word}: {', '.join(parts)}"

    def topology(self, n_nodes: int, node_bytes_per_s: float) -> Topology:
        rails = self.rails
        unit, rail = np.divmod(np.arange(n_nodes * rails), rails)  # of the vertices below a tier
        below, rate = np.arange(n_nodes * rails), node_bytes_per_s / rails
        cables = Cables([
            f"node{n}" + f".{r}" * (rails > 1) for n, r in zip(unit, rail, strict=True)
        ])  # fmt: skip
        for name, tier in zip(_TIERS, self.tiers, strict=False):
            lowest = below[0] == 0  # each rail has leaves of its own, and all rails what is above
            unit, planes = unit // tier.members, rails if lowest else 1
            count = int(unit.max()) + 1
            switches = cables.switches([
                f"{name}{u}" + f".{r}" * (planes > 1) for u in range(count) for r in range(planes)
            ])  # fmt: skip
            cables.join(below, switches[unit * planes + (rail if lowest else 0)], rate)
            rate *= tier.members * (1 if lowest else rails) / tier.oversubscription
            below, unit = switches, np.repeat(np.arange(count), planes)
            rails = planes
            if len(below) == 1:
                break
        if len(below) > 1:
            for spine in cables.switches([f"spine{s}" for s in range(max(1, self.spines))]):
                cables.join(below, spine, rate / max(1, self.spines))
        return Topology.of(cables, n_nodes, self.rails, routing=self.routing)
