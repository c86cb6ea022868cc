"""PyTorch's CUDA caching allocator on one stream, replayed over a list of allocations.

The rules are those of c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.x. Block sizes are multiples
of 512 bytes. Requests up to 1 MiB share segments of 2 MiB; larger ones below 10 MiB are cut from
segments of 20 MiB; all others get a segment of their own, rounded up to 2 MiB. The smallest cached
block that fits is used. A freed block merges with free neighbours in its segment and stays cached.
When the device is full, completely free segments are returned to it and the request is retried.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import groupby
from math import inf
from operator import attrgetter

import numpy as np

from simcore.base.errors import InvalidConfig
from simcore.memory.result import (
    LARGE_SEGMENT_BYTES,
    MIN_BLOCK_BYTES,
    MIN_LARGE_BYTES,
    ROUND_LARGE_BYTES,
    SMALL_BYTES,
    SMALL_SEGMENT_BYTES,
    Action,
    BlockState,
    Replay,
    SegmentEvent,
    SegmentState,
)

#: First address handed out, and the distance between address ranges of expandable segments.
_FIRST_ADDRESS = 1 << 41
_ADDRESS_RANGE = 1 << 44


class _Block:
    """A range of addresses in one segment, linked to its neighbours in address order."""

    __slots__ = ("address", "expandable", "free", "mapped", "next", "owner", "prev", "requested",
                 "size", "small")  # fmt: skip

    def __init__(self, address: int, size: int, small: bool, expandable: bool) -> None:
        self.address, self.size, self.small, self.expandable = address, size, small, expandable
        self.prev: _Block | None = None
        self.next: _Block | None = None
        self.free = self.mapped = True
        self.owner: int | None = None
        self.requested = 0


class _Pool:
    """Free blocks, small or large: cached ones by size and address, unmapped ranges by address."""

    __slots__ = ("base", "blocks", "page", "small", "unmapped")

    def __init__(self, small: bool) -> None:
        self.small = small
        self.page = SMALL_SEGMENT_BYTES if small else LARGE_SEGMENT_BYTES
        self.base = 0  # of the address range, with expandable segments
        self.blocks: list[tuple[int, int, _Block]] = []
        self.unmapped: list[tuple[int, _Block]] = []

    def add(self, block: _Block) -> None:
        if block.mapped:
            insort(self.blocks, (block.size, block.address, block))
        else:
            insort(self.unmapped, (block.address, block))

    def remove(self, block: _Block) -> None:
        if block.mapped:
            del self.blocks[bisect_left(self.blocks, (block.size, block.address))]
        else:
            del self.unmapped[bisect_left(self.unmapped, (block.address,))]


class CachingAllocator:
    """The state of the allocator; ``replay`` runs a whole list of events through one.

    ``limit_bytes``: the most that all segments together may take. ``expandable_segments``: those of
    ``PYTORCH_CUDA_ALLOC_CONF``, which grow page by page.
    """

    def __init__(self, limit_bytes: float = inf, *, expandable_segments: bool = False) -> None:
        self.limit_bytes, self.expandable = limit_bytes, expandable_segments
        self.requested = self.allocated = self.reserved = self.peak_reserved = 0
        self.n_retries = 0
        self.segment_events: list[SegmentEvent] = []
        self._small, self._large = _Pool(True), _Pool(False)
        self._heads: dict[int, _Block] = {}
        self._used: dict[int, _Block] = {}
        self._next_address = _FIRST_ADDRESS
        self._now = 0
        if expandable_segments:
            for pool in (self._small, self._large):
                self._new_range(pool)

    def allocate(self, number: int, n_bytes: int, at: int) -> int | None:
        """Address of a block for ``n_bytes``, or None where the device is full."""
        self._now = at
        size = -(-n_bytes // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES
        pool = self._small if size <= SMALL_BYTES else self._large
        block = self._cached(pool, size) or self._new(pool, size)
        if block is None:
            return None
        left = block.size - size
        if left >= MIN_BLOCK_BYTES if pool.small or self.expandable else left > SMALL_BYTES:
            pool.add(self._cut(block, size))
        block.free, block.owner, block.requested = False, number, n_bytes
        self._used[number] = block
        self.allocated += block.size
        self.requested += n_bytes
        return block.address

    def free(self, number: int, at: int) -> int:
        """Return an allocation to the cache; its address. KeyError where it does not exist."""
        self._now = at
        block = self._used.pop(number)
        address = block.address
        self.allocated -= block.size
        self.requested -= block.requested
        block.free, block.owner, block.requested = True, None, 0
        pool = self._small if block.small else self._large
        pool.add(self._merged(pool, block))
        return address

    def _merged(self, pool: _Pool, block: _Block) -> _Block:
        """A free block (in no list) merged with those free neighbours that are mapped like it."""
        for other in (block.prev, block.next):
            if other is None or not other.free or other.mapped != block.mapped:
                continue
            pool.remove(other)
            first, second = (other, block) if other is block.prev else (block, other)
            first.size += second.size
            first.next = second.next
            if second.next is not None:
                second.next.prev = first
            block = first
        return block

    def _cut(self, block: _Block, size: int) -> _Block:
        """Shorten ``block`` to ``size`` bytes; returns the rest as a new block after it."""
        rest = _Block(block.address + size, block.size - size, block.small, block.expandable)
        rest.prev, rest.next = block, block.next
        if block.next is not None:
            block.next.prev = rest
        block.next, block.size = rest, size
        return rest

    def _cached(self, pool: _Pool, size: int) -> _Block | None:
        """Take the smallest cached block that fits."""
        at = bisect_left(pool.blocks, (size,))
        return pool.blocks.pop(at)[2] if at < len(pool.blocks) else None

    def _new(self, pool: _Pool, size: int) -> _Block | None:
        """A block of new device memory, after returning cached segments if that is needed."""
        grow = self._expanded if self.expandable else self._segment
        block = grow(pool, size)
        if block is None:
            self.n_retries += 1
            self._release()
            block = grow(pool, size)
        return block

    def _segment(self, pool: _Pool, size: int) -> _Block | None:
        if pool.small:
            total = SMALL_SEGMENT_BYTES
        elif size < MIN_LARGE_BYTES:
            total = LARGE_SEGMENT_BYTES
        else:
            total = -(-size // ROUND_LARGE_BYTES) * ROUND_LARGE_BYTES
        if self.reserved + total > self.limit_bytes:
            return None
        block = _Block(self._next_address, total, pool.small, False)
        self._next_address += -(-total // ROUND_LARGE_BYTES) * ROUND_LARGE_BYTES
        self._heads[block.address] = block
        self._reserve("segment_alloc", block.address, total)
        return block

    def _reserve(self, action: Action, address: int, n_bytes: int) -> None:
        gained = action in ("segment_alloc", "segment_map")
        self.reserved += n_bytes if gained else -n_bytes
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        self.segment_events.append(SegmentEvent(self._now, action, address, n_bytes))

    def _release(self) -> None:
        """Return cached memory to the device: whole segments, or whole pages of expandable ones."""
        for pool in (self._small, self._large):
            for _, _, block in list(pool.blocks):
                if block.expandable:
                    self._unmap(pool, block)
                elif block.prev is None and block.next is None:
                    pool.remove(block)
                    del self._heads[block.address]
                    self._reserve("segment_free", block.address, block.size)

    # Expandable segments: each pool has one address range whose pages are mapped when needed.

    def _new_range(self, pool: _Pool) -> None:
        pool.base = self._next_address
        rest = _Block(pool.base, _ADDRESS_RANGE, pool.small, True)
        rest.mapped = False
        self._heads[rest.address] = rest
        self._next_address += _ADDRESS_RANGE
        pool.add(rest)

    def _expanded(self, pool: _Pool, size: int) -> _Block | None:
        """The first free address range that is long enough, with its pages mapped."""
        first = None
        for _, hole in pool.unmapped:
            first = hole.prev if hole.prev is not None and hole.prev.free else hole
            length = 0
            block: _Block | None = first
            while block is not None and block.free and length < size:
                length += block.size
                block = block.next
            if length >= size:
                break
        assert first is not None  # the range after the last page is practically endless
        while not first.mapped or first.size < size:
            mapped = first.size if first.mapped else 0
            following = first.next if first.mapped else first
            assert following is not None
            grown = self._map(pool, following, size - mapped)
            if grown is None:
                return None
            pool.add(grown)
            first = grown
        pool.remove(first)
        return first

    def _map(self, pool: _Pool, hole: _Block, size: int) -> _Block | None:
        """Map the first pages of an unmapped range; the free block with them, in no list."""
        total = min(hole.size, -(-size // pool.page) * pool.page)
        if self.reserved + total > self.limit_bytes:
            return None
        pool.remove(hole)
        if total < hole.size:
            rest = self._cut(hole, total)
            rest.mapped = False
            pool.add(rest)
        hole.mapped = True
        self._reserve("segment_map", hole.address, total)
        return self._merged(pool, hole)

    def _unmap(self, pool: _Pool, block: _Block) -> None:
        """Return the whole pages of a cached block to the device."""
        base, page = pool.base, pool.page
        start = base + -(-(block.address - base) // page) * page
        end = base + (block.address + block.size - base) // page * page
        if end <= start:
            return
        pool.remove(block)
        if start > block.address:
            pages = self._cut(block, start - block.address)
            pool.add(block)
            block = pages
        if block.address + block.size > end:
            pool.add(self._cut(block, end - start))
        block.mapped = False
        self._reserve("segment_unmap", start, end - start)
        pool.add(self._merged(pool, block))

    def segments(self) -> tuple[SegmentState, ...]:
        """All segments by address; each mapped range of an expandable segment is one entry."""
        runs = [
            list(run)
            for head in self._heads.values()
            for mapped, run in groupby(_blocks_from(head), key=attrgetter("mapped"))
            if mapped
        ]
        return tuple(sorted(map(_state, runs), key=attrgetter("address")))


def _blocks_from(head: _Block) -> Iterator[_Block]:
    block: _Block | None = head
    while block is not None:
        yield block
        block = block.next


def _state(run: list[_Block]) -> SegmentState:
    blocks = tuple(BlockState(b.address, b.size, b.requested, b.owner) for b in run)
    return SegmentState(
        run[0].address, sum(b.size for b in run), run[0].small, run[0].expandable, blocks
    )


def replay(
    events: Iterable[tuple[int, int | None]],
    limit_bytes: float = inf,
    *,
    expandable_segments: bool = False,
) -> Replay:
    """The result of running a list of events through a new allocator.

    An event is (number, bytes) of an allocation, or (number, None) of its end. Other parameters as
    of ``CachingAllocator``. A request of zero bytes takes no memory, as in PyTorch.
    Raises InvalidConfig where an event frees an allocation that does not exist, or uses a number
    that is still in use.
    """
    allocator = CachingAllocator(limit_bytes, expandable_segments=expandable_segments)
    states: list[tuple[int, int, int, int]] = []
    failed = None
    for address in _addresses(allocator, events):
        if address is None:
            failed = len(states)
            break
        states.append((allocator.requested, allocator.allocated, allocator.reserved, address))
    columns = np.array(states, dtype=np.int64).reshape(-1, 4).T
    requested, allocated, reserved, addresses = np.ascontiguousarray(columns)
    return Replay(
        requested=requested,
        allocated=allocated,
        reserved=reserved,
        address=addresses,
        segments=allocator.segments(),
        segment_events=tuple(allocator.segment_events),
        n_retries=allocator.n_retries,
        failed_at=failed,
    )


def peak_reserved(
    events: Iterable[tuple[int, int | None]],
    limit_bytes: float = inf,
    *,
    expandable_segments: bool = False,
) -> tuple[int, bool]:
    """The peak of ``replay``'s reserved bytes, and whether every allocation succeeded."""
    allocator = CachingAllocator(limit_bytes, expandable_segments=expandable_segments)
    failed = any(address is None for address in _addresses(allocator, events))
    return allocator.peak_reserved, not failed


def _addresses(
    allocator: CachingAllocator, events: Iterable[tuple[int, int | None]]
) -> Iterator[int | None]:
    """The address of each event's block, 0 for an empty one; ends with None where memory does."""
    empty: set[int] = set()
    used = allocator._used
    for i, (number, n_bytes) in enumerate(events):
        if n_bytes is None:
            if number in used:
                yield allocator.free(number, i)
            elif number in empty:
                empty.discard(number)
                yield 0
            else:
                raise InvalidConfig([f"event {i} frees allocation {number}, which does not exist"])
        elif number in used or number in empty:
            raise InvalidConfig([f"event {i} allocates {number}, which is already allocated"])
        elif n_bytes <= 0:
            empty.add(number)
            yield 0
        else:
            address = allocator.allocate(number, n_bytes, i)
            yield address
            if address is None:
                return
