"""Whether a job close to the memory limit fits: its step is replayed where fragmentation decides.

Fragmentation of the allocator depends on the order and sizes of allocations, of which a formula
knows only the mean. Where the tensors fit on the device but fragmentation may be too much, the
step's allocations are replayed against the device's limit (``memory.events``,
``memory.allocator``). A replay covers work on one stream: pipeline stages, which interleave
micro-batches with messages, use the formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, nextafter
from typing import NamedTuple

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.same import Same
from simcore.memory.job import fitting_batch, fullest_batch, memory_result
from simcore.memory.result import MemoryResult
from simcore.memory.terms import workspace_bytes
from simcore.request.resolved import Request
from simcore.strategy.layout import Layout
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Workload

Array = NDArray[np.float64]

#: Upper bound of the fragmentation over that of the formula: it holds in nine tenths of 67 replays
#: of published jobs (2.5 without recompute, 3.3 with full recompute).
_HOLES_SPREAD = 3.0
#: Largest relative difference between the replay's peak and the closed form, which rounds blocks up
#: (docs/model.md). Beyond it the list of events misses something.
_AGREED_FRAC = 0.03


def settled(request: Request, found: MemoryResult) -> MemoryResult:
    """The memory result, with the bytes needed from a replay where fragmentation decides the fit.

    Unchanged where no replay covers the job, or where the replay's peak disagrees with ``found``.
    """
    device, capacity = found.device_bytes, found.capacity_bytes
    layout = request.placed.layout if request.placed else Layout()
    doubtful = in_doubt(np.array(device), np.array(found.needed_bytes), np.array(capacity))
    if not doubtful or not covered(layout) or request.growing_segments:
        return found
    outside = device - found.reserved_bytes
    replayed = _replayed(*_event_args(request), capacity - outside)
    if abs(replayed.live_bytes + outside - device) > _AGREED_FRAC * device:
        return found
    held = outside + replayed.held_bytes
    if replayed.fits:
        return replace(found, needed_bytes=min(found.needed_bytes, held))
    return replace(found, needed_bytes=max(found.needed_bytes, held, nextafter(capacity, inf)))


def in_doubt(device_bytes: Array, needed_bytes: Array, capacity_bytes: Array) -> NDArray[np.bool_]:
    """Whether all tensors fit, so that fragmentation decides whether the job does [C]."""
    most = device_bytes + _HOLES_SPREAD * (needed_bytes - device_bytes)
    found: NDArray[np.bool_] = (device_bytes <= capacity_bytes) & (capacity_bytes <= most)
    return found


def covered(layout: Layout) -> bool:
    """Whether the replayed events are those of a rank of this layout (no pipeline, no experts)."""
    return layout.pp == 1 and layout.ep == 1


def largest_batch(request: Request, limit: int) -> int:
    """The largest micro-batch up to ``limit`` that fits; 0 where not even one sample does.

    The search starts at the formula's answer, which is close: steps of one sample that double, then
    halving. The micro-batch one larger than the result does not fit.
    """
    best = fitting_batch(request, limit)
    if request.shares or (best == limit and (not best or _fits(request, best))):
        return best
    fits = best == 0 or _fits(request, best)
    holds, lacks = (best, limit + 1) if fits else (0, best)
    step = 1  # 0 once a result has differed from the first: then the interval is halved
    while lacks - holds > 1:
        near = holds + step if fits else lacks - step
        tried = near if holds < near < lacks else (holds + lacks) // 2
        fitted = _fits(request, tried)
        holds, lacks = (tried, lacks) if fitted else (holds, tried)
        step = 2 * step if fitted == fits else 0
    return holds


def _fits(request: Request, micro_batch: int) -> bool:
    trial = replace(request, micro_batch=micro_batch)
    return settled(trial, memory_result(trial)).fits


class _EventArgs(NamedTuple):
    """The arguments of ``step_events``."""

    workload: Same[Workload]
    strategy: Strategy
    micro_batch: float
    grad_accum: int
    n_ranks: int
    cublas_bytes: float


def _event_args(request: Request) -> _EventArgs:
    """The arguments of ``step_events`` for the fullest rank."""
    placed = request.placed
    layout = placed.layout if placed else Layout()
    n_ranks = request.cluster.n_gpus // layout.model_ranks * layout.cp
    return _EventArgs(
        Same(placed.stages[0].workload if placed else request.held_workload),
        request.strategy,
        fullest_batch(request) / layout.cp,
        request.grad_accum,
        # only ZeRO's shards depend on the number of ranks
        n_ranks if request.strategy.zero_stage else min(n_ranks, 2),
        workspace_bytes(g.gpu.architecture for g in request.cluster.groups),
    )


@dataclass(frozen=True, slots=True)
class _Replayed:
    """The result of a replay.

    ``held_bytes``: peak of the reserved segments; where the job does not fit, the segments at its
    end and the failed request. ``live_bytes``: peak of the requested bytes with unlimited memory.
    """

    fits: bool
    held_bytes: float
    live_bytes: float


@lru_cache(maxsize=512)
def _replayed(
    workload: Same[Workload], strategy: Strategy, micro_batch: float, grad_accum: int,
    n_ranks: int, cublas_bytes: float, limit_bytes: float,
) -> _Replayed:  # fmt: skip
    from simcore.memory.allocator import AllocatorConfig, replay  # most jobs need no replay
    from simcore.memory.events import step_events

    events = step_events(
        workload.it, strategy, micro_batch=micro_batch, grad_accum=grad_accum, n_ranks=n_ranks,
        cublas_bytes=cublas_bytes,
    ).events  # fmt: skip
    replayed = replay(events, AllocatorConfig(limit_bytes=limit_bytes))
    if replayed.failed_at is None:
        return _Replayed(
            True, replayed.peak_reserved_bytes, float(replayed.requested.max(initial=0))
        )
    failed_bytes = events[replayed.failed_at][1] or 0
    held = sum(s.n_bytes for s in replayed.segments) + failed_bytes
    return _Replayed(False, held, _live_bytes(events))


def _live_bytes(events: Sequence[tuple[int, int | None]]) -> float:
    """Peak of the requested bytes."""
    held: dict[int, int] = {}
    change = []
    for number, n_bytes in events:
        change.append(-held.pop(number) if n_bytes is None else n_bytes)
        if n_bytes is not None:
            held[number] = n_bytes
    return float(np.cumsum(change).max(initial=0))
