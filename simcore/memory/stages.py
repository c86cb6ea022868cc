"""Whether pipeline stages fit in memory, for many points of one form at a time.

The points differ in cluster size, batch and accumulation; their clusters are of one kind.

# P points, p stages
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cache, cached_property
from itertools import groupby
from operator import ge, le

import numpy as np

from simcore.base.arrays import Array
from simcore.base.record import dataclass
from simcore.memory.job import axis_of, memory_of_stage
from simcore.memory.parts import Beside, beside_tensors
from simcore.request.resolved import Request
from simcore.workload.sharding import stretch

#: How often a range of layers runs each of its blocks, one number for each run of equal blocks.
Counts = tuple[int, ...]


@dataclass(frozen=True)
class StageLimits:
    """Whether stages hold given ranges of layers; equal ranges are computed once for all points.

    Memory grows with the layers: what follows from a larger range that fits, or a smaller one that
    does not, is not computed.

    ``request``: the job on any of the clusters; ``over``: micro-batch, accumulation, devices and
    nodes of each point; ``limit_bytes``: memory that a device of each point offers; arrays [P].
    """

    request: Request
    over: tuple[Array, Array, Array, Array]
    limit_bytes: Array
    #: What was computed: by whether the first layer is included and by the blocks, then by counts.
    _known: dict[tuple[bool, tuple[int, ...]], dict[Counts, list[list[bool]]]] = field(
        default_factory=dict
    )

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
        found: dict[tuple[int, int, int], bool] = {}

        @cache
        def like(a: int, b: int) -> tuple[dict[Counts, list[list[bool]]], Counts, int, int]:
            """What is known of ranges with the same blocks, the range's counts and its ends."""
            start, stop = starts[a] if a else 0, starts[b]
            runs = [(block, len(list(row))) for block, row in groupby(whole.order[start:stop])]
            blocks, counts = (block for block, _ in runs), tuple(n for _, n in runs)
            return self._known.setdefault((a == 0, tuple(blocks)), {}), counts, start, stop

        def fits(s: int, a: int, b: int) -> bool:
            if (s, a, b) not in found:
                known, counts, start, stop = like(a, b)
                verdict = _follows(known, counts, at, s)
                if verdict is None:
                    known[counts] = self._held(start, stop)
                    verdict = known[counts][at][s]
                found[s, a, b] = verdict
            return found[s, a, b]

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


def _follows(
    known: Mapping[Counts, list[list[bool]]], counts: Counts, at: int, stage: int
) -> bool | None:
    """Whether a stage of a point holds a range with these counts, by what is ``known`` of others.

    None where it does not follow from any of them.
    """
    for others, held in known.items():
        if all(map(le, counts, others) if held[at][stage] else map(ge, counts, others)):
            return held[at][stage]
    return None
