"""Memory of a whole job: its fullest rank, on the fullest stage, along a configuration axis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.interval import Z80
from simcore.engine.communicators import groups_of, nccl_bytes
from simcore.engine.in_flight import chunk_share, in_flight
from simcore.engine.memory import MOMENTS, Memory, loose_bytes, memory_of, workspace_bytes
from simcore.engine.resolved import Request
from simcore.engine.result import MemoryResult
from simcore.hardware.paths import cluster_paths
from simcore.strategy.layout import Layout
from simcore.workload.graph import Workload
from simcore.workload.sharding import Stage, layer_counts

Array = NDArray[np.float64]


def fitting_batch(request: Request, limit: int = 4096) -> int:
    """The largest micro-batch that fits; 0 where not even one sample does."""
    batches = np.arange(1.0, limit + 1)
    memory = memory_at(request, batches)
    capacity = min(g.gpu.usable_memory_bytes for g in request.cluster.groups)
    fits = memory.needed <= capacity
    return int(batches[fits].max()) if fits.any() else 0


def memory_at(request: Request, batches: Array) -> Memory:
    """Memory of the fullest rank for several micro-batches, on the fullest pipeline stage."""
    one = np.ones_like(batches)
    stages = memory_over(
        request,
        batches,
        one * request.grad_accum,
        one * request.cluster.n_gpus,
        one * request.cluster.n_nodes,
    )
    return max(stages, key=lambda m: float(m.needed[-1]))


def memory_over(
    request: Request,
    micro_batch: Array,
    grad_accum: Array,
    n_gpus: Array,
    n_nodes: Array,
    *,
    last: bool = False,
) -> tuple[Memory, ...]:
    """Memory of the fullest rank of every pipeline stage, over an axis (all arrays [C]).

    Of equal stages that of the first, which has the most micro-batches in flight, or ``last``.
    """
    over = (micro_batch, grad_accum, n_gpus, n_nodes)
    if request.placed is None:
        return (memory_of_stage(request, request.workload, 0, *over),)
    chosen: dict[int, Stage] = {}
    for stage in request.placed.stages:
        if last or id(stage.workload) not in chosen:
            chosen[id(stage.workload)] = stage
    beside = beside_tensors(request, n_gpus, n_nodes)
    return tuple(
        memory_of_stage(request, s.workload, s.position, *over, beside=beside)
        for s in chosen.values()
    )


@dataclass(frozen=True)
class Beside:
    """What a rank's device holds whatever its part of the model: NCCL's buffers [C], CUDA's own."""

    nvlink: bool
    communicators_bytes: Array
    context_bytes: float
    cublas_bytes: float


def beside_tensors(request: Request, n_gpus: Array, n_nodes: Array) -> Beside:
    """The same for every stage of a job (arrays [C])."""
    groups = request.cluster.groups
    layout = request.placed.layout if request.placed else Layout()
    intra, inter = cluster_paths(request.cluster)
    nvlink = intra.route == "nvlink"
    made = groups_of(
        layout, n_gpus, np.ceil(n_gpus / n_nodes), request.strategy.software.group_copies
    )
    return Beside(
        nvlink,
        nccl_bytes(made, nvlink=nvlink, direct=inter.route == "network_rdma"),
        max(
            request.profile.cuda_context_bytes(g.gpu, eager=request.eager_kernels).value
            for g in groups
        ),
        workspace_bytes(g.gpu.architecture for g in groups),
    )


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
    """Memory of the fullest rank with a part of the model, over an axis (all arrays [C]).

    ``position``: which stage of the pipeline it is, a number or [C]; ``beside``: where it is known.
    """
    layout = request.placed.layout if request.placed else Layout()
    beside = beside or beside_tensors(request, n_gpus, n_nodes)
    holes = not request.growing_segments
    return memory_of(
        part,
        request.strategy,
        micro_batch / layout.cp,
        grad_accum,
        n_gpus // layout.model_ranks * layout.cp,
        n_nodes,
        nvlink=beside.nvlink,
        cuda_context_bytes=beside.context_bytes,
        communicators_bytes=beside.communicators_bytes,
        cublas_bytes=beside.cublas_bytes,
        in_flight=_in_flight(request, part, position, grad_accum),
        expert_ranks=layout.data_ranks_of_expert,
        # growing segments map pages where they are needed: no holes to speak of
        holes_frac=request.profile.allocator_holes_frac.value * holes,
        stuck_frac=_stuck_frac(request, part, layout) * holes,
    )


def _stuck_frac(request: Request, part: Workload, layout: Layout) -> float:
    """Share of what comes and goes that stays in holes: less where equal layers follow each other.

    Stages of a pipeline interleave micro-batches, which the replays of layers do not cover.
    """
    profile = request.profile
    if layout.pp > 1 or not _equal_layers(part):
        return profile.allocator_stuck_frac().value
    return profile.allocator_stuck_frac(
        "recompute" if request.strategy.recompute == "full" else "layers"
    ).value


def _equal_layers(part: Workload) -> bool:
    """Whether one layer, repeated, is at least half of a model's blocks."""
    times = Counter(i for i in part.order if part.blocks[i].recomputable)
    return 2 * max(times.values(), default=0) >= len(part.order)


def _in_flight(request: Request, part: Workload, position: int | Array, grad_accum: Array) -> Array:
    layout = request.placed.layout if request.placed else Layout()
    held = in_flight(layout, position, grad_accum)
    if request.placed is None or isinstance(position, np.ndarray):
        return held
    longest = max(s.n_layers for s in request.placed.stages)
    share = chunk_share(layout, position, layer_counts(part), longest)
    found: Array = np.maximum(np.minimum(held, 1.0), held * share)
    return found


def first_stage_allocated_bytes(request: Request) -> float:
    """What tensors take at their peak on the first pipeline stage, where global rank 0 is."""
    cluster = request.cluster
    over = (request.micro_batch, request.grad_accum, cluster.n_gpus, cluster.n_nodes)
    batch, accum, gpus, nodes = (np.array([float(v)]) for v in over)
    return float(memory_over(request, batch, accum, gpus, nodes)[0].allocated[0])


def run_memories(request: Request) -> tuple[Memory, ...]:
    """Memory of the first stage of each run of equal stages (``Placed.runs``), as requested."""
    placed, cluster = request.placed, request.cluster
    if placed is None:
        return ()
    asked = (request.micro_batch, request.grad_accum, cluster.n_gpus, cluster.n_nodes)
    batch, accum, gpus, nodes = (np.array([float(v)]) for v in asked)
    over = batch, accum, gpus, nodes
    beside = beside_tensors(request, gpus, nodes)
    stages = (placed.stages[first] for first in placed.run_starts)
    return tuple(
        memory_of_stage(request, s.workload, s.position, *over, beside=beside) for s in stages
    )


def fullest_batch(request: Request) -> int:
    """Micro-batch of the kind of rank that is fullest."""
    return fullest(request)[2]


def fullest(request: Request, runs: Sequence[Memory] = ()) -> tuple[Memory, float, int]:
    """Memory, capacity and micro-batch of the kind of rank that is fullest.

    ``runs``: ``run_memories``, where they are known.
    """
    groups = request.cluster.groups
    if not request.shares:
        capacity = min(g.gpu.usable_memory_bytes for g in groups)
        batch = request.micro_batch
        if runs:
            memory = max(runs, key=lambda m: float(m.needed[-1]))
        else:
            memory = memory_at(request, np.array([float(batch)]))
        return memory, float(capacity), batch
    found = [
        (memory_at(request, np.array([float(batch)])), float(kind.gpu.usable_memory_bytes), batch)
        for kind, batch in zip(request.kinds, request.shares, strict=True)
    ]
    return max(found, key=lambda f: float(f[0].needed[0]) / f[1])


def memory_result(request: Request, runs: Sequence[Memory] = ()) -> MemoryResult:
    """What a prediction says of memory: of the kind of rank with the least room to spare.

    ``runs``: ``run_memories``, where they are known.
    """
    memory, capacity, _ = fullest(request, runs)
    device, reserved = float(memory.device[0]), float(memory.reserved[0])
    spread = Z80 * memory_sd_bytes(request, memory)
    # A full device gets cached segments back: no more can be reserved than it has.
    room = max(capacity - (device - reserved), reserved)
    # The node whose host has least beside what its GPUs keep there.
    host = float(memory.host[0])
    lack, host_capacity = max(
        (g.gpus_per_node * host - g.node.cpu.dram_size.value, g.node.cpu.dram_size.value)
        for g in request.cluster.groups
    )
    return MemoryResult(
        terms={k: float(v[0]) for k, v in memory.terms.items() if v[0] > 0},
        allocated_bytes=float(memory.allocated[0]),
        reserved_bytes=reserved,
        cached_bytes=min(float(memory.cached[0]), room),
        device_bytes=device,
        needed_bytes=float(memory.needed[0]),
        tensors_sd_bytes=tensors_sd_bytes(request, memory),
        capacity_bytes=float(capacity),
        host_bytes=host,
        host_lack_bytes=max(lack, 0.0),
        host_capacity_bytes=host_capacity,
        nvme_bytes=float(memory.nvme[0]),
        moment=MOMENTS[int(memory.moment[0])],
        low_bytes=max(device - spread, 0.0),
        high_bytes=device + spread,
        holes_sd_bytes=request.profile.segments_sd_frac.value * loose_bytes(memory.terms),
    )


def tensors_sd_bytes(request: Request, memory: Memory) -> float:
    """Standard deviation of what is allocated: of what comes and goes within a step."""
    spread = request.profile.memory_sd_log(eager=request.eager_kernels).value
    return spread * loose_bytes(memory.terms)


def memory_sd_bytes(request: Request, memory: Memory) -> float:
    """Standard deviation of what a device holds: independent parts, of the first configuration.

    State is counted exactly. What comes and goes within a step depends on the program's kernels;
    context and communicators are assumptions with spreads of their own.
    """
    profile = request.profile
    gpus = [g.gpu for g in request.cluster.groups]
    context = max(
        (profile.cuda_context_bytes(g, eager=request.eager_kernels) for g in gpus),
        key=lambda e: e.value,
    )
    parts = (
        tensors_sd_bytes(request, memory),
        context.sd_log * context.value,
        profile.nccl_sd_log.value * float(memory.terms["nccl_buffers"][0]),
    )
    return float(np.hypot.reduce(np.array(parts)))
