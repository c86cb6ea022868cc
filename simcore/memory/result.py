"""The memory of a job, and the state of PyTorch's caching allocator: plain values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.figures import Z80
from simcore.base.record import dataclass
from simcore.base.units import MIB

#: Memory term of the blocks that the allocator keeps though nothing uses them.
HOLES = "allocator_holes"


@dataclass(frozen=True)
class Segments:
    """What the caching allocator reserves, computed when it is first asked for.

    ``replayed``: the peak of a replay of the step's allocations, some 2 ms of work a layer;
    ``sd_bytes``: its standard deviation.
    """

    replayed: Callable[[], float]
    sd_bytes: float

    @cached_property
    def n_bytes(self) -> float:
        """Peak of the segments."""
        return self.replayed()


def bounds_80(value: float, half: float, shorter: float = 0.0) -> tuple[float, float]:
    """The bounds of 80 % of a memory figure [bytes].

    ``half``: half width of the interval about ``value``, the figure of the longest sequences;
    ``shorter``: what sequences of mean length need less. A half width is a share of the memory that
    it belongs to, so that about ``value - shorter`` it is as much smaller.
    """
    share = max(value - shorter, 0.0) / value if value else 1.0
    return max(value - half, 0.0) * share, value + half


@dataclass(frozen=True, kw_only=True)
class MemoryResult:
    """Memory of the fullest GPU at its peak; terms add up to ``device_bytes``.

    ``cached_bytes``: memory that the allocator is expected to have reserved, fragmentation
    included; ``holes_sd_bytes``: standard deviation of the fragmentation, ``tensors_sd_bytes``: of
    the allocated bytes. ``needed_bytes``: ``device_bytes`` plus the fragmentation that the
    allocator cannot return, which decides whether the job fits. ``low_bytes`` and ``high_bytes``
    bound 80 % of ``device_bytes``. ``shorter_bytes``: what a batch of sequences of mean length
    needs less, where lengths vary; a run's peak lies between that batch and the longest.
    ``segments``: a replay through the allocator; None where the order of the step's allocations is
    not known. ``host_bytes``: host memory of one GPU's process; ``host_lack_bytes``: how far the
    GPUs of a node exceed ``host_capacity_bytes``, the node's host memory.
    """

    terms: dict[str, float]
    allocated_bytes: float
    reserved_bytes: float
    cached_bytes: float
    device_bytes: float
    capacity_bytes: float
    host_bytes: float
    nvme_bytes: float
    moment: str
    low_bytes: float
    high_bytes: float
    holes_sd_bytes: float = 0.0
    tensors_sd_bytes: float = 0.0
    needed_bytes: float = 0.0
    shorter_bytes: float = 0.0
    host_lack_bytes: float = 0.0
    host_capacity_bytes: float = 0.0
    segments: Segments | None = field(default=None, compare=False, repr=False)

    @property
    def segments_bytes(self) -> float:
        """Memory that the allocator reserves, with its holes: ``max_memory_reserved``."""
        found = self.cached_bytes if self.segments is None else self.segments.n_bytes
        return max(found, self.reserved_bytes)

    @property
    def shown_bytes(self) -> float:
        """Memory that nvidia-smi shows: reserved by the allocator, and outside of it."""
        return self.segments_bytes + self.device_bytes - self.reserved_bytes

    @property
    def shown_interval_bytes(self) -> tuple[float, float]:
        """The bounds of 80 % of ``shown_bytes``."""
        holes_sd = self.holes_sd_bytes if self.segments is None else self.segments.sd_bytes
        half = math.hypot(self.high_bytes - self.device_bytes, Z80 * holes_sd)
        return bounds_80(self.shown_bytes, half, self.shorter_bytes)

    @property
    def shown_terms(self) -> dict[str, float]:
        """The terms and the allocator's holes; they add up to ``shown_bytes``."""
        holes = self.shown_bytes - self.device_bytes
        return self.terms | ({HOLES: holes} if holes > 0.0 else {})

    @property
    def least_bytes(self) -> float:
        """The least device memory with which the job runs."""
        return max(self.needed_bytes, self.device_bytes)

    @property
    def fits(self) -> bool:
        """Whether the peak, with the fragmentation that cannot be returned, fits the device."""
        return self.least_bytes <= self.capacity_bytes

    @property
    def tight(self) -> bool:
        """Whether the peak alone fits the device, but not with the usual fragmentation beside it.

        Where lengths vary, that of sequences of mean length: what the data holds decides.

        Of language models replayed with full recompute, fragmentation is 0.08 to 1.1 of what comes
        and goes (docs/memory.md), so such a job may run or not.
        """
        least = self.device_bytes - self.shorter_bytes
        return not self.fits and least <= self.capacity_bytes

    @property
    def margin_frac(self) -> float:
        """Share of the capacity that is left; negative where the job does not fit."""
        return 1.0 - self.least_bytes / self.capacity_bytes


#: c10/cuda/CUDACachingAllocator.h. In order: the multiple to which blocks are rounded up; the
#: largest small block; the segment that small blocks share; the segment of medium blocks; the size
#: from which a block has a segment of its own; the multiple to which that segment is rounded up.
MIN_BLOCK_BYTES = 512
SMALL_BYTES = MIB
SMALL_SEGMENT_BYTES = 2 * MIB
LARGE_SEGMENT_BYTES = 20 * MIB
MIN_LARGE_BYTES = 10 * MIB
ROUND_LARGE_BYTES = 2 * MIB


Action = Literal["segment_alloc", "segment_free", "segment_map", "segment_unmap"]


class SegmentEvent(NamedTuple):
    """A change of the reserved memory before event ``at``: a segment, or pages of one."""

    at: int
    action: Action
    address: int
    n_bytes: int


@dataclass(frozen=True)
class BlockState:
    """One block of a segment; ``owner`` is its allocation's number, None for a cached block."""

    address: int
    n_bytes: int
    requested_bytes: int
    owner: int | None


@dataclass(frozen=True)
class SegmentState:
    """One segment and its blocks in address order."""

    address: int
    n_bytes: int
    small: bool
    expandable: bool
    blocks: tuple[BlockState, ...]


@dataclass(frozen=True, eq=False)
class Replay:
    """Allocator state after each event; arrays [events] in bytes.

    ``requested``: sum of the requests; ``allocated``: blocks in use
    (``torch.cuda.memory_allocated``); ``reserved``: segments. ``address``: the block of each event.
    ``segments``: all segments at the end. ``failed_at``: the event that ran out of memory even
    after all cached segments were returned to the device; the replay ends before it.
    """

    requested: NDArray[np.int64]
    allocated: NDArray[np.int64]
    reserved: NDArray[np.int64]
    address: NDArray[np.int64]
    segments: tuple[SegmentState, ...]
    segment_events: tuple[SegmentEvent, ...]
    n_retries: int
    failed_at: int | None

    @property
    def peak_allocated_bytes(self) -> int:
        return int(self.allocated.max(initial=0))

    @property
    def peak_reserved_bytes(self) -> int:
        return int(self.reserved.max(initial=0))

    @property
    def fragmentation_frac(self) -> float:
        """Share of the peak reserved memory that was never allocated at the same time."""
        peak = self.peak_reserved_bytes
        return 1.0 - self.peak_allocated_bytes / peak if peak else 0.0
