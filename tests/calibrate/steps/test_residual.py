"""What rows left out one by one say of a fit's widths."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simcore.calibrate.steps.residual import (
    PRIOR_FREEDOM,
    few,
    left_out_deviations,
    scatter_over,
    scatter_sd_log,
    widening,
)


def test_deviations_are_those_of_a_fit_done_again_without_the_row() -> None:
    rng = np.random.default_rng(1)
    root = rng.standard_normal((6, 6))
    covariance = root @ root.T + 0.5 * np.eye(6)
    z = rng.standard_normal(6)
    inverse = np.linalg.inv(covariance)
    found = left_out_deviations(inverse, inverse @ z)
    for i in range(6):
        rest = [j for j in range(6) if j != i]
        gain = covariance[i, rest] @ np.linalg.inv(covariance[np.ix_(rest, rest)])
        sd = math.sqrt(covariance[i, i] - gain @ covariance[rest, i])
        assert found[i] == pytest.approx((z[i] - gain @ z[rest]) / sd)


def test_no_row_leaves_the_widths_of_before_in_students_t() -> None:
    assert widening([]) == pytest.approx(few(PRIOR_FREEDOM))
    assert widening(np.ones(1000)) == pytest.approx(1.0, abs=0.01)


def test_rows_nearer_than_told_narrow_and_wild_ones_widen_within_bounds() -> None:
    assert widening([0.1] * 10) < 0.75 < widening([1.0] * 10) < widening([3.0] * 10)
    assert widening([0.5] * 9 + [1e6]) == widening([0.5] * 9 + [3.0])
    assert math.isfinite(widening([0.0]))


@pytest.mark.parametrize("n", [3, 10, 30])
def test_eighty_percent_of_further_rows_lie_inside(n: int) -> None:
    """Scatter drawn as the prior has it: the posterior's interval holds four in five."""
    rng = np.random.default_rng(n)
    inside = []
    for _ in range(4000):
        true = 0.1 / math.sqrt(rng.chisquare(PRIOR_FREEDOM) / PRIOR_FREEDOM)
        sd = scatter_sd_log(true * rng.standard_normal(n), 0.0, 0.1)
        inside.append(abs(true * rng.standard_normal()) <= 1.2816 * sd)
    assert np.mean(inside) == pytest.approx(0.8, abs=0.025)


def test_one_row_says_little() -> None:
    """A fit through its only row has no error of its own, and is no surer of the next."""
    assert scatter_sd_log([0.0], 1.0, 0.15) == pytest.approx(0.15 * few(PRIOR_FREEDOM))
    assert scatter_sd_log([0.02] * 40, 3.0, 0.15) < 0.06


def test_what_is_as_far_off_before_a_calibration_as_after_it_widens_nothing() -> None:
    assert scatter_over([0.5, 9.0], [0.5, 9.0], 12.0) == 1.0
    assert scatter_over([0.5, 5.0], [0.5, 7.0], 12.0) == 1.0  # both as wild as a step counts
    assert scatter_over([2.0], [1.0], 12.0) == pytest.approx(math.sqrt((12 + 4) / (12 + 1)))
    assert scatter_over([0.0] * 3, [2.0] * 3, 12.0) == pytest.approx(math.sqrt(12 / 24))
