"""Widths that were put into errors come back, and the share inside is what was asked."""

from __future__ import annotations

import numpy as np
import pytest

from simcore.calibrate.steps.spread import Errors, fit_widths, width_of_a_new_source


def _errors(widths: list[float], n: int, seed: int, *, freedom: float | None = None) -> Errors:
    rng = np.random.default_rng(seed)
    weights = np.column_stack(
        [np.ones(n), *(rng.random(n) < 0.5 for _ in widths[1:])]
    ).astype(float)  # fmt: skip
    known = rng.uniform(0.0, 0.01, n)
    sd = np.sqrt(known + weights @ np.square(widths))
    z = rng.standard_normal(n) if freedom is None else rng.standard_t(freedom, n)
    return Errors(np.abs(z) * sd, known, weights)


@pytest.mark.parametrize("seed", range(3))
def test_widths_come_back(seed: int) -> None:
    true = [0.1, 0.3, 0.2]
    assert fit_widths(_errors(true, 4000, seed)) == pytest.approx(true, rel=0.2)


@pytest.mark.parametrize("freedom", [None, 2.0])
def test_eighty_percent_lie_inside_in_each_kind_of_job(freedom: float | None) -> None:
    errors = _errors([0.1, 0.4], 3000, 7, freedom=freedom)
    inside = errors.inside(fit_widths(errors))
    part = errors.weights[:, 1] > 0
    assert inside.mean() == pytest.approx(0.8, abs=0.02)
    assert inside[part].mean() == pytest.approx(0.8, abs=0.03)
    assert inside[~part].mean() == pytest.approx(0.8, abs=0.03)


def test_few_rows_stay_near_the_pooled_width() -> None:
    """One wild row of a kind does not set that kind's width."""
    errors = _errors([0.1], 400, 3)
    rare = np.zeros((400, 1))
    rare[0] = 1.0
    wild = errors.size.copy()
    wild[0] = 50.0
    found = fit_widths(Errors(wild, errors.known, np.hstack([errors.weights, rare])))
    assert found[0] == pytest.approx(0.1, rel=0.2)
    assert found[1] < 1.0


def test_how_far_outside_does_not_count() -> None:
    errors = _errors([0.2], 500, 5)
    far = np.where(errors.size > np.quantile(errors.size, 0.95), 100.0, errors.size)
    again = Errors(far, errors.known, errors.weights)
    assert fit_widths(again) == pytest.approx(fit_widths(errors), rel=1e-3)


def test_a_new_source_of_many_is_held_four_times_in_five() -> None:
    """Sources that share most of their error: rows of one are no independent evidence."""
    rng = np.random.default_rng(11)
    inside = []
    for _ in range(400):
        n = rng.integers(1, 30, 13)
        sources = np.repeat([f"s{i}" for i in range(13)], n)
        errors = np.abs(
            np.repeat(rng.standard_normal(13), n) + 0.2 * rng.standard_normal(len(sources))
        )
        new = abs(float(rng.standard_normal()) + 0.2 * float(rng.standard_normal()))
        inside.append(new <= width_of_a_new_source(errors, sources))
    assert np.mean(inside) == pytest.approx(0.84, abs=0.05)  # 0.8 at least, 1/14 above it at most


def test_each_source_counts_once() -> None:
    """Four sources: at the level of all of them, whatever the rows of the largest."""
    sources = np.array(["a"] * 1000 + ["b", "c", "d"])
    errors = np.concatenate([np.full(1000, 0.1), [0.2, 0.3, 0.4]])
    assert width_of_a_new_source(errors, sources) == 0.4
    nine = np.array([f"s{i}" for i in range(9)])
    assert width_of_a_new_source(np.arange(9.0), nine) == 7.0  # 0.8 x 10/9 of nine: the eighth
