"""What a whole job needs, and the largest micro-batch that fits."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median, stdev
from typing import Any

import numpy as np
import pytest

from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.memory.allocator import replay
from simcore.memory.events import step_events
from simcore.memory.job import (
    axis_of,
    fullest,
    largest_batch,
    memory_at,
    memory_over,
    memory_result,
    stage_allocated_bytes,
)
from simcore.memory.terms import loose_bytes
from simcore.request.resolved import Request
from simcore.workload.graph import Workload
from simcore.workload.models import MODELS

JOBS: list[tuple[str, str, dict[str, Any]]] = [
    ("gpt2-xl", "1x8xA100", {"strategy": "zero1", "precision": "bf16"}),
    ("vit-l-16", "1x1xT4", {}),
    ("bert-large", "1x8xT4", {"precision": "amp-fp16"}),
    ("llama3-8b", "1x8xH100", {"pp": 2, "precision": "bf16"}),
]


@pytest.mark.parametrize("shares", [None, "3:1", "1:3"])
def test_the_fullest_rank_is_that_with_least_to_spare(shares: str | None) -> None:
    request = make_request("resnet-50", "1x2xA100+1x2xT4", micro_batch=32, shares=shares)
    memory, capacity, batch = fullest(request)
    assert (batch == 32) == (shares is None)
    filled = float(memory.needed[0]) / capacity
    kinds = zip(request.kinds, request.shares or (32, 32), strict=True)
    each = [
        float(memory_at(request, np.array([float(n)])).needed[0])
        / float(k.gpu.usable_memory_bytes if shares else capacity)
        for k, n in kinds
    ]
    assert filled == max(each)


@pytest.mark.parametrize(("model", "gpus", "options"), JOBS)
def test_the_largest_batch_fits_and_the_next_does_not(
    model: str, gpus: str, options: dict[str, Any]
) -> None:
    request = make_request(model, gpus, **options)
    best = largest_batch(request, 4096)
    assert best >= 1
    assert predict(replace(request, micro_batch=best)).fits
    assert not predict(replace(request, micro_batch=best + 1)).fits
    for limit in {max(best - 1, 1), best, best + 1}:
        assert largest_batch(request, limit) == min(limit, best)


@pytest.mark.parametrize("limit", [4096, 4097, 10**6])
def test_the_largest_of_thousands_is_exact(limit: int) -> None:
    request = make_request("resnet-18-cifar", "1x1xH100")
    best = largest_batch(request, limit)
    capacity = request.cluster.groups[0].gpu.usable_memory_bytes
    needed = memory_at(request, np.array([float(best), best + 1.0])).needed
    assert needed[0] <= capacity
    assert best == limit or needed[1] > capacity


def test_what_is_needed_decides_whether_it_fits() -> None:
    result = memory_result(make_request("gpt2", "1xA100", micro_batch=8))
    assert result.needed_bytes > result.device_bytes
    for capacity, fits in ((result.needed_bytes, True), (result.needed_bytes - 1.0, False)):
        assert replace(result, capacity_bytes=capacity).fits == fits


# -- fragmentation -----------------------------------------------------------------------------


def holes_frac(request: Request) -> float:
    """Least limit with which a job's allocations succeed, over its tensors; by replays."""
    events = step_events(
        request.held_workload, request.strategy, micro_batch=request.micro_batch
    ).events
    unlimited = replay(events)
    least, tried = float(unlimited.peak_reserved_bytes), float(unlimited.requested.max())
    live = tried
    while least - tried > 0.002 * live:
        limit = (least + tried) / 2
        if replay(events, limit).failed_at is None:
            least = limit
        else:
            tried = limit
    memory = memory_at(request, np.array([float(request.micro_batch)]))
    return (least - float(memory.reserved[0])) / loose_bytes(memory.terms)


def is_layered(model: Workload) -> bool:
    """Whether one repeated layer makes up half of the blocks."""
    times = [model.order.count(i) for i, b in enumerate(model.blocks) if b.recomputable]
    return 2 * max(times, default=0) >= len(model.order)


@pytest.mark.slow
def test_holes_of_unlike_layers_are_the_median_of_replays() -> None:
    """The figure of runtime.yaml, of one model an architecture, half full and full."""
    found: dict[str, float] = {}
    for name in MODELS.names():
        arch = MODELS[name].arch
        if arch in found or len(MODELS[name].build().order) > 90:
            continue
        request = make_request(name, "1x1xA100", micro_batch="max")
        if is_layered(request.workload) or request.micro_batch > 1024:
            continue
        half = replace(request, micro_batch=max(1, request.micro_batch // 2))
        found[arch] = median(holes_frac(r) for r in (request, half))
    assert len(found) > 15
    logs = [math.log(v) for v in found.values()]
    figure = make_request("resnet-50", "1x1xA100").profile.allocator_stuck_frac("unlike").value
    # standard error of a median: 1.2533 standard deviations over sqrt(n)
    error = 1.2533 * stdev(logs) / math.sqrt(len(logs))
    assert abs(median(logs) - math.log(figure)) < 2.0 * error < 0.8


def test_the_last_rank_is_on_the_last_stage() -> None:
    """It holds the head's weights and the loss, and fewer micro-batches than the first stage."""
    words = {"software": "megatron", "tp": 1, "pp": 4, "global_batch": 16, "precision": "bf16"}
    request = make_request("llama3-8b", "1x8xH100", micro_batch=1, **words)
    stages = [float(m.allocated[0]) for m in memory_over(request, *axis_of(request))]
    assert stage_allocated_bytes(request, -1) == stages[-1] != stages[0]
    assert stage_allocated_bytes(request, 0) == stages[0]


def test_a_plan_of_all_buffers_loses_nothing_to_fragmentation() -> None:
    """XLA's programs; the same job of PyTorch's allocator needs more than it holds."""
    job: dict[str, Any] = {"recompute": "full", "strategy": "zero3", "micro_batch": 4}
    planned = predict(make_request("llama3-8b", "v6e-64", software="maxtext@tpu", **job)).memory
    allocated = predict(make_request("llama3-8b", "8x8xH100", software="fsdp", **job)).memory
    assert planned.needed_bytes == planned.device_bytes
    assert allocated.needed_bytes > allocated.device_bytes
