"""One figure from many calls: what disturbs a call is told from what the call costs."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from simcore.calibrate.bench.case import Sample
from simcore.calibrate.bench.timing import (
    AtOnce,
    Typical,
    busy_s,
    least_disturbed,
    of_ranks_at_once,
    others_frac,
    seconds_of_a_tick,
    typical,
)


def test_the_median_of_what_nothing_disturbed() -> None:
    quiet = [Sample(1.0), Sample(1.1), Sample(0.9)]
    loud = [Sample(s, disturbed=True) for s in (4.0, 5.0, 6.0, 7.0)]
    found = typical([*loud, *quiet])
    assert found.seconds == 1.0
    assert found.calls == 3
    assert found.disturbed_frac == pytest.approx(4 / 7)


def test_where_all_are_disturbed_the_least_so_count() -> None:
    found = typical([Sample(float(s), disturbed=True) for s in range(10, 31)])
    assert 10.0 <= found.seconds <= 13.0
    assert found.disturbed_frac == 1.0


def test_busy_others_make_a_low_quantile_of_calls_that_seemed_fine() -> None:
    samples = [Sample(1.0)] * 3 + [Sample(2.0)] * 18
    assert typical(samples).seconds == 2.0
    assert typical(samples, others_frac=0.4).seconds == pytest.approx(1.0)


@pytest.mark.parametrize("disturbed_frac", [0.0, 0.3, 0.6])
def test_a_cost_is_found_whatever_share_of_calls_is_hit(disturbed_frac: float) -> None:
    rng = random.Random(3)
    samples = []
    for _ in range(100):
        hit = rng.random() < disturbed_frac
        cost = 5e-3 * rng.gauss(1.0, 0.01)
        samples.append(Sample(cost * rng.uniform(1.2, 4.0) if hit else cost, disturbed=hit))
    found = typical(samples)
    assert found.seconds == pytest.approx(5e-3, rel=0.01)
    assert found.sd_log == pytest.approx(0.01, abs=0.005)


def test_ranks_in_step_keep_the_calls_that_others_left_alone() -> None:
    """Half of the calls ran beside a process that took a third of the machine."""
    walls = np.array([0.1, 0.18] * 10)
    others = np.array([0.0, 0.33] * 10)
    found = least_disturbed(walls, others, tick_s=0.01)
    assert found.seconds == pytest.approx(0.1)
    assert found.calls == 10
    assert found.disturbed_frac == 0.0


def test_ranks_in_step_that_were_never_alone_say_so() -> None:
    walls = np.linspace(0.1, 0.3, 20)
    found = least_disturbed(walls, np.linspace(0.2, 0.8, 20), tick_s=0.01)
    assert found.seconds < 0.15
    assert found.disturbed_frac > 0.2


def test_ranks_at_once_are_disturbed_by_the_time_that_others_took() -> None:
    """Both cores full: every long call is interrupted, whether others take 2 % or half of them."""
    call = Typical(0.1, 0.02, 10, disturbed_frac=1.0)
    little = [AtOnce(call, busy_s=2.0, own_cpu_s=0.98, wall_s=1.0)] * 2
    found = of_ranks_at_once(little, n_cores=2)
    assert found.disturbed_frac == pytest.approx(0.02)
    assert found.seconds == pytest.approx(0.1)
    half = [AtOnce(call, busy_s=4.0, own_cpu_s=1.0, wall_s=2.0)] * 2
    assert of_ranks_at_once(half, n_cores=2).disturbed_frac == pytest.approx(0.5)


def test_calls_shorter_than_the_systems_clock_are_judged_together() -> None:
    walls = np.array([1e-3] * 15 + [3e-3] * 5)
    found = least_disturbed(walls, np.zeros(20), tick_s=0.01)
    assert found.seconds == pytest.approx(1e-3)


def test_what_others_use_is_what_is_busy_less_ones_own(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 50 800 20 5 5 10 0 0\ncpu0 1 2\n", encoding="ascii")
    # idle 800 and waiting for the disk 20 are not busy
    assert busy_s(stat) == pytest.approx(170.0 * seconds_of_a_tick())
    assert others_frac(1.5, 1.0, 1.0, 2) == pytest.approx(0.25)
    assert others_frac(0.9, 1.0, 1.0, 2) == 0.0
    assert busy_s(tmp_path / "none") == 0.0
