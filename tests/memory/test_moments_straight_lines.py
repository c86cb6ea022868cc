"""Instances of blocks on a straight line between others are no moments of their own."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from simcore.memory import moments
from simcore.memory.moments import Moments, Walked, moments_of
from tests.timing.test_evaluate_stages_together import PIPELINES, asked


@pytest.mark.parametrize("of", PIPELINES)
def test_instances_on_a_straight_line_never_have_the_peak_alone(of: Any) -> None:
    """Against every instance of every block: the most for any weights of the columns."""
    request = asked(*of)
    strategy = request.strategy
    part = request.placed.stages[0].workload if request.placed else request.workload
    words = [Walked(part, strategy.recompute == "full", 1)], strategy.precision, False, 0, 0.0
    with patch.object(moments, "_corners", lambda _, kinds: np.ones(kinds.shape, bool)):
        every = moments_of(*words)[0]
    few = moments_of(*words)[0]
    assert len(few.held) <= len(every.held)
    rng = np.random.default_rng(0)
    for _ in range(50):
        weights = rng.exponential(size=6) * rng.integers(0, 2, 6)
        assert most(few, weights) == pytest.approx(most(every, weights), rel=1e-12)


def most(of: Moments, weights: Any) -> float:
    columns = (of.grads * 1e9, of.cast, of.window, of.whole, of.stub, of.early)
    total = of.held + of.working + sum(w * c for w, c in zip(weights, columns, strict=True))
    return float(total.max())
