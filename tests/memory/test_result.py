"""What a memory result says of a device: shown, needed, left over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simcore.base.figures import Z80
from simcore.memory.result import (
    HOLES,
    LARGE_SEGMENT_BYTES,
    MIN_BLOCK_BYTES,
    MIN_LARGE_BYTES,
    ROUND_LARGE_BYTES,
    SMALL_BYTES,
    SMALL_SEGMENT_BYTES,
    MemoryResult,
    Replay,
    Segments,
    bounds_80,
)
from simcore.report.sentences import verdict
from simcore.report.text_of import text_of


def result(needed: float, capacity: float = 100.0) -> MemoryResult:
    """70 bytes of tensors with rounding and 10 outside; the allocator has reserved 75."""
    return MemoryResult(
        terms={}, allocated_bytes=65.0, reserved_bytes=70.0, cached_bytes=75.0, device_bytes=80.0,
        capacity_bytes=capacity, host_bytes=0.0, nvme_bytes=0.0, moment="backward",
        low_bytes=78.0, high_bytes=82.0, needed_bytes=needed,
    )  # fmt: skip


def test_nvidia_smi_shows_what_is_reserved_and_what_is_outside() -> None:
    assert result(85.0).shown_bytes == 75.0 + 80.0 - 70.0


def test_a_replay_is_asked_once_and_stands_in_for_the_share_of_holes() -> None:
    asked: list[float] = []

    def replayed() -> float:
        asked.append(77.0)
        return asked[-1]

    found = replace(result(85.0), terms={"activations": 80.0}, segments=Segments(replayed, 3.0))
    assert not asked
    assert (found.segments_bytes, found.shown_bytes) == (77.0, 77.0 + 10.0)
    assert found.shown_terms == {"activations": 80.0, HOLES: 7.0}
    half = ((82.0 - 80.0) ** 2 + (Z80 * 3.0) ** 2) ** 0.5
    assert found.shown_interval_bytes == pytest.approx((87.0 - half, 87.0 + half))
    assert asked == [77.0] and found == replace(found, segments=None)


def test_no_fewer_bytes_are_shown_than_tensors_take() -> None:
    found = replace(result(85.0), segments=Segments(lambda: 60.0, 0.0))
    assert found.shown_bytes == found.device_bytes and HOLES not in found.shown_terms


@pytest.mark.parametrize(
    ("needed", "least", "fits"),
    [(0.0, 80.0, True), (90.0, 90.0, True), (100.0, 100.0, True), (101.0, 101.0, False)],
)
def test_a_job_fits_with_fragmentation_that_cannot_be_returned(
    needed: float, least: float, fits: bool
) -> None:
    found = result(needed)
    assert (found.least_bytes, found.fits) == (least, fits)
    assert found.margin_frac == pytest.approx((100.0 - least) / 100.0)


def test_device_bytes_alone_may_be_too_many() -> None:
    assert not result(0.0, capacity=79.0).fits and result(0.0, capacity=80.0).fits
    assert result(0.0, capacity=40.0).margin_frac == -1.0


def test_what_is_not_stated_is_zero() -> None:
    found = result(0.0)
    assert found.holes_sd_bytes == found.tensors_sd_bytes == 0.0
    assert found.host_lack_bytes == found.host_capacity_bytes == 0.0


@pytest.mark.parametrize(
    ("needed", "capacity", "word"),
    [(100.0, 100.0, "FITS"), (101.0, 100.0, "TIGHT"), (81.0, 80.0, "TIGHT"), (81.0, 79.0, "NO")],
)
def test_a_job_is_tight_where_fragmentation_alone_decides(
    needed: float, capacity: float, word: str
) -> None:
    found = result(needed, capacity)
    assert found.tight is (word == "TIGHT") and found.fits is (word == "FITS")
    assert verdict(found)[0] == word and str(text_of(found)).startswith(word)


def test_sizes_of_pytorchs_allocator() -> None:
    """kMinBlockSize, kSmallSize, kSmallBuffer, kLargeBuffer, kMinLargeAlloc and kRoundLarge of
    c10/cuda/CUDACachingAllocator (PyTorch 2.4, .h)."""
    sizes = (SMALL_BYTES, SMALL_SEGMENT_BYTES, LARGE_SEGMENT_BYTES, MIN_LARGE_BYTES,
             ROUND_LARGE_BYTES)  # fmt: skip
    assert MIN_BLOCK_BYTES == 512
    assert sizes == (2**20, 2 * 2**20, 20 * 2**20, 10 * 2**20, 2 * 2**20)


def test_bounds_about_a_shorter_batch_keep_their_share_of_it() -> None:
    """100 +- 20 of the longest, 40 of mean lengths: 40 less a fifth of it, not 40 less 20."""
    assert bounds_80(100.0, 20.0, 60.0) == pytest.approx((32.0, 120.0))
    assert bounds_80(100.0, 20.0) == (80.0, 120.0)
    assert bounds_80(100.0, 150.0, 60.0) == (0.0, 250.0)
    assert bounds_80(0.0, 0.0) == (0.0, 0.0)


def replayed(allocated: list[int], reserved: list[int]) -> Replay:
    counts = [np.array(c, dtype=np.int64) for c in (allocated, allocated, reserved, reserved)]
    return Replay(*counts, segments=(), segment_events=(), n_retries=0, failed_at=None)


def test_peaks_of_a_replay_and_what_fragmentation_takes_of_them() -> None:
    """40 reserved bytes at most, of which no more than 30 were ever in use: a quarter is lost."""
    found = replayed([10, 30, 5], [20, 30, 40])
    assert (found.peak_allocated_bytes, found.peak_reserved_bytes) == (30, 40)
    assert found.fragmentation_frac == 0.25
    nothing = replayed([], [])
    assert (nothing.peak_allocated_bytes, nothing.peak_reserved_bytes) == (0, 0)
    assert nothing.fragmentation_frac == 0.0
