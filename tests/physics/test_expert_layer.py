"""A rank's expert layer against a calculation by hand, and what an uneven routing costs."""

from dataclasses import replace

import numpy as np
import pytest
from strategies import on_by_default

from simcore.physics.expert_layer import (
    ExpertRates,
    ExpertWork,
    Tile,
    expert_layer_s,
    rank_loads,
    seen_tokens,
    tiles_of,
)

FLOP_PER_S, BYTES_PER_S = 1e15, 4e12


def work_of(loads: np.ndarray, hidden: float = 4096.0, inner: float = 1024.0) -> ExpertWork:
    one = np.ones(1)
    return ExpertWork(
        rows=loads.sum(axis=1).mean() * one, hit=(loads > 0).sum(axis=1).mean() * one,
        tiles=tiles_of(loads)[:, None], hidden=hidden * one, inner=inner * one, halves=2 * one,
        weight_bytes=2 * one, row_bytes=2 * one, loaded_bytes=2 * one, moved_bytes=0 * one,
        token_bytes=0 * one, choices=0 * one, handled=0 * one, scalings=0 * one,
    )  # fmt: skip


RATES = ExpertRates(FLOP_PER_S, BYTES_PER_S, 1e-5, np.inf, np.inf, 0.0, 0.0, 0.0, 0.0)


def test_whole_tiles_reach_the_rate() -> None:
    loads = np.full((1, 8), 1024.0)
    rows, weights = 8 * 1024, 8 * 4096 * 1024
    parts = 0.0
    for columns, depth in ((2048, 4096), (4096, 1024)):
        compute = 2 * rows * columns * depth / FLOP_PER_S
        n_bytes = 2 * weights * columns * depth / (4096 * 1024) + 2 * rows * (columns + depth)
        parts += np.hypot(compute, n_bytes / BYTES_PER_S)
    assert expert_layer_s(work_of(loads), RATES, 132.0)[0] == pytest.approx(1e-5 + parts)


def test_one_row_costs_an_expert_the_smallest_tile_and_all_its_weights() -> None:
    work = work_of(np.ones((1, 8)))
    assert list(work.tiles[:, 0]) == [8.0] * 5
    # 16 rows a tile where one is used, beside the bytes of all weights
    seconds = expert_layer_s(work, RATES, 132.0)[0] - 1e-5
    weights = 8 * 3 * 4096 * 1024 * 2 / BYTES_PER_S
    assert weights < seconds < 1.01 * np.hypot(weights, 16 * work.flop[0] / FLOP_PER_S)


def test_small_tiles_wait_for_their_operands() -> None:
    """A tile of 256 x 128, depth k, loads 2 (256 + 128) k bytes, one of 16 x 128 2 x 144 k."""
    slow = replace(RATES, loaded_bytes_per_s=1e12)
    for rows, high in ((1024, 256), (16, 16)):
        work = work_of(np.full((1, 8), float(rows)))
        without_memory = replace(slow, bytes_per_s=np.inf, start_s=0.0)
        loaded = 8 * rows / high * 3 * 8 * 4096 * 1024 / 1024 * 2 * (high + 128)
        compute = work.flop[0] / FLOP_PER_S
        found = expert_layer_s(work, without_memory, 132.0)[0]
        assert found == pytest.approx(np.hypot(compute, loaded / 1e12))


@pytest.mark.parametrize("wave_frac", [0.0, 0.25, 1.0])
def test_a_last_wave_counts_as_a_share_of_a_full_one(wave_frac: float) -> None:
    """32 tiles of 256 rows by 16 and by 32 of columns on 132 SMs: 3.88 and 7.76 waves."""
    rates = replace(RATES, bytes_per_s=np.inf, start_s=0.0, wave_frac=wave_frac)
    work, tile = work_of(np.full((1, 8), 1024.0), inner=1000.0), Tile((256,), 128)
    parts = 0.0
    for waves, whole, depth in ((512 / 132, 4, 4096), (1024 / 132, 8, 1000)):
        spent = wave_frac * whole + (1 - wave_frac) * waves
        parts += spent * 132 * 256 * 128 * depth * 2 / FLOP_PER_S
    assert expert_layer_s(work, rates, 132.0, tile)[0] == pytest.approx(parts)


def test_rows_take_other_kernels_no_time_of_their_own_where_none_is_known() -> None:
    plain = work_of(np.full((1, 8), 64.0))
    work = replace(plain, handled=np.array([3e6]))
    assert expert_layer_s(work, RATES, 132.0) == expert_layer_s(plain, RATES, 132.0)
    assert not RATES.overlaps


def test_vector_units_scale_each_sum_once_in_128_of_the_depth() -> None:
    rates = replace(RATES, bytes_per_s=np.inf, start_s=0.0, scaled_per_s=1e13)
    plain = work_of(np.full((1, 8), 1024.0))
    scaled = replace(plain, scalings=np.ones(1) / 128)
    more = expert_layer_s(scaled, rates, 132.0) - expert_layer_s(plain, rates, 132.0)
    assert more[0] == pytest.approx(plain.flop[0] / 2 / 128 / 1e13)


def test_weights_beyond_the_cache_are_read_for_each_tile_of_rows() -> None:
    work = work_of(np.full((1, 8), 1024.0))
    wide, narrow = 2048 * 4096 * 2, 4096 * 1024 * 2
    seconds = [
        expert_layer_s(work, replace(RATES, flop_per_s=np.inf), 132.0, Tile((64,), 128, cached))[0]
        for cached in (wide, narrow, 0)
    ]
    again = 8 * (1024 / 64 - 1) / BYTES_PER_S
    assert np.diff(seconds) == pytest.approx([again * wide, again * narrow])


def test_narrow_weights_are_loaded_with_their_padding_and_read_without() -> None:
    rates = replace(RATES, flop_per_s=np.inf, bytes_per_s=np.inf, start_s=0.0,
                    loaded_bytes_per_s=1e12)  # fmt: skip
    plain = work_of(np.full((1, 8), 1024.0))
    narrow = replace(plain, weight_bytes=0.5 * np.ones(1))
    assert expert_layer_s(narrow, rates, 132.0) == expert_layer_s(plain, rates, 132.0)
    # a tile of 256 x 128: 256 elements of rows and 128 of weights, of two bytes or of one
    padded = replace(narrow, loaded_bytes=np.ones(1))
    found = expert_layer_s(padded, rates, 132.0) / expert_layer_s(plain, rates, 132.0)
    assert found[0] == pytest.approx((256 * 2 + 128 * 1) / (256 * 2 + 128 * 2))


def test_weights_that_the_cache_keeps_are_not_read_again() -> None:
    rates = replace(RATES, flop_per_s=np.inf, start_s=0.0)
    work = work_of(np.full((1, 8), 1024.0))
    weights = 8 * 3 * 4096 * 1024 * 2
    assert work.read_bytes[0] == weights
    none, less, all_ = (
        expert_layer_s(work, replace(rates, kept_bytes=kept), 132.0)[0]
        for kept in (0.0, weights - 1.0, float(weights))
    )
    assert none == less
    assert none - all_ == pytest.approx(weights / BYTES_PER_S)


def test_tokens_are_given_to_one_expert_after_the_other() -> None:
    """The example of aiconfigurator's _assign_experts_from_counts: five tokens, two choices each.

    The third expert has the last token and the first two, the fourth the third and the fourth.
    """
    loads = np.array([[4.0, 1.0, 3.0, 2.0]])
    assert seen_tokens(loads.reshape(1, 4, 1), 5) == [4.0]
    assert seen_tokens(loads.reshape(1, 2, 2), 5) == [5.0]
    swapped = loads[:, [2, 3, 0, 1]]
    assert seen_tokens(swapped.reshape(1, 4, 1), 5) == [3.0]
    assert seen_tokens(swapped.reshape(1, 2, 2), 5) == [5.0]
    assert seen_tokens(np.array([[[5.0], [5.0]]]), 5) == [5.0]


def test_tokens_cost_a_rank_that_computes_none_of_their_rows() -> None:
    rates = replace(RATES, token_s_per_byte=1e-12, choice_s=1e-9, moved_s_per_byte=5e-12)
    work = replace(
        work_of(np.full((1, 8), 64.0)), token_bytes=np.array([4e9]), choices=np.array([1e6])
    )
    more = expert_layer_s(work, rates, 132.0) - expert_layer_s(
        work_of(np.full((1, 8), 64.0)), RATES, 132.0
    )
    assert more[0] == pytest.approx(4e9 / BYTES_PER_S + 4e-3 + 1e-3)


def test_instructions_of_other_kernels_run_beside_memory_where_they_overlap() -> None:
    """3 ms of memory, 1 ms for bytes and 3 ms for rows: 7 ms in turn, 5 ms at once."""
    plain = work_of(np.full((1, 8), 64.0))
    work = replace(plain, moved_bytes=np.array([12e9]), handled=np.array([3e6]))
    rates = replace(RATES, moved_s_per_byte=1e-3 / 12e9, row_s=1e-9)
    before = expert_layer_s(plain, RATES, 132.0)[0]
    for overlaps, seconds in ((False, 7e-3), (True, 5e-3)):
        found = expert_layer_s(work, replace(rates, overlaps=overlaps), 132.0)[0]
        assert found - before == pytest.approx(seconds)


def test_a_layer_whose_tile_a_table_has_takes_no_other() -> None:
    two = [work_of(np.full((1, 8), 1024.0)), work_of(np.full((1, 8), 16.0))]
    slow = replace(RATES, loaded_bytes_per_s=1e12)
    tile = Tile(columns=np.array([64.0, 256.0]), chosen=np.array([128.0, 32.0]))
    for at, work in enumerate(two):
        only = np.arange(2) == at
        rows, columns = int(tile.chosen[at]), int(tile.columns[at])  # type: ignore[index]
        found = expert_layer_s(work, slow, 132.0, tile.take(only))
        assert found == expert_layer_s(work, slow, 132.0, Tile((rows,), columns))


@pytest.mark.parametrize("ranks", [1, 8])
def test_uneven_routing_keeps_the_choices_and_fills_the_fullest_rank(ranks: int) -> None:
    tokens, experts, top_k = 4096, 64, 4
    even, drawn = (rank_loads(tokens, experts, top_k, ranks, e)[:, 0] for e in (None, 1.2))
    assert even.sum() == tokens * top_k / ranks
    assert drawn.shape == (64, experts // ranks) and drawn.max() <= tokens
    if ranks == 1:  # the rank has all of them, however they are spread
        assert drawn.sum(axis=1) == pytest.approx(tokens * top_k)
    else:
        assert (drawn.sum(axis=1) > even.sum()).all()


@pytest.mark.parametrize("exponent", [0.6, 1.2, 2.0])
def test_drawn_loads_follow_the_power_law(exponent: float) -> None:
    """Density x^-e between 1 and b: x(u) = ((b^(1-e) - 1) u + 1)^(1/(1-e)), for any unit of x."""
    tokens, one = 10**6, 1.0 - exponent
    loads = np.sort(rank_loads(tokens, 1024, 1, 1, exponent)[:, 0], axis=1)
    low, middle, high = (loads[:, int(1024 * u)] for u in (0.25, 0.5, 0.75))

    def quantile(u: float) -> float:
        return float((((0.8 * tokens) ** one - 1.0) * u + 1.0) ** (1.0 / one))

    for upper, lower, u, v in ((middle, low, 0.5, 0.25), (high, middle, 0.75, 0.5)):
        found = np.median(upper / lower)
        assert found == pytest.approx(quantile(u) / quantile(v), rel=0.05)


def test_what_exceeds_all_tokens_goes_to_the_experts_that_have_room() -> None:
    """Six of eight experts a token: the fullest have all tokens, the others share the rest."""
    loads = rank_loads(512, 8, 6, 1, 1.2)[:, 0]
    assert loads.max(axis=1) == pytest.approx(512.0)
    assert loads.sum(axis=1) == pytest.approx(6 * 512.0)
    assert (loads > 0.0).all()


def test_a_tile_is_shared_by_none_and_rates_cost_no_rows_by_default() -> None:
    """128 columns and rows in doubling steps: the tiles of CUTLASS's grouped kernels."""
    assert on_by_default(Tile, ExpertRates) == {
        "columns": 128, "cached_bytes": np.inf, "sharing": 1.0,
    }  # fmt: skip
    assert Tile().rows == (16, 32, 64, 128, 256)


def test_experts_that_all_get_every_token_are_equally_full() -> None:
    """As many choices as experts: no place is left for what exceeds all tokens."""
    assert rank_loads(100, 4, 4, 2, 1.2) == pytest.approx(100.0)
