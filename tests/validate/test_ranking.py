"""Rank correlation against hand-made orders."""

from __future__ import annotations

import numpy as np
import pytest

from simcore import api
from simcore.validate.known import tables_folder
from simcore.validate.ranking import rank_score, ranks, spearman


def test_equal_values_share_their_ranks() -> None:
    assert ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1.0, 3.5, 2.0]


def test_spearman_by_hand() -> None:
    # d = 0, 1, 1, 1, 1 of 5: 1 - 6 * 4 / (5 * 24) = 0.8
    assert spearman(np.array([1.0, 2, 3, 4, 5]), np.array([1.0, 3, 2, 5, 4])) == pytest.approx(0.8)
    rising = np.array([0.1, 0.2, 5.0])
    assert spearman(rising, np.exp(rising)) == pytest.approx(1.0)
    assert spearman(rising, -rising) == pytest.approx(-1.0)
    assert spearman(np.ones(3), rising) is None


def test_families_are_of_one_model_and_cluster_and_weigh_their_rows() -> None:
    right = [("a", "8xH100", float(i), float(i)) for i in range(9)]
    wrong = [("a", "4xH100", float(i), -float(i)) for i in range(6)]
    few = [("b", "8xH100", float(i), -float(i)) for i in range(4)]
    level = [("c", "8xH100", 1.0, float(i)) for i in range(7)]
    found = rank_score([*right, *wrong, *few, *level])
    assert [(f.cluster, f.rows, round(f.correlation, 9)) for f in found.families] == [
        ("4xH100", 6, -1.0), ("8xH100", 9, 1.0),
    ]  # fmt: skip
    assert found.rows == 15
    assert found.weighted_mean == pytest.approx((9 - 6) / 15)
    assert found.median == pytest.approx(0.0)


def test_nothing_to_rank_is_none() -> None:
    out = rank_score([]).to_dict()
    assert (out["families"], out["weighted_mean"], out["median"]) == (0, None, None)


def test_the_json_has_it() -> None:
    out = api.validate([tables_folder() / "latte.csv"])["rank_correlation"]
    assert set(out) == {"families", "rows", "weighted_mean", "median", "per_family"}
