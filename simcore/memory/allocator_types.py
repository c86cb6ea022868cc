"""PyTorch's CUDA caching allocator: its sizes, its input events and the result of a replay."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.record import dataclass
from simcore.base.units import MIB

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
