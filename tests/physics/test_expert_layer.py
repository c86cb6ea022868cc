"""A rank's expert layer against a calculation by hand, and what an uneven routing costs."""

import numpy as np
import pytest

from simcore.physics.expert_layer import (
    ExpertRates,
    ExpertWork,
    expert_layer_s,
    rank_loads,
    tiles_of,
)

FLOP_PER_S, BYTES_PER_S = 1e15, 4e12


def work_of(loads: np.ndarray, hidden: float = 4096.0, inner: float = 1024.0) -> ExpertWork:
    one = np.ones(1)
    return ExpertWork(
        rows=loads.sum(axis=1).mean() * one, hit=(loads > 0).sum(axis=1).mean() * one,
        tiles=tiles_of(loads)[:, None], hidden=hidden * one, inner=inner * one, halves=2 * one,
        weight_bytes=2 * one, row_bytes=2 * one, moved_bytes=0 * one,
    )  # fmt: skip


RATES = ExpertRates(FLOP_PER_S, BYTES_PER_S, 1e-5, 0.0, 0.0, 0.0)


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


@pytest.mark.parametrize("ranks", [1, 8])
def test_uneven_routing_keeps_the_choices_and_fills_the_fullest_rank(ranks: int) -> None:
    tokens, experts, top_k = 4096, 64, 4
    even = rank_loads(tokens, experts, top_k, ranks, None)
    drawn = rank_loads(tokens, experts, top_k, ranks, 1.2)
    assert even.sum() == tokens * top_k / ranks
    assert drawn.shape == (64, experts // ranks) and drawn.max() <= tokens
    if ranks == 1:  # the rank has all of them, however they are spread
        assert drawn.sum(axis=1) == pytest.approx(tokens * top_k)
    else:
        assert (drawn.sum(axis=1) > even.sum()).all()
