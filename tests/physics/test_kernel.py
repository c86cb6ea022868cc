"""The roofline and the laws of traffic: numbers worked out by hand, limits, monotony."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import on_by_default

from simcore.physics.kernel import (
    FOUND,
    GONE,
    LEAVES,
    STAYS,
    Traffic,
    TrafficLimits,
    blocks_s,
    clocks_per_element,
    column_sums_s,
    either_layout_s,
    in_cache_frac,
    missed_frac,
    narrow_load_slowdown,
    roofline_s,
    traffic_s,
)

SECONDS = st.floats(1e-6, 1e6)

# -- roofline --------------------------------------------------------------------------------------


def test_three_four_five() -> None:
    """Products of 3 s and traffic of 4 s take 5 s, and a start of 2 s comes before both."""
    assert roofline_s(3.0, 4.0, 2.0) == pytest.approx(7.0)
    assert roofline_s(3.0, 4.0) == pytest.approx(5.0)


def test_pure_memory_and_nothing_at_all() -> None:
    assert roofline_s(0.0, 0.01) == 0.01
    assert roofline_s(0.0, 0.0, 2e-6) == 2e-6


def test_kernels_by_configurations_broadcast() -> None:
    compute_s = np.array([[3.0], [6.0]])  # 2 kernels
    memory_s = np.array([4.0, 0.0, 8.0])  # 3 configurations
    expected = [[5.0, 3.0, 73**0.5], [52**0.5, 6.0, 10.0]]
    assert roofline_s(compute_s, memory_s) == pytest.approx(np.array(expected))


@given(compute=SECONDS, memory=SECONDS, more=st.floats(1.0, 10.0))
def test_between_the_larger_term_and_the_sum_and_more_work_never_faster(
    compute: float, memory: float, more: float
) -> None:
    time, slack = float(roofline_s(compute, memory)), 1 + 1e-12
    assert max(compute, memory) <= time * slack
    assert time <= (compute + memory) * slack
    assert roofline_s(compute * more, memory) * slack >= time
    assert roofline_s(compute, memory * more) * slack >= time


# -- traffic ---------------------------------------------------------------------------------------


def test_without_limits_traffic_is_bytes_over_bandwidth() -> None:
    anything = Traffic(12.0, rows=9.0, row_bytes=9.0, reread_bytes=9.0, indexed=9.0)
    assert traffic_s(anything, 4.0, TrafficLimits()) == 3.0
    assert astuple(TrafficLimits()) == (0.0,) * 6 and astuple(Traffic(2.0))[1:] == (0.0,) * 4
    assert traffic_s(Traffic(np.array([2.0, 6.0])), 4.0, TrafficLimits(1.0, 1.0, 1.0)) == (
        pytest.approx([0.5, 1.5])
    )


@pytest.mark.parametrize(
    ("traffic", "seconds"),
    [
        # 40 bytes and half of 24 again at 4 a second; limits of rows and elements are below.
        (Traffic(40.0, rows=2.0, row_bytes=11.0, reread_bytes=24.0, indexed=3.0), 13.0),
        (Traffic(40.0, rows=2.0, row_bytes=6.0, reread_bytes=24.0), 10.0),  # L2 holds short rows
        (Traffic(40.0, rows=2.0, row_bytes=16.0, reread_bytes=24.0), 16.0),  # no part of long ones
        (Traffic(40.0, row_bytes=16.0), 10.0),  # nothing is read again
        (Traffic(40.0, rows=7.0), 14.0),  # rows of 2 s each
        (Traffic(40.0, indexed=5.0), 15.0),  # elements of 3 s each
        (Traffic(40.0, rows=7.0, indexed=5.0), 15.0),
    ],
)  # fmt: skip
def test_laws_of_traffic_by_hand(traffic: Traffic, seconds: float) -> None:
    limits = TrafficLimits(rows_per_l2_byte=0.1, row_s=2.0, indexed_s=3.0)
    assert traffic_s(traffic, 4.0, limits) == pytest.approx(seconds)


def test_bandwidth_does_not_move_the_other_limits() -> None:
    limits = TrafficLimits(row_s=2.0, indexed_s=3.0)
    found = traffic_s(Traffic(40.0, rows=7.0, indexed=2.0), np.array([1.0, 4.0, 1e9]), limits)
    assert found == pytest.approx([40.0, 14.0, 14.0])


def test_l2_holds_rows_until_those_in_flight_are_more() -> None:
    """16 rows on each of 108 SMs, 40 MiB: rows of 8 KiB are 0.34 of it, of 32 KiB 1.35."""
    per_byte = 16 * 108 / (40 * 2**20)
    assert missed_frac(8192.0, per_byte) == 0.0
    share = (32768 * per_byte - STAYS) / (LEAVES - STAYS)
    assert missed_frac(32768.0, per_byte) == pytest.approx(share) == pytest.approx(0.75)
    assert missed_frac(65536.0, per_byte) == 1.0
    assert missed_frac(65536.0, 0.0) == 0.0  # not known
    lengths = missed_frac(np.geomspace(1e3, 1e6, 50), per_byte)
    assert (np.diff(lengths) >= 0.0).all()


def test_rows_miss_from_six_tenths_of_the_l2_and_all_at_sixteen() -> None:
    assert missed_frac(np.array([0.6, 0.85, 1.1, 1.6]), 1.0) == pytest.approx([0, 0.25, 0.5, 1])


def test_what_was_just_written_is_found_up_to_its_share_of_l2() -> None:
    """A100 and H100 save half of a small tensor's time (Vidur's norms and sums), none from 0.6."""
    l2 = 40 * 2.0**20
    sizes = np.array([0.0, 0.4, 0.5, GONE, 2.0]) * l2
    assert in_cache_frac(sizes, l2) == pytest.approx([FOUND, FOUND, FOUND / 2, 0.0, 0.0])
    for memory, cache in ((1.73e12, 5.43e12), (0.9 * 3.35e12, 36 * 132 * 1.98e9)):  # A100, H100
        assert FOUND * (1 - memory / cache) == pytest.approx(0.5, abs=0.02)


def test_what_lies_along_the_depth_takes_longer_to_store() -> None:
    """A head of 50,257 words, forward, gradients of input and weight; origins of DEPTH_STORE.

    RTX A6000 (512 multiply-adds a clock): 48.1, 58.9 and 64.7 % of aligned products; H200: 95.0,
    138.8 and 148.2 TFLOP/s at 8,192 x 768, 94.6 and 143.4 at 2,048 x 1,024.
    """
    for fma, on_hopper, measured in (
        (512, False, (0.647 / 0.481, 0.647 / 0.589)), (2048, True, (148.2 / 95.0, 148.2 / 138.8)),
    ):  # fmt: skip
        both, one, none = (
            narrow_load_slowdown(
                fma, 1, 2, copies=True, asynchronous=on_hopper, operands_along_depth=deep
            )
            for deep in (2, 1, 0)
        )  # fmt: skip
        assert (both / none, one / none) == pytest.approx(measured, rel=0.1)
    straight, across = (
        narrow_load_slowdown(1024, 2, 2, copies=True, asynchronous=False, operands_along_depth=n)
        for n in (2, 0)
    )
    assert straight == across


def test_the_last_wave_counts_whole() -> None:
    """108 SMs with three blocks each, of 10 seconds."""
    blocks = np.array([1.0, 64.0, 324.0, 325.0, 648.0, 2048.0])
    found = blocks_s(blocks, 10.0, 324.0)
    assert found == pytest.approx([10, 10, 10, 20, 20, 70])
    assert blocks_s(7.0, 10.0, 0.0) == 0.0  # other libraries


def test_few_sms_sum_a_narrow_matrix_of_many_rows() -> None:
    """132 SMs that read 70 GB/s each; a block has 32 columns."""
    rows, width = 8192.0, 4.0
    columns = np.array([768.0, 32.0 * 132.0, 32.0 * 133.0, 20.0])
    found = column_sums_s(rows, columns, rows * columns * width, 132.0, 70e9)
    block_s = rows * 32.0 * width / 70e9
    assert found[:2] == pytest.approx([block_s, block_s])
    assert found[2] == pytest.approx(2.0 * block_s, rel=1e-6)  # a second wave
    assert found[3] == pytest.approx(rows * 20.0 * width / 70e9)


def test_further_blocks_share_more_than_65536_rows_of_few_columns() -> None:
    rows = np.array([65536.0, 65537.0])
    narrow, wide = (column_sums_s(rows, n, 1.0, 132.0, 1.0) for n in (2048.0, 2112.0))
    assert narrow[0] > 0.0 == narrow[1]
    assert (wide > 0.0).all()  # 66 blocks keep half of the SMs at work


def test_a_narrow_element_takes_a_block_longer() -> None:
    """It has as many loads in flight, each of half the bytes.

    KernelBench: 3 passes over the 16 x 256 x 256 elements of a channel take 0.558 ms at 1.83 GHz.
    """
    passes = 3 * 16 * 256 * 256
    assert clocks_per_element(4.0) * passes / 1.83e9 == pytest.approx(0.558e-3, rel=0.2)
    assert clocks_per_element(2.0) / clocks_per_element(4.0) == pytest.approx(2.0, rel=0.05)
    assert clocks_per_element(8.0) == clocks_per_element(4.0)


# -- layout and alignment --------------------------------------------------------------------------


def test_the_faster_of_two_layouts() -> None:
    """Channels last in 2 s, and 6 bytes turned at half a second each: 5 s."""
    direct = np.array([4.0, 5.5, 9.0])
    assert either_layout_s(2.0, 6.0, 0.5, direct) == pytest.approx([4.0, 5.0, 5.0])
    assert either_layout_s(2.0, 0.0, 0.5, 9.0) == 2.0


@pytest.mark.parametrize(
    ("fma", "elems", "elem_bytes", "copies", "asynchronous", "slowdown"),
    [
        # A100, 16 bit: 128 x 64 outputs are 8 clocks of 1,024 products an element of depth, their
        # 192 elements of operands 6 loads of 32 lanes and 6 stores
        (1024, 1, 2, True, False, 1 + 12 / 8),
        (1024, 2, 2, True, False, 1 + 3 / 8),  # 4 bytes: copied straight, no stores
        (1024, 4, 2, True, False, 1 + 1.5 / 8),
        (512, 1, 4, True, False, 1 + 6 / 16),  # TF32: an element is 4 bytes
        (512, 1, 2, False, False, 1 + 12 / 16),  # V100
        (512, 4, 2, False, False, 1 + 3 / 16),  # which stores what it loaded
        (2048, 1, 2, True, True, 1 / 0.629 + 12 / 4),  # H100 falls back on warp-wise products
    ],
)
def test_loads_add_to_products(
    fma: float, elems: int, elem_bytes: float, copies: bool, asynchronous: bool, slowdown: float
) -> None:
    found = narrow_load_slowdown(fma, elems, elem_bytes, copies=copies, asynchronous=asynchronous)
    assert found == pytest.approx(slowdown)


def test_nvidias_guide_and_a_vision_tower() -> None:
    """Published figures that the law has not seen, and how far it is from them.

    NVIDIA's guide to fully-connected layers: 33,712 words for 33,708 (4 elements) are 1.3 to 4
    times as fast, by library and pass. K = 588 for 592 on Hopper: 3.53 times (kestrel pull request
    143), its aligned kernel 52 % of the peak.
    """
    a100 = narrow_load_slowdown(1024, 4, 2, copies=True, asynchronous=False)
    assert 1.1 < a100 < 1.3
    hopper = narrow_load_slowdown(2048, 4, 2, copies=True, asynchronous=True)
    assert 1.7 < hopper < 3.53


def test_no_law_of_traffic_acts_where_nothing_is_said() -> None:
    assert on_by_default(Traffic, TrafficLimits) == {}
