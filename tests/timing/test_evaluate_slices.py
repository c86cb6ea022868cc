"""A long configuration axis is evaluated in slices, which give what each point gives alone."""

from __future__ import annotations

import numpy as np
import pytest
from strategies import block, points, rates, strategy, workload

from simcore.timing.evaluate import CHUNK, Job, evaluate

MODEL = workload([block("a", [10], forward_flop=3.0, backward_flop=5.0), block("b", [7])])


@pytest.mark.parametrize("size", [1, CHUNK, 2 * CHUNK + 1, 3 * CHUNK - 1])
def test_slices_are_what_each_point_is_alone(size: int) -> None:
    """Ranks from 2 to 9 and one to three micro-steps, round and round."""
    job = Job(MODEL, strategy("ddp", optimizer="sgd-plain"), (rates(),))
    at = np.arange(size)
    found = evaluate(job, points(size, n_ranks=2.0 + at % 8, grad_accum=1.0 + at % 3))
    assert len(found.step_s) == size
    for n in {0, size // 2, size - 1, min(size - 1, CHUNK)}:
        alone = evaluate(job, points(n_ranks=2.0 + n % 8, grad_accum=1.0 + n % 3))
        assert found.step_s[n] == alone.step_s[0] > 0.0
        assert found.comm_s[n] == alone.comm_s[0] > 0.0
        for term, seconds in found.terms_s.items():
            assert seconds[n] == alone.terms_s[term][0], term


def test_a_timeline_is_kept_where_there_are_no_slices() -> None:
    job = Job(MODEL, strategy("ddp", optimizer="sgd-plain"), (rates(),))
    for size in (1, CHUNK):
        assert evaluate(job, points(size), keep_timeline=True).timeline is not None
        assert evaluate(job, points(size)).timeline is None
