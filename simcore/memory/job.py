"""Memory of a whole job: the fullest rank on the fullest stage, along a configuration axis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.figures import Z80
from simcore.memory.parts import (
    Beside,
    beside_tensors,
    saved_activations,
    scores_buffer_bytes,
)
from simcore.memory.result import MemoryResult, bounds_80
from simcore.memory.spread import holes_sd_bytes, memory_sd_bytes, tensors_sd_bytes
from simcore.memory.terms import (
    MOMENTS,
    OUTSIDE,
    Memory,
    RankJob,
    memory_of,
)
from simcore.request.resolved import Request
from simcore.step.transients import output_bytes, saved_bytes
from simcore.strategy.layout import UNDIVIDED
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Workload

if TYPE_CHECKING:
    from simcore.workload.sharding import Stage

#: How many micro-batches are evaluated together, and the largest that a job may have.
_AT_ONCE, MOST_BATCH = 100, 1_000_000


def largest_batch(request: Request, limit: int) -> int:
    """The largest micro-batch of at most ``limit`` that fits; 0 where not even one sample does."""

    def needed(batches: Array) -> Array:
        stages = memory_over(request, *axis_of(request, batches))
        most: Array = np.max([m.needed for m in stages], axis=0)
        return most

    capacity = min(g.gpu.usable_memory_bytes for g in request.cluster.groups)
    return _largest(needed, float(capacity), limit)


def _largest(needed: Callable[[Array], Array], capacity: float, limit: int) -> int:
    """The largest batch of at most ``limit`` whose bytes ``needed`` [C] are at most ``capacity``.

    Memory grows with the batch: what lies between the largest of ``_AT_ONCE`` that fits and the
    next is divided again.
    """
    best, last = 0, limit
    while best < last:
        every = -(-(last - best) // _AT_ONCE)
        batches = np.append(np.arange(best + every, last, every, dtype=np.float64), last)
        best = int(batches[needed(batches) <= capacity].max(initial=best))
        last = int(batches[batches > best].min(initial=last + 1)) - 1
    return best


def axis_of(request: Request, batches: Array | None = None) -> tuple[Array, Array, Array, Array]:
    """Micro-batches, micro-steps, devices and nodes of a job as arrays [C], for ``memory_over``.

    ``batches``: micro-batches in place of the job's own.
    """
    batch = np.array([float(request.micro_batch)]) if batches is None else batches
    one, cluster = np.ones_like(batch), request.cluster
    return batch, one * request.grad_accum, one * cluster.n_gpus, one * cluster.n_nodes


def memory_at(request: Request, batches: Array) -> Memory:
    """Memory of the fullest rank on the stage that is fullest with the last of ``batches``."""
    stages = memory_over(request, *axis_of(request, batches))
    return max(stages, key=lambda m: float(m.needed[-1]))


#: Configurations times stages evaluated together. On a longer axis one stage at a time is faster.
_TOGETHER = 512


def memory_over(
    request: Request,
    micro_batch: Array,
    grad_accum: Array,
    n_gpus: Array,
    n_nodes: Array,
    stages: Sequence[Stage] | None = None,
) -> list[Memory]:
    """Memory of the fullest rank of each pipeline stage (all arrays [C]).

    ``stages``: None for the first of each kind of equal stages, which has most micro-batches in
    flight. A job without a layout is one stage.
    """
    request = request.held
    over, placed = (micro_batch, grad_accum, n_gpus, n_nodes), request.placed
    if placed is None:
        memory = memory_of_stage(request, request.held_workload, 0, *over)
        return [_with_replays(request, memory, *over)]
    if stages is None:
        stages = [placed.stages[first] for first, _ in placed.distinct_stages]
    beside, each = beside_tensors(request, n_gpus, n_nodes), len(micro_batch)
    at_once, found = max(1, _TOGETHER // each), list[Memory]()
    for start in range(0, len(stages), at_once):
        some = stages[start : start + at_once]
        tiled = (np.tile(column, len(some)) for column in over)
        memory = memory_of_stages(request, some, *tiled, beside=beside.repeated(len(some)))
        found += [memory.take(slice(n * each, (n + 1) * each)) for n in range(len(some))]
    return found


#: A pipeline stage and the job that it belongs to.
JobStage = tuple[Request, "Stage"]


def _capacity_bytes(request: Request) -> float:
    return float(min(g.gpu.usable_memory_bytes for g in request.cluster.groups))


def is_tight(request: Request, device: Array, needed: Array) -> NDArray[np.bool_]:
    """Whether tensors fit on the device, and the usual fragmentation does not [C]."""
    capacity = _capacity_bytes(request)
    return (device <= capacity) & (needed > capacity)


def _with_replays(
    request: Request, memory: Memory, micro_batch: Array, grad_accum: Array, n_gpus: Array,
    n_nodes: Array,
) -> Memory:  # fmt: skip
    """The memory, with a replay's verdict where tensors fit and the usual fragmentation does not.

    Only of whole models on equal devices, of which each holds the same whatever their number. A job
    that the replay runs needs the device's memory.
    """
    groups, how = request.cluster.groups, request.strategy
    capacity, tight = _capacity_bytes(request), is_tight(request, memory.device, memory.needed)
    alike = len({g.gpu.name for g in groups}) == 1 and how.parallelism == "ddp"
    if not alike or how.offload or request.growing_segments or not tight.any():
        return memory
    outside = sum(memory.terms[term] for term in OUTSIDE)
    needed, cublas = memory.needed.copy(), float(memory.terms["workspace"][0])
    kinds = np.column_stack([grad_accum > 1, n_gpus > 1, outside])
    for kind in np.unique(kinds[tight], axis=0):
        alike_ones = tight & (kinds == kind).all(axis=1)
        others = [column[alike_ones][0] for column in (grad_accum, n_gpus, n_nodes)]

        def closed(batches: Array, others: Sequence[float] = others) -> Array:
            each = (np.full_like(batches, value) for value in others)
            return memory_of_stage(request, request.held_workload, 0, batches, *each).needed

        largest = _largest_replayed(
            request.held_workload, how, bool(kind[0]), bool(kind[1]), capacity - kind[2], cublas,
            _largest(closed, capacity, MOST_BATCH),
        )  # fmt: skip
        needed[alike_ones & (micro_batch <= largest)] = capacity
    return replace(memory, needed=needed)


@lru_cache(maxsize=100)
def _largest_replayed(
    workload: Workload, strategy: Strategy, many: bool, several: bool, limit: float, cublas: float,
    sure: int,
) -> int:  # fmt: skip
    """The largest micro-batch whose allocations a replay with ``limit`` bytes lets through.

    ``sure``: up to it they fit with the usual fragmentation, which is not replayed.
    """
    from simcore.memory.allocator import peak_reserved  # no other figure of a prediction needs it
    from simcore.memory.events import step_events

    def runs(batch: int) -> bool:
        if batch <= sure:
            return True
        events = step_events(
            workload, strategy, micro_batch=batch, grad_accum=1 + many, n_ranks=1 + several,
            cublas_bytes=cublas,
        )  # fmt: skip
        return peak_reserved(events.events, limit)[1]

    low, high = 0, 1
    while high <= MOST_BATCH and runs(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if runs(middle) else (low, middle)
    return low


def memory_of_stage(
    request: Request,
    part: Workload,
    position: int | Array,
    micro_batch: Array,
    grad_accum: Array,
    n_gpus: Array,
    n_nodes: Array,
    *,
    beside: Beside | None = None,
) -> Memory:
    """Memory of the fullest rank with one part of the model (all arrays [C]).

    ``position``: pipeline stage, a number or [C]. ``beside``: memory outside tensors, if known.
    """
    one = np.ones_like(micro_batch)
    again, zero = request.strategy.recompute == "full", np.zeros(len(one), dtype=np.intp)
    ranks = Ranks(((part, again),), zero, position * one, one, _stuck_frac(request, part) * one)
    beside = beside or beside_tensors(request, n_gpus, n_nodes)
    return _memory(request, ranks, micro_batch, grad_accum, n_gpus, n_nodes, beside=beside)


def memory_of_stages(
    request: Request,
    stages: Sequence[Stage],
    micro_batch: Array,
    grad_accum: Array,
    n_gpus: Array,
    n_nodes: Array,
    *,
    beside: Beside | None = None,
) -> Memory:
    """Memory of the fullest rank of several stages along one axis (arrays [S x C]).

    The axis has all configurations of the first stage, then those of the next, and so on.
    ``beside``: memory outside tensors, if known.
    """
    ranks = ranks_of([(request, s) for s in stages], len(micro_batch) // len(stages))
    beside = beside or beside_tensors(request, n_gpus, n_nodes)
    return _memory(request, ranks, micro_batch, grad_accum, n_gpus, n_nodes, beside=beside)


class Ranks(NamedTuple):
    """A rank with a part of the model for each configuration; arrays [C].

    ``parts``: of the model, each with whether its layers are checkpointed. ``part``, ``position``:
    index into ``parts`` and pipeline stage; ``share``: of a stage's layers that a micro-batch in
    flight holds. ``stuck_frac``: as in ``RankJob``.
    """

    parts: tuple[tuple[Workload, bool], ...]
    part: NDArray[np.intp]
    position: Array
    share: Array
    stuck_frac: Array

    def take(self, index: NDArray[np.intp]) -> Ranks:
        """The same for a part of the configuration axis."""
        others = (column[index] for column in (self.position, self.share, self.stuck_frac))
        return Ranks(self.parts, self.part[index], *others)


def ranks_of(of_stages: Sequence[JobStage], each: int) -> Ranks:
    """A rank of every stage, ``each`` times."""
    parts: dict[tuple[int, bool], tuple[Workload, bool]] = {}
    rows = []
    for request, stage in of_stages:
        placed, part = request.placed, (stage.workload, request.strategy.recompute == "full")
        key = id(part[0]), part[1]
        parts.setdefault(key, part)
        share = 1.0
        if placed is not None:
            layers = stage.n_layers, max(s.n_layers for s in placed.stages)
            share = placed.schedule.chunk_share(placed.layout, stage.position, *layers)
        rows.append((list(parts).index(key), stage.position, share, _stuck_frac(request, part[0])))
    number, *others = np.repeat(np.array(rows, dtype=np.float64).T, each, axis=1)
    return Ranks(tuple(parts.values()), number.astype(np.intp), *others)


def _waiting_share(request: Request, part: Workload, again: bool) -> float:
    """Bytes that a waiting micro-batch holds on the last stage over those of the one in work.

    By ``Schedule.waiting_head``: it has no head yet; or what the loss saved is freed and its 16-bit
    gradient remains for the head's weight gradient. Savings on other stages are not counted.
    """
    p = request.strategy.precision
    kept = saved_activations(part, p, again).kept
    head = part.blocks[part.order[-1]]
    if request.placed is not None and request.placed.schedule.waiting_head == "gradient":
        loss = max((op.saved for op in head.ops), key=lambda saved: saved.widest)
        gone = saved_bytes(loss, p) - loss.widest * p.low_bytes
    else:
        gone = 0.0 if head.recomputable else saved_bytes(head.saved, p)
        gone += sum(
            saved_bytes(b.kept_input if again else b.saved, p) * n
            for b, n in part.repeats
            if any(op.role == "next_tokens" for op in b.ops)
        )
    return 1.0 - gone / kept if kept else 1.0


def _deferred_share(request: Request, part: Workload, again: bool) -> float:
    """Bytes that a deferred weight gradient of the head keeps, over those that a micro-batch saves.

    The head's input and the gradient of its output (Megatron-Core, tensor_parallel/layers.py,
    embedding_activation_buffer and grad_output_buffer).
    """
    p = request.strategy.precision
    head = max(part.blocks[part.order[-1]].ops, key=lambda op: op.gemm_weight)
    saved = saved_activations(part, p, again).kept
    return (saved_bytes(head.saved, p) + output_bytes(head, p)) / saved if saved else 0.0


def _memory(
    request: Request, ranks: Ranks, micro_batch: Array, grad_accum: Array, n_gpus: Array,
    n_nodes: Array, *, beside: Beside,
) -> Memory:  # fmt: skip
    """``memory_of`` for this job (all arrays [C])."""
    return memory_of(
        rank_job(request, ranks, micro_batch, grad_accum, n_gpus, n_nodes, beside=beside),
        in_flight=in_flight(request, ranks, grad_accum),
        holes_frac=request.profile.allocator_holes_frac.value * _leaves_holes(request),
    )


def in_flight(request: Request, ranks: Ranks, grad_accum: Array) -> Array:
    """Micro-batches whose activations a rank holds [C], including the one being computed."""
    if request.placed is None:
        return np.ones_like(ranks.position)
    layout, schedule = request.placed.layout, request.placed.schedule
    held = schedule.in_flight(layout, ranks.position, grad_accum)
    held = np.maximum(np.minimum(held, 1.0), held * ranks.share)
    if schedule.waiting_head != "kept":  # all but one on the last stage are smaller
        waits = np.array([_waiting_share(request, *p) for p in ranks.parts])[ranks.part]
        smaller = np.minimum(held, 1.0 + (held - 1.0) * waits)
        held = np.where(ranks.position == layout.pp - 1, smaller, held)
    if layout.deferred_heads:
        later = np.minimum(float(layout.deferred_heads), grad_accum - 1.0)
        shares = np.array([_deferred_share(request, *p) for p in ranks.parts])[ranks.part]
        held = held + shares * later * (ranks.position == layout.pp - 1)
    return held


def _leaves_holes(request: Request) -> bool:
    """Whether fragmentation is worth counting.

    Expandable segments map pages where they are needed, and a compiler's plan has no holes.
    """
    return not (request.growing_segments or request.strategy.program.layers.buffers_planned)


def rank_job(
    request: Request, ranks: Ranks, micro_batch: Array, grad_accum: Array, n_gpus: Array,
    n_nodes: Array, *, beside: Beside,
) -> RankJob:  # fmt: skip
    """What these ranks compute, for ``peak_of`` and ``memory_of`` (all arrays [C])."""
    layout = request.placed.layout if request.placed else UNDIVIDED
    scores = [scores_buffer_bytes(request.strategy, part) for part, _ in ranks.parts]
    return RankJob(
        whose=tuple(part for part, _ in ranks.parts),
        strategy=request.strategy,
        micro_batch=micro_batch / layout.cp,
        grad_accum=grad_accum,
        n_ranks=n_gpus // layout.model_ranks * layout.cp,
        n_nodes=n_nodes,
        nvlink=beside.nvlink,
        cuda_context_bytes=beside.context_bytes,
        communicators_bytes=beside.communicators_bytes,
        cublas_bytes=beside.cublas_bytes + micro_batch / layout.cp * np.array(scores)[ranks.part],
        expert_ranks=layout.data_ranks_of_expert,
        stuck_frac=ranks.stuck_frac,
        part=ranks.part,
        recomputed=tuple(again for _, again in ranks.parts),
    )


def _stuck_frac(request: Request, part: Workload) -> float:
    """Share of the memory that comes and goes in a step which fragmentation keeps unusable.

    Of the kind of job, each the median of replays through the allocator. Pipeline stages interleave
    micro-batches, which the replays of whole models do not cover.
    """
    if not _leaves_holes(request):
        return 0.0
    if request.placed is not None and request.placed.layout.pp > 1:
        kind = "any"
    elif not _equal_layers(part):
        kind = "unlike"
    else:
        kind = "recompute" if request.strategy.recompute == "full" else "layers"
    return request.profile.allocator_stuck_frac(kind).value


def _equal_layers(part: Workload) -> bool:
    """Whether one repeated layer makes up at least half of a model's blocks."""
    times = Counter(i for i in part.order if part.blocks[i].recomputable)
    return 2 * max(times.values(), default=0) >= len(part.order)


def stage_allocated_bytes(request: Request, stage: int) -> float:
    """Peak of allocated bytes on a pipeline stage: 0 is that of global rank 0, -1 the last rank's.

    That of the whole job where nothing divides the model.
    """
    placed = request.held.placed
    stages = None if placed is None else (placed.stages[stage],)
    return float(memory_over(request, *axis_of(request), stages)[0].allocated[0])


def run_memories(request: Request) -> Memory | None:
    """Memory of the first stage of each run of equal stages (``Placed.runs``) [R].

    None for a job without a layout.
    """
    request = request.held
    placed = request.placed
    if placed is None:
        return None
    stages = [placed.stages[first] for first in placed.run_starts]
    batches = np.full(len(stages), float(request.micro_batch))
    return memory_of_stages(request, stages, *axis_of(request, batches))


def fullest(request: Request, runs: Memory | None = None) -> tuple[Memory, float, int]:
    """Memory, capacity [bytes] and micro-batch of the kind of rank whose memory is fullest.

    ``runs``: the result of ``run_memories``, if already computed.
    """
    groups = request.cluster.groups
    if not request.shares:
        capacity = min(g.gpu.usable_memory_bytes for g in groups)
        batch = request.micro_batch
        if runs is not None:
            memory = runs.take(np.argmax(runs.needed, keepdims=True))
        else:
            memory = memory_at(request, np.array([float(batch)]))
        return memory, float(capacity), batch
    found = [
        (memory_at(request, np.array([float(batch)])), float(kind.gpu.usable_memory_bytes), batch)
        for kind, batch in zip(request.kinds, request.shares, strict=True)
    ]
    return max(found, key=lambda f: float(f[0].needed[0]) / f[1])


def _shorter_bytes(request: Request, device_bytes: float) -> float:
    """Bytes that a batch of sequences of mean length needs less than one of the longest.

    0 where lengths do not vary; batches of images are always as large as their largest.
    """
    if request.peak_workload is None or request.options.get("mean_seq_len") is None:
        return 0.0
    mean, _, _ = fullest(replace(request, peak_workload=None, peak_placed=None))
    return max(device_bytes - float(mean.device[0]), 0.0)


def memory_result(request: Request, runs: Memory | None = None) -> MemoryResult:
    """The memory part of a prediction, for the kind of rank with least memory to spare.

    ``runs``: the result of ``run_memories``, if already computed.
    """
    memory, capacity, _ = fullest(request, runs)
    device, reserved = float(memory.device[0]), float(memory.reserved[0])
    shorter = _shorter_bytes(request, device)
    low, high = bounds_80(device, Z80 * memory_sd_bytes(request, memory), shorter)
    # On a full device cached segments are returned, so no more than its capacity is reserved.
    limit_bytes = max(capacity - (device - reserved), reserved)
    # The node whose host memory is most overdrawn by what its GPUs keep there.
    host = float(memory.host[0])
    lack, host_capacity = max(
        (g.gpus_per_node * host - g.node.cpu.dram_size.value, g.node.cpu.dram_size.value)
        for g in request.cluster.groups
    )
    return MemoryResult(
        terms={k: float(v[0]) for k, v in memory.terms.items() if v[0] > 0},
        allocated_bytes=float(memory.allocated[0]),
        reserved_bytes=reserved,
        cached_bytes=min(float(memory.cached[0]), limit_bytes),
        device_bytes=device,
        needed_bytes=float(memory.needed[0]),
        tensors_sd_bytes=tensors_sd_bytes(request, memory),
        capacity_bytes=float(capacity),
        host_bytes=host,
        host_lack_bytes=max(lack, 0.0),
        host_capacity_bytes=host_capacity,
        nvme_bytes=float(memory.nvme[0]),
        moment=MOMENTS[int(memory.moment[0])],
        shorter_bytes=shorter,
        low_bytes=low,
        high_bytes=high,
        holes_sd_bytes=holes_sd_bytes(request, memory),
    )
