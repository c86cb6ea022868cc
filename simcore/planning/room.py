"""What pipeline stages hold, for many points of one form on clusters of one kind at a time.

# P points, p stages
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from simcore.base.arrays import NDArray
from simcore.engine.job_memory import memory_of_stage
from simcore.engine.resolved import Request
from simcore.workload.sharding import layer_starts, stretch

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

    def of_point(self, at: int) -> Callable[[int, int, int], bool]:
        """Whether, at a point, stage s holds layers a to b - 1: ``fits`` of ``balanced_cut``."""
        assert self.request.placed is not None
        whole = self.request.placed.part
        starts = (*layer_starts(whole), len(whole.order))
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
        n_points, n_stages = len(self.micro_batch), self.request.placed.layout.pp
        columns = (self.micro_batch, self.grad_accum, self.n_gpus, self.n_nodes)
        memory = memory_of_stage(
            self.request,
            stretch(self.request.placed.part, start, stop),
            np.tile(np.arange(float(n_stages)), n_points),
            *(np.repeat(column, n_stages) for column in columns),
        )
        needed = memory.needed.reshape(n_points, n_stages)
        held: list[list[bool]] = (needed <= self.room_bytes[:, None]).tolist()
        return held
