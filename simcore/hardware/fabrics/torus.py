"""Tori and meshes of two or three dimensions: nodes joined to their neighbours, no switches."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from simcore.base.figures import entry
from simcore.hardware.fabrics.record import KINDS, FabricRecord, Rate, rate_of
from simcore.hardware.fabrics.topology import Cables, Index, Routes, Topology

_MOST_NODES = 4_096


@KINDS.register("torus")
class Torus(FabricRecord):
    """A torus: nodes are numbered along the last dimension first, and traffic goes dimension by
    dimension, the first one first.

    ``shape``: nodes along each dimension. ``link``: rate of each link to a neighbour; by default a
    node's network divided by its links. ``wraps``: whether the ends of a dimension are joined.
    """

    kind: Literal["torus"] = "torus"
    routing: Literal["by-dimension"] = "by-dimension"  # type: ignore[assignment]
    shape: tuple[Annotated[int, Field(ge=1, le=_MOST_NODES)], ...] = entry(
        min_length=2, max_length=3
    )
    link: Rate | None = None
    wraps: bool = True

    def check(self) -> None:
        super().check()
        if self.most_nodes > _MOST_NODES:
            raise ValueError(f"a torus has at most {_MOST_NODES:,} nodes, not {self.most_nodes:,}")

    @property
    def most_nodes(self) -> int:
        return int(np.prod(self.shape))

    def in_words(self) -> str:
        return f"{'x'.join(map(str, self.shape))} {'torus' if self.wraps else 'mesh'}"

    def topology(self, n_nodes: int, node_bytes_per_s: float) -> Topology:
        at = np.arange(self.most_nodes)
        cables = Cables([f"node{n}" for n in at])
        rate = rate_of(self.link) if self.link else node_bytes_per_s / (2 * len(self.shape))
        ahead = np.full((len(self.shape), len(at)), -1)  # link from each node to the next
        back, after, n_links = ahead.copy(), len(at), 0
        for d, size in enumerate(self.shape):
            after //= size
            place = at // after % size
            ends = (place < size - 1) | (self.wraps and size > 2)  # two nodes have one cable
            near = at[ends & (size > 1)]
            far = near + after * np.where(place[near] < size - 1, 1, 1 - size)
            cables.join(near, far, rate)
            ahead[d, near] = n_links + 2 * np.arange(len(near))
            back[d, far] = ahead[d, near] + 1
            n_links += 2 * len(near)
        return Topology.of(
            cables, len(at), forwards=True, paths=partial(self._paths, ahead, back)
        )  # fmt: skip

    def _paths(self, ahead: Index, back: Index, source: Index, target: Index) -> Routes:
        """Dimension by dimension the shorter way round; where both are as long, half each way."""
        flows, links, parts = [], [], []
        at, after = source.copy(), self.most_nodes
        for d, size in enumerate(self.shape):
            after //= size
            place, goal = at // after % size, target // after % size
            up, down = (goal - place) % size, (place - goal) % size
            if not self.wraps or size == 2:  # one way only
                up, down = np.where(goal > place, up, size), np.where(goal < place, down, size)
            rising = np.sign(down - up) / 2.0 + 0.5  # part of a flow that goes upwards
            for steps, frac, sign, near in ((up, rising, 1, ahead), (down, 1.0 - rising, -1, back)):
                taken = np.where((frac > 0.0) & (goal != place), steps, 0)
                flow = np.repeat(np.arange(len(at)), taken)
                done = np.arange(len(flow)) - np.repeat(np.cumsum(taken) - taken, taken)
                here = (place[flow] + sign * done) % size
                flows.append(flow)
                links.append(near[d, at[flow] + (here - place[flow]) * after])
                parts.append(frac[flow])
            at = at + (goal - place) * after
        return Routes(*map(np.concatenate, (flows, links, parts)))
