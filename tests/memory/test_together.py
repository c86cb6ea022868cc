"""Memory of the stages of several jobs asked together: what the rank of each holds alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simcore.answer.request import make_request
from simcore.base.arrays import Array
from simcore.memory import together
from simcore.memory.job import JobStage, axis_of, memory_over
from simcore.memory.together import StagesOver, fullest_over
from simcore.request.resolved import Request
from simcore.workload.sharding import Stage
from tests.timing.test_evaluate_stages_together import PIPELINES, asked


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
    of_stages = [(request, stage) for stage in stages]
    ((device, needed),) = fullest_over([StagesOver(of_stages, *over)])
    every = memory_over(request, *over, stages)
    np.testing.assert_allclose(device, [m.device for m in every], rtol=1e-14)
    np.testing.assert_allclose(needed, [m.needed for m in every], rtol=1e-14)
    np.testing.assert_allclose(device, [sum(m.terms.values()) for m in every], rtol=1e-12)


def stages_of(request: Request) -> list[JobStage]:
    assert request.placed is not None
    return [(request, request.placed.stages[i]) for i, _ in request.placed.distinct_stages]


@pytest.mark.parametrize("limit", [4096, 30, 1])  # in one call, in a few, and each stage alone
@pytest.mark.parametrize("strategy", ["ddp", "zero3"])
def test_pipelines_of_several_lengths_are_what_each_is_alone(
    monkeypatch: pytest.MonkeyPatch, limit: int, strategy: str
) -> None:
    """Two, four and eight stages with and without recompute, on axes of different lengths."""
    monkeypatch.setattr(together, "_TOGETHER", limit)
    each = []
    for pp, length in ((2, 5), (4, 3), (8, 6)):
        words = {"tp": 2, "pp": pp, "strategy": strategy}
        requests = [asked("llama3-8b", "8x8xH100", {**words, "recompute": how})
                    for how in ("none", "full")]  # fmt: skip
        counts = np.arange(length)
        over = (1.0 + counts % 2, 1.0 + counts, np.full(length, 64.0), np.full(length, 8.0))
        each.append((requests, over))
    held = fullest_over([
        StagesOver([s for request in requests for s in stages_of(request)], *over)
        for requests, over in each
    ])  # fmt: skip
    for (requests, over), (device, needed) in zip(each, held, strict=True):
        alone = [m for request in requests for m in memory_over(request, *over)]
        assert device == pytest.approx(np.stack([m.device for m in alone]), rel=1e-12)
        assert needed == pytest.approx(np.stack([m.needed for m in alone]), rel=1e-12)


def test_a_whole_model_that_only_a_replay_lets_fit_needs_what_its_device_has() -> None:
    """Of batches of which the usual fragmentation leaves too little for some."""
    request = make_request("bert-large", "1xA100-40GB", micro_batch=1, precision="bf16")
    batches = np.arange(1.0, 400.0)
    over: tuple[Array, ...] = axis_of(request, batches)
    stage = Stage(request.held_workload, 0, 0)
    ((device, needed),) = fullest_over([StagesOver([(request, stage)], *over)])
    (alone,) = memory_over(request, *over)  # type: ignore[arg-type]
    assert device[0] == pytest.approx(alone.device, rel=1e-12)
    assert needed[0] == pytest.approx(alone.needed, rel=1e-12)
    capacity = float(request.cluster.groups[0].gpu.usable_memory_bytes)
    assert (needed[0] == capacity).any() and (device[0] < capacity).any()
