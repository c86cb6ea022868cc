"""What a whole job needs, and the largest micro-batch that fits."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median, stdev
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from strategies import block, strategy, workload

from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.memory.allocator import replay
from simcore.memory.events import step_events
from simcore.memory.job import (
    Ranks,
    _deferred_share,
    _equal_layers,
    _largest,
    _largest_replayed,
    _stuck_frac,
    _waiting_share,
    axis_of,
    fullest,
    in_flight,
    largest_batch,
    memory_at,
    memory_of_stage,
    memory_over,
    memory_result,
    ranks_of,
    stage_allocated_bytes,
)
from simcore.memory.parts import saved_activations
from simcore.memory.terms import loose_bytes
from simcore.memory.together import StagesOver, fullest_over
from simcore.request.resolved import Request
from simcore.workload.graph import Block, Op, Workload
from simcore.workload.models import MODELS
from simcore.workload.saved import Saved

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


@pytest.mark.parametrize(
    ("fixed", "each", "capacity", "limit", "best"),
    [
        (0, 1, 0.5, 4096, 0), (0, 1, 1, 4096, 1), (2, 3, 302, 4096, 100), (2, 3, 301, 4096, 99),
        (0, 1, 4096, 4096, 4096), (0, 1, 1e9, 10**6, 10**6), (7, 2, 246_913, 10**6, 123_453),
        (5, 1, 4, 10, 0), (0, 1, 1e9, 0, 0), (0, 1, 101, 102, 101),
    ],
)  # fmt: skip
def test_the_largest_batch_by_division(
    fixed: float, each: float, capacity: float, limit: int, best: int
) -> None:
    """Bytes fixed + each x batch: (capacity - fixed) / each whole samples, at most the limit."""
    asked: list[int] = []

    def needed(batches: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        asked.append(len(batches))
        assert len(set(batches.tolist())) == len(batches) and 1 <= batches.min() <= limit
        return fixed + each * batches

    assert _largest(needed, capacity, limit) == best
    assert sum(asked) <= 310 and len(asked) <= 3 + (limit > 0)  # a hundred at a time


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
        if arch in found or is_layered(model := MODELS[name].build()) or len(model.order) > 90:
            continue
        request = make_request(name, "1x1xA100", micro_batch="max")
        if request.micro_batch > 1024:
            continue
        memory, capacity, _ = fullest(request)
        if memory.needed[0] > capacity:  # not even one sample fits
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


STAGED: dict[str, Any] = {"precision": "bf16", "strategy": "zero1", "micro_batch": 1, "pp": 4}


def _staged(**words: Any) -> Request:
    """24 layers of bert-large on four stages of two GPUs; 16 micro-batches unless said."""
    return make_request("bert-large", "1x8xH100", **{**STAGED, "global_batch": 32, **words})


@pytest.mark.parametrize("words", [{}, {"schedule": "zb-1p"}, {"vpp": 2}, {"recompute": "full"}])
def test_stages_together_are_each_alone_and_so_are_points_of_an_axis(words: dict[str, Any]) -> None:
    """Micro-batches of 1 to 3 samples, 1 to 16 of them: together, alone, and only what decides."""
    request = _staged(**words).held
    assert request.placed is not None
    stages = request.placed.stages
    batches, accum = np.array([1.0, 3.0, 2.0, 1.0, 1.0]), np.array([16.0, 16.0, 4.0, 1.0, 2.0])
    gpus, nodes = np.full(5, 8.0), np.ones(5)
    together = memory_over(request, batches, accum, gpus, nodes, stages)
    of_stages = [(request, stage) for stage in stages]
    ((device, needed),) = fullest_over([StagesOver(of_stages, batches, accum, gpus, nodes)])
    assert len(together) == len(device) == 4
    for n, stage in enumerate(stages):
        assert device[n] == pytest.approx(together[n].device, rel=1e-12)
        assert needed[n] == pytest.approx(together[n].needed, rel=1e-12)
        for c in range(5):
            one = (column[c : c + 1] for column in (batches, accum, gpus, nodes))
            (alone,) = memory_over(request, *one, [stage])
            assert alone.device[0] == pytest.approx(device[n, c], rel=1e-12)
            assert alone.needed[0] == pytest.approx(needed[n, c], rel=1e-12)
    # the first of each kind of equal stages stands for all of them
    assert max(m.device[0] for m in memory_over(request, batches, accum, gpus, nodes)) == (
        pytest.approx(device[:, 0].max(), rel=1e-12)
    )


def test_the_first_stage_holds_a_micro_batch_for_each_stage_after_it() -> None:
    """1F1B: 4, 3, 2 and 1 of sixteen, at most as many as there are; activations grow with them."""
    for accum, held in ((16, [4.0, 3.0, 2.0, 1.0]), (2, [2.0, 2.0, 2.0, 1.0]), (1, [1.0] * 4)):
        request = _staged(global_batch=2 * accum).held
        assert request.placed is not None
        ranks = ranks_of([(request, stage) for stage in request.placed.stages], 1)
        assert ranks.position.tolist() == [0.0, 1.0, 2.0, 3.0]
        assert in_flight(request, ranks, np.full(4, float(accum))).tolist() == held
    undivided = make_request("bert-large", "1x8xH100", micro_batch=1)
    zero = np.zeros(2)
    ranks = Ranks(((undivided.workload, False),), zero.astype(np.intp), zero, np.ones(2), zero)
    assert in_flight(undivided, ranks, np.full(2, 16.0)).tolist() == [1.0, 1.0]


def _headed() -> Workload:
    """Two layers of 100 saved elements; a head of 30 whose loss keeps 50 and one more."""
    up = Op(name="up", fwd=(), saved=Saved(low=100.0))
    head = Block(name="head", ops=(
        Op(name="head", fwd=(), saved=Saved(low=30.0), gemm_weight=5.0, result=Saved(low=50.0)),
        Op(name="loss", fwd=(), saved=Saved(low=1.0, high=50.0)),
    ))  # fmt: skip
    return workload([Block(name="layer", ops=(up,), recomputable=True), head], (0, 0, 1))


def _of(**schedule: str) -> Any:
    placed = SimpleNamespace(schedule=SimpleNamespace(**schedule))
    return SimpleNamespace(strategy=strategy("ddp", precision="bf16"), placed=placed)


def test_a_micro_batch_that_waits_on_the_last_stage_holds_less_of_the_head() -> None:
    """In bf16 400 bytes of layers, and of the head 60 and the loss's 102. It has none of the head
    yet, or 100 bytes of gradient are in place of what the loss kept."""
    model = _headed()
    kept = 400 + 60 + 102
    absent, gradient = (
        _waiting_share(_of(waiting_head=word), model, False) for word in ("absent", "gradient")
    )
    assert absent == pytest.approx(400 / kept)
    assert gradient == pytest.approx((kept - 102 + 100) / kept)
    empty = workload([Block(name="head", ops=(Op(name="head", fwd=()),))])
    assert _waiting_share(_of(waiting_head="absent"), empty, False) == 1.0


def test_a_micro_batch_that_waits_has_no_module_of_further_tokens() -> None:
    """The last chunk holds it beside the head: 80 bytes of it are gone too, or its input's 20."""
    model = _headed()
    tokens = Op(name="look-up", fwd=(), saved=Saved(low=40.0), role="next_tokens")
    module = Block(name="next token", ops=(tokens,), recomputable=True, boundary=Saved(low=10.0))
    *layers, head = model.blocks
    fed = workload([*layers, module, head], (0, 0, 1, 2))
    kept = 400 + 80 + 60 + 102
    share = _waiting_share(_of(waiting_head="absent"), fed, False)
    assert share == pytest.approx(400 / kept)
    again = saved_activations(fed, strategy("ddp", precision="bf16").precision, True).kept
    gone = 20 + 60 + 102
    assert _waiting_share(_of(waiting_head="absent"), fed, True) == pytest.approx(1 - gone / again)


def test_a_deferred_gradient_of_the_head_keeps_its_input_and_the_outputs_gradient() -> None:
    """60 bytes and 100, of 562 that a micro-batch saves."""
    assert _deferred_share(_of(), _headed(), False) == pytest.approx(160 / 562)
    empty = workload([Block(name="head", ops=(Op(name="head", fwd=()),))])
    assert _deferred_share(_of(), empty, False) == 0.0


@pytest.mark.parametrize(("deferred", "accum"), [(3, 16), (3, 3), (3, 1), (1, 16)])
def test_the_last_stage_holds_the_head_of_deferred_micro_batches_too(
    deferred: int, accum: int
) -> None:
    request = _staged(global_batch=2 * accum, deferred_heads=deferred).held
    assert request.placed is not None
    ranks = ranks_of([(request, stage) for stage in request.placed.stages], 1)
    held = in_flight(request, ranks, np.full(4, float(accum)))
    share = _deferred_share(request, request.placed.stages[-1].workload, False)
    usual = [min(float(n), accum) for n in (4, 3, 2, 1)]
    assert held[:3].tolist() == usual[:3]
    assert held[3] == pytest.approx(1.0 + share * min(deferred, accum - 1)) and share > 0.0


@pytest.mark.parametrize("words", [{"vpp": 2}, {"schedule": "zb-1p"}])
def test_micro_batches_that_wait_on_the_last_stage_count_less(words: dict[str, Any]) -> None:
    """All but the one in work."""
    request = _staged(**words).held
    assert request.placed is not None
    stages, schedule = request.placed.stages, request.placed.schedule
    ranks = ranks_of([(request, stage) for stage in stages], 1)
    found = in_flight(request, ranks, np.full(4, 16.0))
    usual = schedule.in_flight(request.placed.layout, ranks.position, np.full(4, 16.0))
    share = _waiting_share(request, stages[-1].workload, False)
    assert 0.0 < share <= 1.0
    assert found[:3].tolist() == usual[:3].tolist()
    assert found[3] == pytest.approx(1.0 + (usual[3] - 1.0) * share)


def test_where_the_usual_fragmentation_does_not_fit_a_replay_decides() -> None:
    """Both of the largest batches need more than the device by the closed form, and hold less."""
    request = make_request("resnet-50", "1x1xT4")
    best, capacity = largest_batch(request, 4096), request.cluster.groups[0].gpu.usable_memory_bytes
    batches = np.array([best, best + 1.0])
    closed = memory_of_stage(request, request.held_workload, 0, *axis_of(request, batches))
    assert (closed.needed > capacity).all() and (closed.device < capacity).all()
    replayed = memory_at(request, batches)
    assert replayed.needed[0] == capacity and replayed.needed[1] == closed.needed[1]
    growing = replace(request, growing_segments=True)
    assert memory_at(growing, batches).needed.tolist() != replayed.needed.tolist()


@pytest.mark.parametrize(
    ("order", "alike"),
    [((0, 1, 1, 2), True), ((0, 1, 2), False), ((1, 1, 1), True), ((0, 2), False), ((1,), True),
     ((0, 1, 1, 2, 2), False), ((0, 3, 1, 3, 1, 2), False)],
)  # fmt: skip
def test_a_model_of_equal_layers_is_one_that_they_make_half_of(
    order: tuple[int, ...], alike: bool
) -> None:
    """Blocks 1 and 3 are layers, 0 and 2 are not."""
    blocks = [block(f"b{i}", [1], recomputable=i % 2 == 1) for i in range(4)]
    assert _equal_layers(workload(blocks, order)) is alike


@pytest.mark.parametrize(
    ("model", "words", "kind"),
    [
        ("bert-large", {}, "layers"), ("bert-large", {"recompute": "full"}, "recompute"),
        ("resnet-50", {}, "unlike"), ("bert-large", {"pp": 2}, "any"),
    ],
)  # fmt: skip
def test_fragmentation_by_kind_of_job(model: str, words: dict[str, Any], kind: str) -> None:
    request = make_request(model, "1x2xA100", micro_batch=4, **words).held
    placed = request.placed
    part = request.workload if placed is None else placed.stages[0].workload
    assert _stuck_frac(request, part) == request.profile.allocator_stuck_frac(kind).value


def test_a_replay_lets_through_the_largest_batch_and_no_larger_one() -> None:
    """Three blocks that keep 1 to 3 MiB a sample; those that are sure to fit are not replayed."""
    blocks = [
        block(f"b{i}", [2**18], saved=Saved(raw_bytes=i * 2.0**20), recomputable=False)
        for i in (1, 2, 3)
    ]
    model, how, limit = workload(blocks), strategy("ddp"), 256 * 2.0**20

    def runs(batch: int) -> bool:
        events = step_events(
            model, how, micro_batch=batch, grad_accum=1, n_ranks=1, cublas_bytes=0.0
        )
        return replay(events.events, limit).failed_at is None

    best = _largest_replayed(model, how, False, False, limit, 0.0, 0)
    assert 16 < best < 48 and runs(best) and not runs(best + 1)  # 6 MiB a sample
    assert _largest_replayed(model, how, False, False, limit, 0.0, best + 9) == best + 9
    assert _largest_replayed(model, how, False, False, 2.0**20, 0.0, 0) == 0


@pytest.mark.parametrize(("model", "lacks"), [("gpt2", False), ("llama3.1-405b", True)])
def test_what_the_ranks_of_a_node_keep_there_may_exceed_its_memory(model: str, lacks: bool) -> None:
    """Eight ranks with an eighth each of 16 bytes a parameter: gradients, masters, two moments.

    ZeRO-3 with all of it on the host: 2 bytes of weights, 2 of gradients, 4 + 8 of state.
    """
    words = {"strategy": "zero3", "precision": "bf16", "micro_batch": 1, "optimizer": "adamw"}
    request = make_request(model, "1x8xA100", offload="optimizer:cpu,params:cpu", **words)
    found = memory_result(request)
    whole = 16.0 * request.workload.trainable_numel
    assert found.host_bytes * 8 == pytest.approx(whole, rel=1e-9)
    assert found.host_capacity_bytes == request.cluster.groups[0].node.cpu.dram_size.value
    assert found.host_lack_bytes == pytest.approx(max(whole - found.host_capacity_bytes, 0.0))
    assert (found.host_lack_bytes > 0) == lacks and found.nvme_bytes == 0.0


def test_bounds_lie_at_equal_distances_and_nothing_beyond_the_device_is_cached() -> None:
    small, tight = (memory_result(make_request("gpt2", "1xT4", micro_batch=b)) for b in (1, "max"))
    for found in (small, tight):
        assert found.low_bytes + found.high_bytes == pytest.approx(2 * found.device_bytes)
        assert 0.0 < found.low_bytes < found.device_bytes < found.high_bytes
        assert sum(found.terms.values()) == pytest.approx(found.device_bytes)
        assert all(n > 0 for n in found.terms.values())
        outside = found.device_bytes - found.reserved_bytes
        assert found.cached_bytes <= max(found.capacity_bytes - outside, found.reserved_bytes)
    assert small.cached_bytes < small.capacity_bytes
    # no segment stays that the full device could give to another allocation
    assert tight.cached_bytes + outside == tight.capacity_bytes


def test_a_plan_of_all_buffers_loses_nothing_to_fragmentation() -> None:
    """XLA's programs; the same job of PyTorch's allocator needs more than it holds."""
    job: dict[str, Any] = {"recompute": "full", "strategy": "zero3", "micro_batch": 4}
    planned = predict(make_request("llama3-8b", "v6e-64", software="maxtext@tpu", **job)).memory
    allocated = predict(make_request("llama3-8b", "8x8xH100", software="fsdp", **job)).memory
    assert planned.needed_bytes == planned.device_bytes
    assert allocated.needed_bytes > allocated.device_bytes
