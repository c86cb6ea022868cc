"""Whether pipeline stages fit in memory, for many points of one form at a time.

The points differ in cluster size, batch and accumulation; their clusters are of one kind.

# P points, p stages
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from simcore.base.arrays import NDArray
from simcore.memory.job import Beside, beside_tensors, memory_of_stage
from simcore.request.resolved import Request
from simcore.workload.sharding import stretch

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Room:
    """Whether stages hold given ranges of layers; equal ranges are computed once for all points.

    ``request``: the job on any of the clusters. Arrays [P]: micro-batch, accumulation, devices and
    nodes of each point; ``room_bytes``: memory that a device of each point offers.
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
        """For a single job."""
        cluster = request.cluster
        values = (request.micro_batch, request.grad_accum, cluster.n_gpus, cluster.n_nodes)
        micro_batch, grad_accum, n_gpus, n_nodes = (np.array([float(v)]) for v in values)
        room = np.array([float(min(g.gpu.usable_memory_bytes for g in cluster.groups))])
        return cls(request, micro_batch, grad_accum, n_gpus, n_nodes, room)

    def of_point(self, at: int) -> Callable[[int, int, int], bool]:
        """``fits`` of ``balanced_cut`` for a point: whether stage s holds layers a to b - 1."""
        assert self.request.placed is not None
        whole = self.request.placed.part
        starts = (*whole.layer_starts, len(whole.order))
        by_range: dict[tuple[int, int], list[bool]] = {}

        def fits(s: int, a: int, b: int) -> bool:
            found = by_range.get((a, b))
            if found is None:
                start, stop = starts[a] if a else 0, starts[b]
                key = a == 0, whole.order[start:stop]
                if key not in self._known:
                    self._known[key] = self._held(start, stop)
                found = by_range[a, b] = self._known[key][at]
            return found[s]

        return fits

    def _held(self, start: int, stop: int) -> list[list[bool]]:
        """For each point, whether each stage holds these blocks [P][p]."""
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
