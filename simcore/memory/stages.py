"""Whether pipeline stages fit in memory, for many points of one form at a time.

The points differ in cluster size, batch and accumulation; their clusters are of one kind.

# P points, p stages
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import cached_property

import numpy as np

from simcore.base.arrays import Array
from simcore.base.record import dataclass
from simcore.memory.job import axis_of, memory_of_stage
from simcore.memory.outside import Beside, beside_tensors
from simcore.request.resolved import Request
from simcore.workload.sharding import stretch


@dataclass(frozen=True)
class StageLimits:
    """Whether stages hold given ranges of layers; equal ranges are computed once for all points.

    ``request``: the job on any of the clusters; ``over``: micro-batch, accumulation, devices and
    nodes of each point; ``limit_bytes``: memory that a device of each point offers; arrays [P].
    """

    request: Request
    over: tuple[Array, Array, Array, Array]
    limit_bytes: Array
    _known: dict[tuple[bool, tuple[int, ...]], list[list[bool]]] = field(default_factory=dict)

    @classmethod
    def of_job(cls, request: Request) -> StageLimits:
        """For a single job."""
        limit = min(g.gpu.usable_memory_bytes for g in request.cluster.groups)
        return cls(request, axis_of(request), np.array([float(limit)]))

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
            np.tile(np.arange(float(n_stages)), len(self.limit_bytes)),
            *(np.repeat(column, n_stages) for column in self.over),
            beside=self._beside,
        )
        needed = memory.needed.reshape(-1, n_stages)
        return (needed <= self.limit_bytes[:, None]).tolist()

    @cached_property
    def _beside(self) -> Beside:
        assert self.request.placed is not None
        *_, n_gpus, n_nodes = (np.repeat(c, self.request.placed.layout.pp) for c in self.over)
        return beside_tensors(self.request, n_gpus, n_nodes)
