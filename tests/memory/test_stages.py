"""What stages hold, asked for many points at a time, is what each cut of each point needs."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from simcore.answer.request import make_request
from simcore.answer.stages import with_stages
from simcore.hardware.cluster import parse_cluster
from simcore.memory.job import memory_over
from simcore.memory.stages import StageLimits


@pytest.mark.parametrize("words", [{}, {"schedule": "zb-1p"}, {"recompute": "full", "tp": 2}])
def test_stages_hold_what_the_memory_of_each_cut_says(words: dict[str, Any]) -> None:
    request = make_request(
        "llama3.2-1b", "2x8xH100", pp=4, strategy="zero1", precision="bf16", **words
    )
    points = list(product(("1x8xH100", "2x8xH100", "4x8xH100"), (1, 4), (1, 3, 64)))
    clusters = [parse_cluster(name) for name, _, _ in points]
    cuts = [(4, 4, 4, 4), (1, 1, 1, 13), (6, 5, 3, 2), (13, 1, 1, 1)]

    def needed(at: int, sizes: tuple[int, ...]) -> list[float]:
        """Of each stage of a point, by the engine."""
        cut = with_stages(request, sizes)
        assert cut.placed is not None
        cluster, (_, batch, accum) = clusters[at], points[at]
        # Every stage by itself: of equal ones the engine asks the first alone.
        stages = tuple(replace(s, workload=replace(s.workload)) for s in cut.placed.stages)
        cut = replace(cut, placed=replace(cut.placed, stages=stages))
        over = (batch, accum, cluster.n_gpus, cluster.n_nodes)
        found = memory_over(cut, *(np.array([float(v)]) for v in over))
        return [float(m.needed[0]) for m in found]

    table = {(at, cut): needed(at, cut) for at in range(len(points)) for cut in cuts}
    limits = np.quantile([n for row in table.values() for n in row], np.linspace(0.1, 0.9, 18))
    over = (
        np.array([float(batch) for _, batch, _ in points]),
        np.array([float(accum) for _, _, accum in points]),
        np.array([float(c.n_gpus) for c in clusters]),
        np.array([float(c.n_nodes) for c in clusters]),
    )
    stage_limits = StageLimits(request, over, limits)
    held = set()
    for (at, cut), bytes_of in table.items():
        fits, first = stage_limits.of_point(at), 0
        for s, size in enumerate(cut):
            assert fits(s, first, first + size) == (bytes_of[s] <= limits[at])
            held.add(bytes_of[s] <= limits[at])
            first += size
    assert held == {True, False}
