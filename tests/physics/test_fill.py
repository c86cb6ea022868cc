"""Fill of products and of attention: hand-counted tiles, limits, and that work never gets free."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.physics.fill import (
    EXP_EXPOSED_FRAC,
    TILE_PENALTY,
    array_fill,
    attention_fill,
    matmul_fill,
    own_sides,
    softmax_width,
    tiled_attention_fill,
)

SIZE = st.floats(2, 20000)


def speed(long: int, short: int) -> float:
    """A tile's rate beside 256 x 128."""
    return 1 / (1 + TILE_PENALTY * (128 / long + 128 / short - 1.5))


def test_whole_waves_of_the_largest_tile_fill_the_device() -> None:
    # 2560 x 1280 on 100 SMs: 10 x 10 tiles of 256 x 128, one wave without padding.
    assert matmul_fill(2560, 1280, 4096, 1, 100) == pytest.approx(1.0)
    assert matmul_fill(1280, 2560, 4096, 1, 100) == pytest.approx(1.0)  # whichever side is long


def test_a_tile_more_than_a_wave_takes_two_waves_where_blocks_wait() -> None:
    # 101 tiles of 256 x 128 on 100 SMs; with half-size tiles 202 blocks in three waves of half.
    m, n = 256 * 101, 128
    even = float(matmul_fill(m, n, 4096, 1, 100, wave_frac=0.0))
    waits = float(matmul_fill(m, n, 4096, 1, 100, wave_frac=1.0))
    assert even == pytest.approx(1.0)
    smaller = [speed(128, 128) * 2.02 / 3, speed(128, 64) * 4.04 / 5, speed(64, 64) * 8.08 / 9,
               speed(64, 32) * 16.16 / 17]  # fmt: skip
    assert waits == pytest.approx(max(1.01 / 2, *smaller))


def test_a_small_output_uses_small_tiles_and_split_k() -> None:
    # 128 x 128, too shallow to split: eight blocks of 64 x 32 on 100 SMs.
    assert matmul_fill(128, 128, 512, 1, 100) == pytest.approx(8 / 100 * speed(64, 32))
    # 512 * 200 deep: the largest tile's padding aside, one 128 x 128 block in 200 slices.
    assert matmul_fill(128, 128, 512 * 200, 1, 100) == pytest.approx(speed(128, 128))


def test_padding_counts() -> None:
    whole = float(matmul_fill(12800, 12800, 4096, 1, 100))
    ragged = float(matmul_fill(12801, 12801, 4096, 1, 100))
    assert 0.97 * whole < ragged < whole
    # Five columns in tiles of at least 32 of them.
    assert matmul_fill(64 * 10000, 5, 4096, 1, 100) == pytest.approx(5 / 32 * speed(64, 32))


def test_less_than_one_counts_as_one() -> None:
    """A share of a micro-batch may be less than a row, a group or an element of depth."""
    shallow, single = (matmul_fill(128, 64, k, 2, 100, 0.5, 8.0) for k in (0.5, 1))
    assert shallow == single
    part, whole = (matmul_fill(128, 64, 9, groups, 100, 0.5, 8.0) for groups in (0.25, 1))
    assert part == whole


def test_depth_ramp() -> None:
    full = float(matmul_fill(2560, 1280, 512, 1, 100))
    assert matmul_fill(2560, 1280, 512, 1, 100, half_depth=512) == pytest.approx(full / 2)


def test_slices_of_split_k_are_as_deep_as_a_block_computes() -> None:
    """1,024 deep in two slices of 512: 16 blocks of 64 x 32 on 100 SMs."""
    found = matmul_fill(128, 128, 1024, 1, 100, half_depth=100)
    assert found == pytest.approx(16 / 100 * speed(64, 32) * 512 / 612)


def test_a_side_of_two_has_tiles() -> None:
    assert matmul_fill(64 * 10000, 2, 4096, 1, 100) == pytest.approx(2 / 32 * speed(64, 32))


def test_a_product_of_depth_one_waits_for_its_start() -> None:
    full = float(matmul_fill(2560, 1280, 4096, 1, 100))
    for k in (1, 2):
        assert matmul_fill(2560, 1280, k, 1, 100, half_depth=8) == pytest.approx(full * k / (k + 8))


def test_rows_beyond_those_of_their_groups_are_no_work_of_a_product() -> None:
    """Sides m, n, k and groups (fixed, per sample): of groups, a side that grows with the batch.

    Eight experts whose tiles exceed their rows by 1,024 in all, two of 0.5 rows a sample, one
    expert, and many of a fixed number of rows.
    """
    grown = [[1024.0, 4.0], [512.0, 0.0], [0.0, 3.0], [8.0, 0.0]]
    few = [[96.0, 0.5], [0.5, 0.0], [7.0, 2.0], [2.0, 0.0]]
    single = [[1024.0, 4.0], [512.0, 0.0], [256.0, 1.0], [1.0, 0.0]]
    fixed = [[1024.0, 0.0], [512.0, 0.0], [256.0, 0.0], [8.0, 0.0]]
    sides = np.array([grown, few, single, fixed])
    given = sides.copy()
    found = own_sides(sides)
    assert (sides == given).all()
    given[0, 0, 0] = given[1, [0, 2], 0] = 0.0
    assert (found == given).all()
    assert (own_sides(sides[0]) == given[0]).all()


def test_vectors_run_without_tiles() -> None:
    assert matmul_fill(1, 4096, 4096, 1, 100) == 1.0
    assert matmul_fill(10000, 1, 9, 64, 100, 1.0, 100.0) == 1.0  # depthwise


def test_a_library_with_one_tile_pads_to_it() -> None:
    # Attention times values of 128 heads of 64: blocks of 128 columns are half empty.
    heads = (512, 64, 512, 128, 108)
    padded = float(matmul_fill(*heads, tile=(128, 128)))
    assert padded == pytest.approx(float(matmul_fill(512, 128, 512, 128, 108)) / 2)
    assert padded < 0.55 * float(matmul_fill(*heads))
    # Rows and columns are told apart: 64 rows fill blocks of 64 by 128, 64 columns do not.
    fits = matmul_fill(64, 512, 512, 128, 108, tile=(64, 128))
    assert fits == matmul_fill(64, 512, 512, 128, 108)
    assert matmul_fill(512, 64, 512, 128, 108, tile=(64, 128)) == pytest.approx(padded)
    # A whole tile changes nothing; vectors have none; 129 columns are two tiles.
    assert matmul_fill(512, 256, 64, 9, 108, tile=(128, 128)) == matmul_fill(512, 256, 64, 9, 108)
    assert matmul_fill(1, 4096, 4096, 1, 108, tile=(128, 128)) == 1.0
    wide = float(matmul_fill(512, 256, 512, 128, 108))
    ragged = float(matmul_fill(512, 129, 512, 128, 108, tile=(128, 128)))
    assert ragged == pytest.approx(wide * 129 / 256)


def test_tiles_go_by_kernel() -> None:
    columns = np.array([[64.0], [64.0]])
    both = matmul_fill(512, columns, 512, 128, 108, tile=(np.ones((2, 1)), np.array([[1], [128]])))
    assert both[0, 0] == pytest.approx(float(matmul_fill(512, 64, 512, 128, 108)))
    assert both[1, 0] == pytest.approx(float(matmul_fill(512, 64, 512, 128, 108, tile=(1, 128))))


@given(m=SIZE, n=SIZE, k=SIZE, groups=st.floats(1, 64), sms=st.integers(1, 300),
       wave=st.floats(0, 1), depth=st.floats(0, 500))  # fmt: skip
def test_more_work_never_takes_less_time(
    m: float, n: float, k: float, groups: float, sms: int, wave: float, depth: float
) -> None:
    def time(m: float, n: float, k: float, groups: float) -> float:
        return m * n * k * groups / float(matmul_fill(m, n, k, groups, sms, wave, depth))

    assert 0 < float(matmul_fill(m, n, k, groups, sms, wave, depth)) <= 1
    base = time(m, n, k, groups) * (1 - 1e-9)
    for grown in ((1.1 * m, n, k, groups), (m, 1.7 * n, k, groups), (m, n, 1.3 * k, groups),
                  (m, n, k, 2 * groups)):  # fmt: skip
        assert time(*grown) >= base


def test_arrays_broadcast_over_kernels_and_configurations() -> None:
    m = np.array([[128.0, 256.0], [512.0, 1024.0]])
    one = np.full((2, 1), 4096.0)
    wave = np.array([[0.0], [1.0]])
    found = matmul_fill(m, one, one, np.ones((2, 1)), 108, wave, wave)
    assert found.shape == (2, 2)
    assert found[1, 0] == pytest.approx(float(matmul_fill(512, 4096, 4096, 1, 108, 1.0, 1.0)))


def test_attention_by_hand() -> None:
    # 16 blocks of 128 queries x 8 heads on 100 SMs: 1.28 waves.
    args = (2048.0, 128.0, 2048.0, 8.0, 100.0)
    assert attention_fill(*args) == pytest.approx(1.0)
    assert attention_fill(*args, wave_frac=1.0) == pytest.approx(0.64)
    assert attention_fill(*args, half_depth=2048) == pytest.approx(0.5)
    assert attention_fill(*args, half_width=128) == pytest.approx(0.5)
    # A head dimension of 72 runs as 80.
    assert attention_fill(2048.0, 72.0, 2048.0, 8.0, 100.0) == pytest.approx(0.9)
    assert attention_fill(128.0, 128.0, 128.0, 1.0, 100.0) == pytest.approx(0.01)


def test_tiled_attention_by_hand() -> None:
    """Tiles of 64 x 64 up to heads of 64, of 64 x 128 above, in pieces of 32 of the head."""

    def fill(seq: float, dim: float, keys: float, heads: float = 8.0, **kw: float) -> float:
        figures = {"half_depth": 0.0, "half_width": 0.0, **kw}
        return float(tiled_attention_fill(seq, dim, keys, heads, 128.0, 0.0, **figures))

    assert fill(2048.0, 64.0, 2048.0) == pytest.approx(1.0)
    assert fill(2048.0, 72.0, 2048.0) == pytest.approx(72.0 / ((96.0 + 128.0) / 2.0))
    assert fill(2048.0, 64.0, 200.0) == pytest.approx(200.0 / 256.0)
    assert fill(2048.0, 64.0, 2048.0, half_depth=2048.0) == pytest.approx(0.5)
    assert fill(2048.0, 64.0, 2048.0, half_width=64.0) == pytest.approx(0.5)
    assert fill(64.0, 128.0, 128.0, heads=1.0) == pytest.approx(1.0 / 128.0)
    # Causal, 1,024 blocks of one wave of 128 each: half a tile more, and an eighth of the mean.
    assert fill(4096.0, 128.0, 2048.0, heads=16.0) == pytest.approx(
        2048.0 / (2048.0 + 64.0 + 256.0)
    )


def test_tiled_attention_of_few_blocks_by_hand() -> None:
    """Heads of 64 reach the full rate from 1.6 blocks an SM on, three of which run at a time."""

    def fill(seq: float, keys: float, heads: float) -> float:
        return float(tiled_attention_fill(seq, 64.0, keys, heads, 128.0, 0.0, 0.0, 0.0))

    assert fill(64.0, 2048.0, 128.0) == pytest.approx(1.0 / 1.6)
    # Causal: 64 blocks of 12 heads on 128 SMs are six each, two waves; in less than one wave the
    # last blocks take twice the mean.
    assert fill(4096.0, 2048.0, 12.0) == pytest.approx(2048.0 / (2048.0 + 32.0 + 1024.0))
    assert fill(4096.0, 2048.0, 4.0) == pytest.approx(2048.0 / (2048.0 + 32.0 + 2048.0))


@pytest.mark.parametrize("law", [attention_fill, tiled_attention_fill])
def test_less_than_one_counts_as_one_in_attention(law: Callable[..., float]) -> None:
    """Queries, an element of the head, keys and heads: of a share of a sample there may be less."""
    ones = np.ones(4)
    for place in range(4):
        less = ones.copy()
        less[place] = 0.0
        found = law(*less, 100.0, 0.0, 2.0, 3.0)
        assert 0.0 < found == law(*ones, 100.0, 0.0, 2.0, 3.0)


def test_attention_of_one_key_and_of_one_element_by_hand() -> None:
    """One block on 100 SMs; a head of one element runs as 16, and in tiles as (32 + 64) / 2."""
    assert attention_fill(1.0, 1.0, 1.0, 1.0, 100.0, 0.0, 2.0, 3.0) == pytest.approx(
        0.01 * (1 / 3) * (1 / 19)
    )
    assert tiled_attention_fill(1.0, 1.0, 1.0, 1.0, 100.0, 0.0, 2.0, 3.0) == pytest.approx(
        0.01 / 1.6 * (1 / 66) * (1 / 51)
    )


def test_exponentials_of_a_known_device() -> None:
    """H100 SXM: 132 SMs at 1.83 GHz, 16 a clock, 3.87 T/s; 989 TFLOP/s: 64 elements for all."""
    width = softmax_width(989.4e12, 132, 1.83e9, 16.0)
    assert width / EXP_EXPOSED_FRAC == pytest.approx(64.0, rel=0.001)


def test_a_systolic_array_is_filled_by_multiples_of_its_side() -> None:
    """A head of 128 uses half of an array of 256; 2,880 fill 11.25 of 12 columns."""
    assert array_fill(256.0, 128.0) == pytest.approx(0.5)
    assert array_fill(128.0, 128.0) == pytest.approx(1.0)
    assert array_fill(256.0, 2880.0, 4096.0) == pytest.approx(11.25 / 12)
    assert array_fill(256.0, 64.0, 384.0) == pytest.approx(0.25 * 0.75)
    columns = array_fill(256.0, np.array([[0.0], [128.0]]), np.array([64.0, 128.0, 256.0]))
    assert columns == pytest.approx(np.array([[0.0] * 3, [0.125, 0.25, 0.5]]))


def test_less_than_a_head_fills_as_one_does() -> None:
    """A table's rows without heads have zero of them."""
    one, none = (attention_fill(256.0, 64.0, 256.0, heads, 108.0) for heads in (1.0, 0.0))
    assert one == none == pytest.approx(2 / 108)
