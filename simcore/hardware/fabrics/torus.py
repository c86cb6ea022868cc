"""Tori and meshes of two or three dimensions: nodes joined to their neighbours, no switches."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from simcore.hardware.fabrics.record import KINDS, FabricRecord, Rate, rate_of
from simcore.hardware.fabrics.topology import Cables, Routing, Topology

_MOST_NODES = 4_096


@KINDS.register("torus")
class Torus(FabricRecord):
    """A torus: nodes are numbered along the last dimension first, and traffic goes dimension by
    dimension, the first one first.

    ``shape``: nodes along each dimension. ``link``: rate of each link to a neighbour; by default a
    node's network divided by its links. ``wraps``: whether the ends of a dimension are joined.
    """

    kind: Literal["torus"] = "torus"
    routing: Routing = "first"
    shape: tuple[Annotated[int, Field(ge=1, le=_MOST_NODES)], ...] = Field(
        min_length=2, max_length=3
    )
    link: Rate | None = None
    wraps: bool = True

    @model_validator(mode="after")
    def _is_not_too_large(self) -> Torus:
        if self.most_nodes > _MOST_NODES:
            raise ValueError(f"a torus has at most {_MOST_NODES:,} nodes, not {self.most_nodes:,}")
        return self

    @property
    def most_nodes(self) -> int:
        return int(np.prod(self.shape))

    def in_words(self) -> str:
        return f"{'x'.join(map(str, self.shape))} {'torus' if self.wraps else 'mesh'}"

    def topology(self, n_nodes: int, node_bytes_per_s: float) -> Topology:
        count = self.most_nodes
        at = np.arange(count)
        cables = Cables([f"node{n}" for n in at])
        rate = rate_of(self.link) if self.link else node_bytes_per_s / (2 * len(self.shape))
        after = count
        for size in self.shape:
            after //= size
            place = at // after % size
            ends = (place < size - 1) | (self.wraps and size > 2)  # two nodes have one cable
            near = at[ends & (size > 1)]
            cables.join(near, near + after * np.where(place[near] < size - 1, 1, 1 - size), rate)
        return Topology.of(cables, count, routing=self.routing, forwards=True)
