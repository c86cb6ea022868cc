"""What pipeline stages hold, for many points of one form on clusters of one kind at a time.

# P points, p stages
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from simcore.base.arrays import NDArray
from simcore.engine.job_memory import Beside, beside_tensors, memory_of_stage
from simcore.engine.resolved import Request
from simcore.workload.sharding import stretch

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Room:
    """Whether stages hold stretches of layers; equal stretches are asked once, for all points.

    ``request``: the form on any of the clusters; arrays [P]: micro-batch, accumulation, devices
    and nodes of each point, and the bytes that a device may need.
    """

    request: Request
    micro_batch: Array
    grad_accum: Array
    n_gpus: Array
    n_nodes: Array
    room_bytes: Array
    _known: dict[tuple[bool, tuple[int, ...]], list[list[bool]]] = field(default_factory=dict)

    @classmethod
    def of_job(cls, request: Request) -> Room:
        """Of one job as it is."""
        cluster = request.cluster
        asked = (request.micro_batch, request.grad_accum, cluster.n_gpus, cluster.n_nodes)
        micro_batch, grad_accum, n_gpus, n_nodes = (np.array([float(v)]) for v in asked)
        room = np.array([float(min(g.gpu.usable_memory_bytes for g in cluster.groups))])
        return cls(request, micro_batch, grad_accum, n_gpus, n_nodes, room)

    def of_point(self, at: int) -> Callable[[int, int, int], bool]:
        """Whether, at a point, stage s holds layers a to b - 1: ``fits`` of ``balanced_cut``."""
        assert self.request.placed is not None
        whole = self.request.placed.part
        starts = (*whole.layer_starts, len(whole.order))
        asked: dict[tuple[int, int], list[bool]] = {}

        def fits(s: int, a: int, b: int) -> bool:
            found = asked.get((a, b))
            if found is None:
                start, stop = starts[a] if a else 0, starts[b]
                key = a == 0, whole.order[start:stop]
                if key not in self._known:
                    self._known[key] = self._held(start, stop)
                found = asked[a, b] = self._known[key][at]
            return found[s]

        return fits

    def _held(self, start: int, stop: int) -> list[list[bool]]:
        """Of each point, which stages hold these blocks."""
        assert self.request.placed is not None
        n_stages = self.request.placed.layout.pp
        memory = memory_of_stage(
            self.request,
            stretch(self.request.placed.part, start, stop),
            np.tile(np.arange(float(n_stages)), len(self.micro_batch)),
            *self._columns,
            beside=self._beside,
        )
        needed = memory.needed.reshape(-1, n_stages)
        held: list[list[bool]] = (needed <= self.room_bytes[:, None]).tolist()
        return held

    @cached_property
    def _columns(self) -> tuple[Array, ...]:
        """Micro-batch, accumulation, devices and nodes of each point's stages [P p]."""
        assert self.request.placed is not None
        each = self.request.placed.layout.pp
        columns = (self.micro_batch, self.grad_accum, self.n_gpus, self.n_nodes)
        return tuple(np.repeat(column, each) for column in columns)

    @cached_property
    def _beside(self) -> Beside:
        return beside_tensors(self.request, *self._columns[2:])
