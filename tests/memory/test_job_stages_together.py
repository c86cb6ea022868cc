"""Memory of the stages of a job asked together: what each has alone, and the fullest rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simcore.answer.predict import predict
from simcore.memory.job import fullest_over, memory_of_stages, memory_over, run_memories
from tests.timing.test_evaluate_stages_together import PIPELINES, asked


@pytest.mark.parametrize("of", PIPELINES[:3])
def test_memory_of_runs_is_that_of_their_first_stages(of: Any) -> None:
    request = asked(*of)
    cluster = request.cluster
    over = (request.micro_batch, request.grad_accum, cluster.n_gpus, cluster.n_nodes)
    batch, accum, gpus, nodes = (np.array([float(v)]) for v in over)
    first = memory_over(request, batch, accum, gpus, nodes)
    runs = run_memories(request)
    assert runs is not None
    assert runs.needed[0] == first[0].needed
    assert predict(request).memory.needed_bytes == max(float(m.needed[0]) for m in first)


@pytest.mark.parametrize("of", PIPELINES[:3])
@pytest.mark.parametrize("n_points", [3, 400])  # all stages at once, and one at a time
def test_memory_of_stages_asked_together_is_that_of_each(of: Any, n_points: int) -> None:
    request = asked(*of)
    assert request.placed is not None
    batch = 1.0 + np.arange(n_points) % 4
    accum = 1.0 + np.arange(n_points) % 7
    gpus, nodes = (np.full(n_points, float(n)) for n in (request.cluster.n_gpus, 8))
    over = (batch, accum, gpus, nodes)
    stages = [request.placed.stages[i] for i, _ in request.placed.distinct_stages]
    together = memory_over(request, *over, stages)
    for stage, found in zip(stages, together, strict=True):
        alone = memory_of_stages(request, [stage], *over)
        assert found.device.tolist() == alone.device.tolist()
        assert found.needed.tolist() == alone.needed.tolist()
    first = memory_over(request, *over)
    assert [m.needed.tolist() for m in first] == [m.needed.tolist() for m in together]


@pytest.mark.parametrize("of", [*PIPELINES[:3], ("llama3-70b", "8x8xH100", {"tp": 4, "pp": 8})])
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("n_points", [7, 400])  # all stages at once, and one at a time
def test_the_fullest_rank_is_that_of_the_terms(of: Any, recompute: str, n_points: int) -> None:
    """With any number of micro-batches in flight, in a shuffled order."""
    model, gpus, options = of
    request = asked(model, gpus, {**options, "recompute": recompute})
    assert request.placed is not None
    shuffled = np.random.default_rng(0).permutation(n_points)
    batch = 1.0 + shuffled % 3
    accum = request.placed.schedule.multiple_of * (1.0 + shuffled % 19)
    nodes = np.where(shuffled % 5 > 2, 8.0, 16.0)
    over = (batch, accum, 8 * nodes, nodes)
    stages = [request.placed.stages[i] for i, _ in request.placed.distinct_stages]
    device, needed = fullest_over([(request, stage) for stage in stages], *over)
    every = memory_over(request, *over, stages)
    np.testing.assert_allclose(device, [m.device for m in every], rtol=1e-14)
    np.testing.assert_allclose(needed, [m.needed for m in every], rtol=1e-14)
    np.testing.assert_allclose(device, [sum(m.terms.values()) for m in every], rtol=1e-12)
