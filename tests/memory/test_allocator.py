"""The caching allocator: sizes and splits by hand, and what must hold of any list of events."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from random import Random
from typing import Any, NamedTuple

import pytest
from costs import cost_ratio
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.base.errors import InvalidConfig
from simcore.base.units import KIB, MIB
from simcore.memory.allocator import peak_reserved, replay
from simcore.memory.result import Replay


class Event(NamedTuple):
    """An allocation of ``n_bytes``, or its end (None)."""

    id: int
    n_bytes: int | None


def run(*events: tuple[int, int | None], **config: Any) -> Replay:
    return replay(events, **config)


@pytest.mark.parametrize(
    ("n_bytes", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),  # the last that is small
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),  # from here a segment of its own
        (19 * MIB, 20 * MIB, 20 * MIB),  # 1 MiB left is not split off
        (21 * MIB - 512, 21 * MIB - 512, 22 * MIB),  # 512 bytes more are
    ],
)
def test_sizes_of_one_request(n_bytes: int, allocated: int, reserved: int) -> None:
    """kMinBlockSize, kSmallSize, kSmallBuffer, kMinLargeAlloc, kLargeBuffer, kRoundLarge."""
    result = run((0, n_bytes))
    assert result.peak_allocated_bytes == allocated
    assert result.peak_reserved_bytes == reserved
    assert result.requested.tolist() == [n_bytes]


def test_small_requests_share_a_segment_and_large_ones_too() -> None:
    small = run(*((i, 512 * KIB) for i in range(4)))
    assert small.peak_reserved_bytes == 2 * MIB
    assert run(*((i, 512 * KIB) for i in range(5))).peak_reserved_bytes == 4 * MIB
    large = run(*((i, 5 * MIB) for i in range(4)))
    assert large.peak_reserved_bytes == 20 * MIB == large.peak_allocated_bytes


def test_best_fit_takes_the_smallest_that_is_enough() -> None:
    """Free blocks of 40, 30 and 50 MiB: 28 MiB goes into the one of 30."""
    result = run(
        (0, 40 * MIB), (1, 30 * MIB), (2, 50 * MIB), (0, None), (1, None), (2, None), (3, 28 * MIB)
    )
    assert result.address[-1] == result.address[1]
    assert result.peak_reserved_bytes == 120 * MIB


def test_a_large_block_is_split_and_merges_again() -> None:
    """60 MiB freed, 25 and 35 cut from it, both freed: 60 fit again without new memory."""
    result = run(
        (0, 60 * MIB), (0, None), (1, 25 * MIB), (2, 35 * MIB), (1, None), (2, None), (3, 60 * MIB)
    )
    assert result.peak_reserved_bytes == 60 * MIB
    assert len(result.segments) == 1
    assert [b.owner for b in result.segments[0].blocks] == [3]


def test_free_space_in_pieces_is_of_no_use() -> None:
    """Two halves apart: 40 MiB are cached and 40 MiB are asked from the device."""
    events = ((0, 40 * MIB), (0, None), (1, 20 * MIB), (2, 20 * MIB), (3, 20 * MIB))
    holes = (*events, (1, None), (3, None), (4, 40 * MIB))
    plain = run(*holes)
    assert plain.peak_reserved_bytes == 100 * MIB
    assert plain.fragmentation_frac == pytest.approx(0.4)
    # One address range: the third block and its successor are one hole, 20 MiB short of 40.
    grown = run(*holes, expandable_segments=True)
    assert grown.peak_reserved_bytes == 80 * MIB


def test_expandable_segments_grow_by_pages() -> None:
    """20 MiB a page for large requests, 2 MiB for small ones; freed space at the end grows."""
    assert run((0, 30 * MIB), expandable_segments=True).peak_reserved_bytes == 40 * MIB
    assert run((0, KIB), expandable_segments=True).peak_reserved_bytes == 2 * MIB
    more = run((0, 30 * MIB), (0, None), (1, 55 * MIB), expandable_segments=True)
    assert more.peak_reserved_bytes == 60 * MIB
    assert run((0, 30 * MIB), (0, None), (1, 55 * MIB)).peak_reserved_bytes == 30 * MIB + 56 * MIB


def test_a_full_device_gets_cached_segments_back_and_tries_again() -> None:
    events = ((0, 60 * MIB), (0, None), (1, 80 * MIB))
    freed = run(*events, limit_bytes=100 * MIB)
    assert freed.failed_at is None
    assert freed.n_retries == 1
    assert freed.reserved.tolist() == [60 * MIB, 60 * MIB, 80 * MIB]
    assert [e.action for e in freed.segment_events] == [
        "segment_alloc", "segment_free", "segment_alloc"
    ]  # fmt: skip
    held = run((0, 60 * MIB), (1, 80 * MIB), limit_bytes=100 * MIB)
    assert held.failed_at == 1
    assert len(held.reserved) == 1


def test_a_split_segment_cannot_be_given_back() -> None:
    result = run(
        (0, 60 * MIB), (0, None), (1, 20 * MIB), (2, 80 * MIB), limit_bytes=100 * MIB
    )  # fmt: skip
    assert result.failed_at == 3


def test_expandable_pages_are_given_back_from_the_middle() -> None:
    result = run(
        (0, 40 * MIB), (1, 40 * MIB), (2, 20 * MIB), (1, None), (3, 60 * MIB),
        expandable_segments=True, limit_bytes=120 * MIB,
    )  # fmt: skip
    assert result.failed_at is None
    assert result.reserved.tolist()[-1] == 120 * MIB
    assert "segment_unmap" in {e.action for e in result.segment_events}


@pytest.mark.parametrize("events", [[(0, None)], [(0, 5), (0, 5)], [(0, 0), (0, 0)]])
def test_wrong_events_are_named(events: list[tuple[int, int | None]]) -> None:
    with pytest.raises(InvalidConfig, match=r"event \d"):
        replay(events)


def test_nothing_takes_nothing() -> None:
    result = run((0, 0), (0, None))
    assert result.peak_reserved_bytes == 0
    assert result.address.tolist() == [0, 0]
    assert replay([]).fragmentation_frac == 0.0


@st.composite
def event_lists(draw: st.DrawFn) -> list[Event]:
    random = Random(draw(st.integers(0, 2**32)))
    events, live, made = [], [], 0
    for _ in range(draw(st.integers(1, 120))):
        if live and random.random() < 0.45:
            events.append(Event(live.pop(random.randrange(len(live))), None))
        else:
            events.append(Event(made, int(2 ** random.uniform(0, 27))))
            live.append(made)
            made += 1
    return events


CONFIGS: list[dict[str, Any]] = [
    {},
    {"expandable_segments": True},
    {"limit_bytes": 300 * MIB},
    {"limit_bytes": 300 * MIB, "expandable_segments": True},
]


@settings(max_examples=60, deadline=None)
@given(event_lists(), st.sampled_from(CONFIGS))
def test_no_block_overlaps_and_nothing_is_lost(events: list[Event], config: dict[str, Any]) -> None:
    result = replay(events, **config)
    done = events[: len(result.reserved)]
    live: dict[int, int] = {}
    for event in done:
        if event.n_bytes is None:
            live.pop(event.id)
        else:
            live[event.id] = event.n_bytes
    assert (result.requested <= result.allocated).all()
    assert (result.allocated <= result.reserved).all()
    assert result.peak_reserved_bytes <= config.get("limit_bytes", inf)
    owned: dict[int, int] = {}
    for segment in result.segments:
        assert sum(b.n_bytes for b in segment.blocks) == segment.n_bytes
        at = segment.address
        for block in segment.blocks:
            assert block.address == at
            at += block.n_bytes
            if block.owner is not None:
                owned[block.owner] = block.requested_bytes
                assert block.n_bytes >= block.requested_bytes
        for one, two in pairwise(segment.blocks):
            assert one.owner is not None or two.owner is not None, "free neighbours merge"
    assert owned == {k: v for k, v in live.items() if v}
    for one, two in pairwise(result.segments):
        assert one.address + one.n_bytes <= two.address
    total = sum(
        e.n_bytes if e.action in ("segment_alloc", "segment_map") else -e.n_bytes
        for e in result.segment_events
    )
    assert total == sum(s.n_bytes for s in result.segments)
    assert all(e.n_bytes > 0 for e in result.segment_events)
    if result.failed_at is None and len(result.reserved):
        assert total == result.reserved[-1]


@settings(max_examples=20, deadline=None)
@given(event_lists())
def test_the_same_events_give_the_same_addresses(events: list[Event]) -> None:
    assert replay(events).address.tolist() == replay(list(events)).address.tolist()


@pytest.mark.parametrize("expandable", [False, True], ids=["segments", "expandable"])
def test_cost_grows_with_the_events_alone(expandable: bool) -> None:
    """Ten times the events and live blocks cost some ten times as much; a search of all, 100."""
    few, many = _random_events(5_000), _random_events(50_000)
    ratio = cost_ratio(
        lambda: replay(few, expandable_segments=expandable),
        lambda: replay(many, expandable_segments=expandable),
        rounds=3,
        calls=1,
    )
    assert ratio < 30


def _random_events(n: int) -> list[Event]:
    random = Random(1)
    events, live = [], []
    for i in range(n):
        if live and random.random() < 0.5:
            at = random.randrange(len(live))
            live[at], live[-1] = live[-1], live[at]
            events.append(Event(live.pop(), None))
        else:
            events.append(Event(i, int(2 ** random.uniform(8, 26))))
            live.append(i)
    return events


@pytest.mark.parametrize("expandable", [False, True])
@pytest.mark.parametrize(("sizes", "least"), [((60,), 60), ((60, 40), 100), ((1, 2), 22)])
def test_a_limit_may_be_filled_and_not_passed(
    sizes: tuple[int, ...], least: int, expandable: bool
) -> None:
    """Segments are reserved up to the very limit; one byte less and the last one fails.

    Small requests have a segment of 2 MiB, large ones below 10 MiB one of 20.
    """
    events = [(i, n * MIB) for i, n in enumerate(sizes)]
    config = {"expandable_segments": expandable}
    assert run(*events, limit_bytes=least * MIB, **config).failed_at is None
    failed = run(*events, limit_bytes=least * MIB - 1, **config)
    assert failed.failed_at == len(sizes) - 1


def test_pages_that_a_neighbour_still_uses_stay_mapped() -> None:
    """Of 10 to 50 MiB freed the pages from 20 to 40 are whole; what is left holds 10 MiB twice."""
    full = ((0, 10 * MIB), (1, 40 * MIB), (2, 10 * MIB), (1, None), (3, MIB))
    given: dict[str, Any] = {"expandable_segments": True, "limit_bytes": 60 * MIB}
    result = run(*full, (4, 10 * MIB), (5, 10 * MIB), **given)
    assert result.reserved.tolist() == [n * MIB for n in (20, 60, 60, 60, 42, 42, 42)]
    assert result.n_retries == 1
    start = result.address[0]
    assert (result.address[-2:] - start).tolist() == [10 * MIB, 40 * MIB]
    (unmapped,) = (e for e in result.segment_events if e.action == "segment_unmap")
    assert (unmapped.address - start, unmapped.n_bytes) == (20 * MIB, 20 * MIB)
    # What is mapped again merges with both sides: all 40 MiB are one block once more.
    again = run(*full, (3, None), (4, 40 * MIB), (4, None), (5, 40 * MIB), **given)
    assert again.failed_at is None
    assert again.address[-1] == again.address[1]


def test_a_hole_of_just_the_size_is_mapped_again_and_leaves_nothing_of_it() -> None:
    events = ((0, 20 * MIB), (1, 20 * MIB), (2, 20 * MIB), (1, None), (3, MIB), (3, None))
    given: dict[str, Any] = {"expandable_segments": True, "limit_bytes": 60 * MIB}
    back = run(*events, (4, 20 * MIB), (0, None), (4, None), (2, None), (5, 60 * MIB), **given)
    assert back.failed_at is None
    assert back.address[6] == back.address[1]
    assert back.address[-1] == back.address[0]


def test_a_block_without_a_whole_page_gives_nothing_back() -> None:
    """15 to 25 MiB freed: it lies on two pages, both of which its neighbours use."""
    events = ((0, 15 * MIB), (1, 10 * MIB), (2, 15 * MIB), (1, None), (3, MIB))
    result = run(*events, expandable_segments=True, limit_bytes=40 * MIB)
    assert result.failed_at == 4
    assert {e.action for e in result.segment_events} == {"segment_map"}


def test_the_peak_alone_is_that_of_the_whole_replay() -> None:
    """20 MiB in a segment of 40, beside it 40 more: 80 reserved, and no place for it in 60."""
    events: list[tuple[int, int | None]] = [(0, 40 * MIB), (0, None), (1, 20 * MIB), (2, 40 * MIB)]
    assert peak_reserved(events) == (replay(events).peak_reserved_bytes, True)
    assert peak_reserved(events) == (80 * MIB, True)
    assert peak_reserved(events, 80 * MIB)[1] and not peak_reserved(events, 60 * MIB)[1]
    # a segment that grows by pages of 20 MiB holds both
    assert peak_reserved(events, 60 * MIB, expandable_segments=True) == (60 * MIB, True)


def test_a_cached_block_is_nobodys_and_holds_no_request() -> None:
    (segment,) = run((0, 30 * MIB), (0, None)).segments
    (block,) = segment.blocks
    assert (block.owner, block.requested_bytes, block.n_bytes) == (None, 0, 30 * MIB)
