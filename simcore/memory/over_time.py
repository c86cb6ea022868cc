"""Memory over one training step: bytes by term, the allocator's state, and the device's limit.

Also what the first step takes beyond the others while cuDNN's algorithms are timed. With
``torch.backends.cudnn.benchmark`` PyTorch before 2.0 times every algorithm of a convolution when it
first meets its shape. It allocates the largest workspace among them, unless that exceeds what the
device has free; then the next largest (aten/src/ATen/native/cudnn/Conv_v7.cpp,
getMaxWorkspaceSize). In forward that is the explicit matrix product's, which holds the input as a
matrix: a row an output point, a column an input channel and tap (cuDNN's documentation,
CUDNN_CONVOLUTION_FWD_ALGO_GEMM). Half precision is computed in fp32 (ATen/cudnn/Descriptors.h), and
the matrix is counted in that width. Backward has no such algorithm. The largest figure of
nvidia-smi includes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, partial
from math import inf, prod

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.errors import InvalidConfig, UnknownName
from simcore.base.record import Same, dataclass
from simcore.base.units import FP32_BYTES
from simcore.hardware.cluster import NodeGroup
from simcore.hardware.spec import GPUS
from simcore.memory.allocator import peak_reserved, replay
from simcore.memory.events import EventList, step_events
from simcore.memory.job import fullest, memory_at
from simcore.memory.moments import COPY, SAVED, WORKING, held_at_ticks
from simcore.memory.parts import engine_workspaces, scores_buffer_bytes, workspace_bytes
from simcore.memory.result import Replay
from simcore.memory.terms import OUTSIDE
from simcore.request.resolved import Request
from simcore.step.transients import saved_bytes
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Kernel, Workload

#: Terms in the order in which they are stacked, from the bottom: first those that stay.
STACK = (
    "parameters", "optimizer_state", "ema", "frozen_models", "gradient_buckets", "workspace",
    "gradient_stubs",
    "gradients", "gathered_parameters", "autocast_weights", "activations", "working_set",
    "gradient_copies",
)  # fmt: skip

#: Convolutions with an input matrix. That of a pointwise one is the input itself, and depthwise
#: ones run kernels of PyTorch's own.
_WITH_MATRIX = ("conv", "conv_winograd")
#: Terms of what exists before the first forward.
BEFORE_FORWARD = ("parameters", "ema", "frozen_models", "gradient_buckets")


@dataclass(frozen=True, eq=False)
class MemoryTimeline:
    """Memory of the fullest rank after each event (an allocation or its end) of one step.

    ``terms[name]``, ``allocated``, ``reserved``: arrays [events] in bytes. ``terms`` are requested
    bytes; ``allocated`` counts whole blocks and ``reserved`` segments, like
    ``torch.cuda.memory_allocated`` and ``memory_reserved``. ``phases``: (first event, name).
    ``outside_bytes``: CUDA context and NCCL, on top of reserved; ``limit_bytes``: the device's
    memory; ``gpu``: its type, where the caller named one. The step comes after a warm-up:
    ``events`` and ``replay`` hold all steps, and the one shown is ``events.events[start:]``.
    """

    model: str
    cluster: str
    terms: dict[str, NDArray[np.float64]]
    allocated: NDArray[np.int64]
    reserved: NDArray[np.int64]
    phases: tuple[tuple[int, str], ...]
    outside_bytes: float
    limit_bytes: float
    start: int
    events: EventList
    replay: Replay
    gpu: str = ""

    @property
    def peak_live_bytes(self) -> float:
        """Peak of the requested bytes."""
        return float(self.replay.requested[self.start :].max(initial=0))

    @property
    def peak_allocated_bytes(self) -> float:
        """``torch.cuda.max_memory_allocated`` of the step."""
        return float(self.allocated.max(initial=0))

    @property
    def peak_reserved_bytes(self) -> float:
        """``torch.cuda.max_memory_reserved`` since the start."""
        return float(self.replay.peak_reserved_bytes)

    @property
    def fits(self) -> bool:
        """Whether every allocation succeeded, with cached segments returned where needed."""
        return self.replay.failed_at is None


def memory_timeline(
    request: Request, *, gpu: str | None = None, expandable_segments: bool = False
) -> MemoryTimeline:
    """Memory over the last of three steps of a request, replayed through the allocator.

    ``gpu``: GPU type in a cluster with several; None is the fullest. Where memory runs out, the
    events end there and the step is the one that failed. Raises InvalidConfig where a layout
    divides the model, UnknownName for a type that the cluster does not have.
    """
    if request.placed is not None:
        raise InvalidConfig(
            ["memory over the step is predicted for data parallelism only: leave out the layout "
             f"({request.placed.layout})"]
        )  # fmt: skip
    cluster, name = request.cluster, ""
    memory, limit, batch = fullest(request)
    architectures = {g.gpu.architecture for g in cluster.groups}
    if gpu is not None:
        kind = _kind_of(request, gpu)
        name, limit = kind.gpu.name, float(kind.gpu.usable_memory_bytes)
        architectures = {kind.gpu.architecture}
        batch = dict(zip(request.kinds, request.shares, strict=False)).get(kind, batch)
        memory = memory_at(request, np.array([float(batch)]))
    outside = float(sum(memory.terms[t][0] for t in OUTSIDE))
    events = step_events(
        request.held_workload,
        request.strategy,
        micro_batch=batch,
        grad_accum=request.grad_accum,
        n_ranks=cluster.n_gpus,
        cublas_bytes=_workspaces_bytes(request, architectures, batch),
    )
    played = replay(
        events.events,
        max(limit - outside, 0.0),
        expandable_segments=expandable_segments or request.growing_segments,
    )
    done = len(played.reserved)
    starts = [at for at, name in events.phases if name.endswith("frozen networks") and at < done]
    start = starts[-1] if starts else 0
    return MemoryTimeline(
        model=request.workload.name,
        cluster=str(cluster),
        terms=_by_term(events, start, done),
        allocated=played.allocated[start:],
        reserved=played.reserved[start:],
        phases=tuple(
            (at - start, name.split(" ", 2)[-1]) for at, name in events.phases if start <= at < done
        ),
        outside_bytes=outside,
        limit_bytes=limit,
        start=start,
        events=events,
        replay=played,
        gpu=name,
    )


def _workspaces_bytes(request: Request, architectures: Iterable[str], batch: int) -> float:
    """Bytes of products' workspaces, and of the tensor that attention keeps its scores in."""
    strategy, workload = request.strategy, request.held_workload
    engine, layers = engine_workspaces(strategy, workload), strategy.program.layers
    of_products = workspace_bytes(architectures, engine, layers.handle_workspace_bytes)
    return of_products + batch * scores_buffer_bytes(strategy, workload)


def peak_reserved_bytes(request: Request) -> float:
    """``memory_timeline(request).peak_reserved_bytes``, or what a search for algorithms needs more.

    The timeline is of steps whose convolutions' algorithms are known.
    """
    memory, limit, batch = fullest(request)
    workload, outside = request.held_workload, float(sum(memory.terms[t][0] for t in OUTSIDE))
    architectures = {g.gpu.architecture for g in request.cluster.groups}
    replayed = partial(
        _peak_reserved_bytes, workload, request.strategy, batch, request.grad_accum > 1,
        request.cluster.n_gpus, request.growing_segments,
        _workspaces_bytes(request, architectures, batch),
    )  # fmt: skip
    room = max(limit - outside, 0.0)
    searched = 0.0
    if request.cudnn_benchmark:
        before = sum(float(memory.terms[t][0]) for t in BEFORE_FORWARD if t in memory.terms)
        searched = searched_bytes(workload, request.strategy, float(batch), before, room)
    if memory.needed[0] <= limit and (peak := replayed(inf)) <= room:
        return max(peak, searched)  # no limit changes it: one replay for devices of any size
    return max(replayed(room), searched)


def matrix_bytes(kernel: Kernel, batch: float) -> float:
    """Bytes of the matrix that an explicit product makes of a convolution's input; 0 for others."""
    if kernel.kind not in _WITH_MATRIX:
        return 0.0
    sizes = (kernel.m, kernel.k, kernel.groups)
    return FP32_BYTES * prod(a.fixed + a.per_sample * batch for a in sizes)


def searched_bytes(
    workload: Workload, strategy: Strategy, batch: float, stays: float, room: float
) -> float:
    """Most bytes that tensors and workspaces take while algorithms are timed.

    ``stays``: bytes of tensors that exist before the first forward; ``room``: what the device has
    for tensors and workspaces.
    """
    p, most = strategy.precision, 0.0
    for block in workload.instances():
        again = strategy.recompute == "full" and block.recomputable
        ticks = held_at_ticks(Same(block), p, pins=not again, again=again)
        for op, tick in zip(block.ops, ticks, strict=False):
            live = stays + batch * (tick[SAVED] + tick[WORKING]) + p.cast_bytes * tick[COPY]
            needed = (live + matrix_bytes(kernel, batch) for kernel in op.fwd)
            most = max(most, *(n for n in needed if n <= room), 0.0)
        kept = saved_bytes(block.kept_input, p) if again else ticks[len(block.ops) - 1][SAVED]
        stays += batch * kept + p.cast_bytes * ticks[len(block.ops) - 1][COPY]
    return float(most)


@lru_cache(maxsize=100)
def _peak_reserved_bytes(
    workload: Workload, strategy: Strategy, batch: int, many: bool, n_ranks: int, growing: bool,
    cublas: float, limit: float,
) -> float:  # fmt: skip
    events = step_events(
        workload, strategy, micro_batch=batch, grad_accum=1 + many, n_ranks=n_ranks,
        cublas_bytes=cublas,
    )  # fmt: skip
    return float(peak_reserved(events.events, limit, expandable_segments=growing)[0])


def _kind_of(request: Request, gpu: str) -> NodeGroup:
    """The first kind of rank with this GPU type."""
    name = GPUS[gpu].name
    found = next((k for k in request.kinds if k.gpu.name == name), None)
    if found is None:
        raise UnknownName("GPU of this cluster", gpu, [k.gpu.name for k in request.kinds])
    return found


def _by_term(events: EventList, start: int, stop: int) -> dict[str, NDArray[np.float64]]:
    """Requested bytes of each term after every event from ``start`` to ``stop``."""
    index = {name: k for k, name in enumerate(STACK)}
    sizes = [0] * len(events.what)
    change = np.zeros((len(STACK), stop))
    for at, (number, n_bytes) in enumerate(events.events[:stop]):
        row = index[events.what[number].term]
        if n_bytes is None:
            change[row, at] = -sizes[number]
        else:
            sizes[number] = n_bytes
            change[row, at] = n_bytes
    held = np.cumsum(change, axis=1)[:, start:]
    return {name: held[k] for name, k in index.items() if held.size and held[k].max() > 0}
