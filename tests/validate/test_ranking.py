"""Rank correlation against hand-made orders."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simcore import api
from simcore.answer.request import tables_folder
from simcore.validate.case import Case
from simcore.validate.metrics import Scored
from simcore.validate.ranking import Order, Timed, order_of, rank_score, ranks, spearman


def test_equal_values_share_their_ranks() -> None:
    assert ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1.0, 3.5, 2.0]


def test_spearman_by_hand() -> None:
    # d = 0, 1, 1, 1, 1 of 5: 1 - 6 * 4 / (5 * 24) = 0.8
    assert spearman(np.array([1.0, 2, 3, 4, 5]), np.array([1.0, 3, 2, 5, 4])) == pytest.approx(0.8)
    rising = np.array([0.1, 0.2, 5.0])
    assert spearman(rising, np.exp(rising)) == pytest.approx(1.0)
    assert spearman(rising, -rising) == pytest.approx(-1.0)
    assert np.isnan(spearman(np.ones(3), rising))


def test_each_row_of_an_array_is_a_series() -> None:
    rows = np.array([[2.0, 1.0, 2.0], [1.0, 2.0, 3.0], [5.0, 5.0, 5.0]])
    assert ranks(rows).tolist() == [[2.5, 1.0, 2.5], [1.0, 2.0, 3.0], [2.0, 2.0, 2.0]]
    found = spearman(rows, np.array([1.0, 2.0, 3.0]))
    # squares about the mean rank: 1.5 and 2, products 0
    assert found[:2].tolist() == [0.0, 1.0] and np.isnan(found[2])


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
    of = {"families", "rows", "weighted_mean", "median", "per_family"}
    more = {"configurations", "table_families", "without_flagged", "pairs", "repeatable"}
    assert set(out) == {*of, *more}
    assert set(out["configurations"]) == of


def timed(configuration: int, predicted: float, measured: float) -> Timed:
    return Timed(model="a", cluster="8xH100", configuration=configuration, predicted=predicted,
                 measured=measured)  # fmt: skip


def test_doubted_rows_are_left_out_beside() -> None:
    sound = [timed(i, float(i), float(i)) for i in range(1, 7)]
    found = Order((*sound, replace(timed(7, 0.5, 99.0), doubted=True)))
    assert found.of_rows.rows == 7 and found.of_rows.weighted_mean < 0.9  # type: ignore[operator]
    assert found.undoubted.rows == 6
    assert found.undoubted.weighted_mean == pytest.approx(1.0)


def test_pairs_that_differ_by_scatter_alone_are_not_counted() -> None:
    """Five steps, ten pairs by hand: 100 and 102 the wrong way round, 110 predicted as 120 is."""
    times = [(2.0, 100.0), (1.0, 102.0), (3.0, 110.0), (3.0, 120.0), (4.0, 200.0)]
    everything, beyond_3, beyond_5 = Order(
        tuple(timed(i, predicted, measured) for i, (predicted, measured) in enumerate(times))
    ).of_pairs
    assert (everything.n, beyond_3.n, beyond_5.n) == (10, 9, 9)
    assert everything.right_frac == pytest.approx((8 + 0.5) / 10)
    assert beyond_3.right_frac == pytest.approx((8 + 0.5) / 9)
    level = Order(tuple(timed(i, float(i), 1.0) for i in range(5)))
    assert [(p.n, p.right_frac) for p in level.of_pairs] == [(0, None)] * 3


def test_families_of_the_table_span_clusters() -> None:
    """Eight steps on two clusters: in order within the table's family, four a cluster are none."""
    times = tuple(
        Timed(model="a", cluster=f"{8 * (i % 2 + 1)}xH100", configuration=i, predicted=float(i),
              measured=float(i), family="a|sweep")
        for i in range(8)
    )  # fmt: skip
    order = Order(times)
    assert order.of_rows.families == ()
    (family,) = order.of_table_families.families
    assert (family.model, family.rows, family.correlation) == ("a|sweep", 8, pytest.approx(1.0))


def test_repeats_are_one_point_at_their_median() -> None:
    """Six configurations in order; three repeats of one, which equal predictions cannot rank."""
    distinct = [timed(i, float(i), float(i)) for i in range(1, 7)]
    repeats = [timed(3, 3.0, 3.0 * f) for f in (0.1, 1.01, 9.0)]
    alone, found = Order(tuple(distinct)), Order((*distinct, *repeats))
    assert found.of_rows.rows == 9 and found.of_configurations.rows == 6
    assert found.of_rows.weighted_mean is not None and found.of_rows.weighted_mean < 0.8
    assert found.of_configurations.weighted_mean == pytest.approx(1.0)
    assert alone.of_rows.to_dict() == alone.of_configurations.to_dict()
    assert alone.repeatable is None


def test_repeats_of_four_configurations_are_no_family() -> None:
    found = Order(tuple(timed(i % 4, float(i % 4), 1.0 + i) for i in range(12)))
    assert found.of_rows.families and not found.of_configurations.families
    assert found.to_dict()["repeatable"] is None


def test_what_repeats_scatter_by_is_what_an_exact_prediction_loses() -> None:
    """Steps 2 % apart, each measured twice: 0.1 % of scatter leaves their order, 5 % does not."""

    def order(scatter: float) -> Order:
        rng = np.random.default_rng(3)
        return Order(tuple(
            timed(i, 1.02**i, 1.02**i * float(np.exp(scatter * rng.standard_normal())))
            for i in range(40) for _ in range(2)
        ))  # fmt: skip

    sound, loose = order(0.001).repeatable, order(0.05).repeatable
    assert sound is not None and loose is not None and sound.rows == loose.rows == 80
    assert sound.scatter_sd_log == pytest.approx(0.001, rel=0.2)
    assert loose.scatter_sd_log == pytest.approx(0.05, rel=0.2)
    assert sound.weighted_mean > 0.999
    # uniform truth of sd 0.229 (40 steps of 0.02 / sqrt 12), scatter 0.05 / sqrt 2 a median of two
    assert loose.weighted_mean == pytest.approx(0.229 / np.hypot(0.229, 0.0354), abs=0.02)
    assert order(0.05).repeatable == loose  # the seed is fixed


def test_a_configuration_is_what_is_read_of_a_row_and_whose_it_was() -> None:
    def case(**said: object) -> Case:
        base: dict[str, object] = {
            "id": "x", "table": "t", "model": "gpt2", "gpus": "1x8xA100",
            "options": {"micro_batch": 4}, "columns": {"source": "us", "version": "1"},
        }  # fmt: skip
        return Case(**(base | said))  # type: ignore[arg-type]

    same = case(id="y", flag="doubted", measured={"step_time_s": 2.0},
                columns={"source": "us", "version": "2"})  # fmt: skip
    assert same.configuration == case().configuration
    for other in (case(gpus="1x4xA100"), case(options={"micro_batch": 8}), case(model="gpt2-xl"),
                  case(columns={"source": "them"}), case(table="u"),
                  case(columns={"source": "us", "cluster_state": "before"})):  # fmt: skip
        assert other.configuration != case().configuration


def test_a_cluster_that_was_changed_is_another() -> None:
    """Slower before a change and faster after: within each state all are in order."""

    def scored(i: int, before: bool) -> tuple[Case, Scored]:
        measured = (2.0 if before else 1.0) * (10.0 + i)
        state = {"cluster_state": "before"} if before else {}
        case = Case(id=f"{i}{before}", table="t", model="a", gpus="1x8xA100", options={"tp": i},
                    measured={"step_time_s": measured}, columns=state)  # fmt: skip
        return case, Scored(id=case.id, quantity="step_time", predicted=1.0 + i, low=0.0,
                            high=99.0, measured=measured)  # fmt: skip

    found = order_of([scored(i, before) for i in range(6) for before in (True, False)])
    assert [(f.rows, f.correlation) for f in found.of_rows.families] == [
        (6, pytest.approx(1.0))
    ] * 2
