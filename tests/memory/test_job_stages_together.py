"""Memory of the stages of a job asked together: what each has alone, and the fullest rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simcore.answer.predict import predict
from simcore.memory.job import memory_of_stages, memory_over, run_memories
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
