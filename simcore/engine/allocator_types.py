"""PyTorch's CUDA caching allocator: its settings, its input and what a replay of it says."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal, NamedTuple

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.errors import InvalidConfig
from simcore.base.units import MIB

#: c10/cuda/CUDACachingAllocator.h: what blocks are rounded up to; up to which size they are small
#: and share segments of 2 MiB; above it segments are of 20 MiB, and from 10 MiB on of the block
#: itself rounded up to 2 MiB.
MIN_BLOCK_BYTES = 512
SMALL_BYTES = MIB
SMALL_SEGMENT_BYTES = 2 * MIB
LARGE_SEGMENT_BYTES = 20 * MIB
MIN_LARGE_BYTES = 10 * MIB
ROUND_LARGE_BYTES = 2 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorConfig:
    """The settings of ``PYTORCH_CUDA_ALLOC_CONF`` that change where blocks go.

    ``max_split_bytes``: larger blocks are never split, nor given to smaller requests.
    ``roundup_power2_divisions``: sizes are rounded up to this many steps between powers of two
    (0: multiples of 512 bytes). ``limit_bytes``: what all segments together may take.
    """

    expandable_segments: bool = False
    max_split_bytes: float = inf
    roundup_power2_divisions: int = 0
    limit_bytes: float = inf

    def __post_init__(self) -> None:
        divisions = self.roundup_power2_divisions
        problems = []
        if divisions < 0 or divisions & (divisions - 1):
            problems.append(f"roundup_power2_divisions must be a power of two, not {divisions}")
        if self.max_split_bytes <= LARGE_SEGMENT_BYTES:
            problems.append("max_split_size must be above 20 MiB, as PyTorch demands")
        if problems:
            raise InvalidConfig(problems)

    def rounded(self, n_bytes: int) -> int:
        """The size of the block that a request needs."""
        divisions = self.roundup_power2_divisions
        if n_bytes < MIN_BLOCK_BYTES:
            return MIN_BLOCK_BYTES
        if divisions > 1 and n_bytes > MIN_BLOCK_BYTES * divisions:
            step = max((1 << (n_bytes.bit_length() - 1)) // divisions, 1)
            return -(-n_bytes // step) * step
        return -(-n_bytes // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES


class Event(NamedTuple):
    """One allocation of ``n_bytes`` under a number of its own, or (None) its end."""

    id: int
    n_bytes: int | None


Action = Literal["segment_alloc", "segment_free", "segment_map", "segment_unmap"]


class SegmentEvent(NamedTuple):
    """A change of what is reserved, before event ``at``: a segment, or pages of one."""

    at: int
    action: Action
    address: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class BlockState:
    """One block of a segment; ``owner`` is the allocation in it, None where it is cached."""

    address: int
    n_bytes: int
    requested_bytes: int
    owner: int | None


@dataclass(frozen=True, slots=True)
class SegmentState:
    """One segment and its blocks in address order."""

    address: int
    n_bytes: int
    small: bool
    expandable: bool
    blocks: tuple[BlockState, ...]


@dataclass(frozen=True, eq=False)
class Replay:
    """What the allocator held after each event; arrays [events], bytes.

    ``requested``: as asked for; ``allocated``: blocks in use (``torch.cuda.memory_allocated``);
    ``reserved``: segments. ``address`` is each event's block. ``segments`` is the map at the end.
    ``failed_at``: the event that found no memory even after all cached segments were given
    back; the replay ends before it.
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
        """Share of the reserved peak that no allocation ever used at once."""
        peak = self.peak_reserved_bytes
        return 1.0 - self.peak_allocated_bytes / peak if peak else 0.0
