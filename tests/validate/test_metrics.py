"""Error measures against figures worked out by hand."""

import pytest

from simcore.validate.metrics import Scored, score


def row(predicted: float, measured: float, half_width: float = 0.1) -> Scored:
    return Scored(
        id="r",
        quantity="step_time",
        predicted=predicted,
        low=predicted * (1 - half_width),
        high=predicted * (1 + half_width),
        measured=measured,
    )


def test_by_hand() -> None:
    # errors: +10 %, -20 %, +50 %
    found = score([row(1.1, 1.0), row(0.8, 1.0), row(1.5, 1.0)])
    assert found.n == 3
    assert found.mape_frac == pytest.approx((0.1 + 0.2 + 0.5) / 3)
    assert found.median_abs_frac == pytest.approx(0.2)
    assert found.median_bias_frac == pytest.approx(0.1)
    assert found.p90_abs_frac == pytest.approx(0.2 + 0.8 * 0.3)
    assert found.coverage80_frac == pytest.approx(1 / 3)  # only 0.99..1.21 holds 1.0


def test_nothing_to_score_is_none_not_zero() -> None:
    empty = score([])
    assert empty.n == 0
    assert empty.mape_frac is None
    assert empty.coverage80_frac is None
