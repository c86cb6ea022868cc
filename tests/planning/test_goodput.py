"""The formulas of failures and checkpoints against a simulation and against each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import lambertw

from simcore.base.errors import InvalidConfig
from simcore.planning.goodput import (
    FAILURES_PER_GPU_H,
    Reliability,
    best_interval_s,
    daly_interval_s,
    effective_frac,
    goodput_of,
    segment,
    straggler_factor,
    young_interval_s,
)
from simcore.planning.goodput_sim import simulate_run, simulate_runs

TIMES = st.floats(10.0, 1e7)
RATIOS = st.floats(1e-6, 3.0)


@given(mtbf=TIMES, ratio=RATIOS)
def test_the_best_interval_is_lamberts(mtbf: float, ratio: float) -> None:
    delta = mtbf * ratio
    truth = mtbf * (1.0 + float(lambertw(-math.exp(-1.0 - ratio)).real))
    assert float(best_interval_s(mtbf, delta)) == pytest.approx(truth, rel=1e-6)


@given(mtbf=TIMES, ratio=RATIOS, restart=st.floats(0, 2.0), off=st.floats(0.5, 2.0))
def test_no_other_interval_is_better(mtbf: float, ratio: float, restart: float, off: float) -> None:
    best = best_interval_s(mtbf, mtbf * ratio)
    at = segment(mtbf, best, mtbf * ratio, mtbf * restart).goodput_frac
    other = segment(mtbf, best * off, mtbf * ratio, mtbf * restart).goodput_frac
    assert float(at) >= float(other) * (1 - 1e-9)


def test_young_and_daly_are_its_expansions() -> None:
    for ratio, young, daly in ((1e-4, 6e-3, 3e-6), (1e-2, 6e-2, 6e-4), (0.1, 0.2, 6e-3)):
        best = float(best_interval_s(1000.0, 1000.0 * ratio))
        assert float(young_interval_s(1000.0, 1000.0 * ratio)) == pytest.approx(best, rel=young)
        assert float(daly_interval_s(1000.0, 1000.0 * ratio)) == pytest.approx(best, rel=daly)
    assert float(daly_interval_s(10.0, 30.0)) == 10.0


def test_the_segment_is_dalys() -> None:
    m, tau, delta, r = 5000.0, 700.0, 60.0, 400.0
    truth = m * math.exp(r / m) * math.expm1((tau + delta) / m)
    assert float(segment(m, tau, delta, r).mean_s) == pytest.approx(truth, rel=1e-12)
    assert float(segment(math.inf, tau, delta, r).mean_s) == tau + delta
    near = segment(1e9, tau, delta, r)  # where the series takes over
    far = segment(1e6, tau, delta, r)
    assert float(near.mean_s) == pytest.approx(
        1e9 * math.exp(r / 1e9) * math.expm1((tau + delta) / 1e9), rel=1e-9
    )
    assert float(near.variance_s2) == pytest.approx(float(far.variance_s2) / 1e3, rel=2e-3)


@pytest.mark.parametrize(("save", "restart"), [(40.0, 300.0), (200.0, 0.0), (5.0, 2000.0)])
def test_a_simulation_agrees_in_mean_and_spread(save: float, restart: float) -> None:
    mtbf, tau, n_segments, runs = 2000.0, 600.0, 60, 250
    times = np.array([
        simulate_run(mtbf_s=mtbf, interval_s=tau, save_s=save, restart_s=restart,
                     work_s=tau * n_segments, seed=s)
        for s in range(runs)
    ])  # fmt: skip
    one = segment(mtbf, tau, save, restart)
    mean = n_segments * float(one.mean_s)
    sd = math.sqrt(n_segments * float(one.variance_s2))
    assert times.mean() == pytest.approx(mean, abs=4 * sd / math.sqrt(runs))
    # the standard error of a standard deviation is sd / sqrt(2 runs), more with heavy tails
    assert times.std(ddof=1) == pytest.approx(sd, rel=5 / math.sqrt(2 * runs))


def test_llama3_was_effective_above_ninety_percent() -> None:
    assert pytest.approx(1.973e-5, rel=1e-3) == FAILURES_PER_GPU_H
    found = goodput_of(
        Reliability(), n_gpus=16_384, n_nodes=2048, checkpoint_bytes=405e9 * 14,
        work_s=50 * 86400.0,
    )  # fmt: skip
    assert found.mtbf_s == pytest.approx(54 * 86400 / 419, rel=1e-9)
    assert 0.90 < found.goodput_frac < 0.96
    assert found.run_s == pytest.approx(50 * 86400 / found.goodput_frac)
    assert found.failures == pytest.approx(419 * found.run_s / (54 * 86400), rel=1e-9)
    parts = found.goodput_frac + found.saving_frac + found.lost_frac + found.restart_frac
    assert parts == pytest.approx(1.0, rel=1e-9)
    low, high = found.run_low_high_s  # type: ignore[misc]
    assert low < found.run_s < high


@pytest.mark.parametrize("n_gpus", [8, 512, 2048])
def test_the_interval_of_a_run_with_few_failures(n_gpus: int) -> None:
    """No run ends before one without a failure does; against 400 simulated ones."""
    work_s = 10 * 3600.0
    found = goodput_of(
        Reliability(), n_gpus=n_gpus, n_nodes=n_gpus // 8, checkpoint_bytes=112e9, work_s=work_s
    )
    low, high = found.run_low_high_s  # type: ignore[misc]
    simulated = simulate_runs(found, 400, seed=1)
    shortest = work_s * (1.0 + found.save_s / found.interval_s)
    assert low == pytest.approx(shortest)
    assert low == pytest.approx(simulated["p10_s"], rel=1e-3)  # which saves whole times
    assert high >= found.run_s  # type: ignore[operator]
    assert high == pytest.approx(simulated["p90_s"], rel=0.03)


def test_many_jobs_at_once_equal_one_by_one() -> None:
    rel = Reliability(slow_prob=0.01, slow_frac=0.3)
    gpus = np.array([8.0, 512.0, 16_384.0])
    found = effective_frac(rel, gpus, gpus / 8, np.full(3, 1e12))
    for n, frac in zip(gpus, found, strict=True):
        one = goodput_of(rel, n_gpus=int(n), n_nodes=int(n) // 8, checkpoint_bytes=1e12)
        assert frac == pytest.approx(one.goodput_frac, rel=1e-12)
    assert (np.diff(found) < 0).all()
    assert effective_frac(Reliability(failures_per_gpu_h=0.0), gpus, gpus, gpus) == pytest.approx(1)


def test_stragglers_against_sampling() -> None:
    rng = np.random.default_rng(3)
    rel = Reliability(slow_prob=0.02, slow_frac=0.5, node_sd_log=0.05)
    for n in (1, 8, 200):
        slow = 1.0 + 0.5 * (rng.random((20_000, n)) < 0.02)
        worst = (slow * np.exp(0.05 * rng.standard_normal((20_000, n)))).max(axis=1)
        error = worst.std() / math.sqrt(len(worst))
        assert float(straggler_factor(float(n), rel)) == pytest.approx(
            worst.mean(), abs=4 * error + 1e-4
        )
    alone = Reliability(slow_prob=0.1, slow_frac=0.5)
    assert float(straggler_factor(2.0, alone)) == pytest.approx(1 + 0.5 * (1 - 0.81))


def test_wrong_words_are_all_said() -> None:
    with pytest.raises(InvalidConfig) as err:
        Reliability(failures_per_gpu_h=-1, restart_s=math.inf, slow_prob=2, interval_s=0)
    assert len(err.value.violations) == 4
