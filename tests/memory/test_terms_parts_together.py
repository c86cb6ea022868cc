"""Memory of the parts of a model asked together is what each has alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simcore.memory.terms import RankJob, memory_of
from tests.timing.test_evaluate_stages_together import UNLIKE, asked


@pytest.mark.parametrize("of", UNLIKE)
def test_memory_of_parts_together_is_that_of_each_alone(of: Any) -> None:
    request = asked(*of)
    assert request.placed is not None
    parts = [request.placed.stages[i].workload for i, _ in request.placed.distinct_stages]
    batch, accum, ranks = np.array([1.0, 2.0, 3.0]), np.array([4.0, 1.0, 1.0]), np.full(3, 16.0)
    over = (batch, accum, ranks, ranks / 8.0)
    words: dict[str, Any] = {"nvlink": True, "cuda_context_bytes": 1e9, "stuck_frac": 0.1}
    part = np.repeat(np.arange(len(parts)), 3)
    every = (np.tile(x, len(parts)) for x in over)
    found = memory_of(RankJob(tuple(parts), request.strategy, *every, part=part, **words))
    for n, workload in enumerate(parts):
        alone = memory_of(RankJob(workload, request.strategy, *over, **words))
        mine = found.take(part == n)
        assert mine.terms.keys() == alone.terms.keys()
        for name, term in alone.terms.items():
            np.testing.assert_array_equal(mine.terms[name], term, err_msg=name)
        for name in ("allocated", "cached", "needed", "moment"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(alone, name), err_msg=name)
