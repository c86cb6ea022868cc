"""Order statistics against their known values (Harter 1961) and what a step makes of them."""

import numpy as np
import pytest

from simcore.api import explain, predict
from simcore.physics.collectives import (
    expected_maximum,
    most_work,
    slowest_rate_frac,
    slowest_rates,
)


@pytest.mark.parametrize(
    ("n", "exact"),
    [(2, 0.56419), (5, 1.16296), (10, 1.53875), (50, 2.24907), (100, 2.50759), (400, 2.96818)],
)
def test_expected_maximum_is_harters(n, exact):
    assert expected_maximum(n) == pytest.approx(exact, rel=0.05 if n == 2 else 0.02)


def test_one_device_waits_for_none():
    assert expected_maximum(1) == 0.0
    assert slowest_rate_frac(1, 0.02) == 1.0


def test_more_devices_wait_longer_and_equal_devices_never():
    rates = [slowest_rate_frac(n, 0.02) for n in (1, 2, 8, 64, 4096)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] > 0.9
    assert slowest_rate_frac(4096, 0.0) == 1.0


def test_rates_of_a_column_are_those_of_its_numbers() -> None:
    """Rounded to whole devices; less than one device is one."""
    found = slowest_rates(np.array([[8.0, 0.3], [7.6, 2.2]]), 0.02)
    eight, two = (1 / (1 + 0.02 * expected_maximum(n)) for n in (8, 2))
    assert found == pytest.approx(np.array([[eight, 1.0], [eight, two]]), rel=1e-12)


def test_one_gpu_column_of_a_job_is_the_job_on_one_gpu():
    """The speed-up's denominator does not wait for devices that it does not have."""
    many = predict(model="gpt2-small", gpus="8xA100-SXM-80GB", micro_batch=4)
    one = predict(model="gpt2-small", gpus="1xA100-SXM-80GB", micro_batch=4)
    rate = many.samples_per_s / many.speedup_vs_1gpu
    assert rate == pytest.approx(one.samples_per_s, rel=1e-3)  # the PCIe root is shared


@pytest.mark.parametrize(("n", "samples"), [(2, 4), (8, 12), (64, 1)])
def test_the_rank_with_most_work_is_that_of_a_lottery(n, samples):
    """Ranks that draw samples of uneven work, played: the mean of the largest share."""
    draw = np.random.default_rng(0)
    work = draw.normal(1.0, 0.15, (20_000, n, samples)).mean(axis=2)
    found = most_work(np.array([float(n)]), np.array([float(samples)]), 0.15)
    assert found[0] - 1.0 == pytest.approx(work.max(axis=1).mean() - 1.0, rel=0.06)


def test_ranks_of_equal_work_and_one_alone_wait_for_none():
    ranks, one = np.array([1.0, 8.0, 4096.0]), np.ones(3)
    assert most_work(ranks, one, 0.0) == pytest.approx(1.0)
    assert most_work(ranks, one, 0.15)[0] == 1.0


def test_detection_scales_worse_than_its_wires_and_better_with_larger_batches():
    """Same job with images of equal size and equally many objects: nothing to wait for."""
    uneven = predict(model="mask-rcnn-r50-fpn", gpus="8xA100-SXM-80GB", micro_batch=4)
    even = predict(model="mask-rcnn-r50-fpn-static", gpus="8xA100-SXM-80GB", micro_batch=4)
    more = predict(model="mask-rcnn-r50-fpn", gpus="8xA100-SXM-80GB", micro_batch=16)
    assert uneven.speedup_vs_1gpu < 0.93 * even.speedup_vs_1gpu
    assert uneven.speedup_vs_1gpu < more.speedup_vs_1gpu < even.speedup_vs_1gpu
    assert any("ranks wait" in text for text in uneven.assumptions)


def test_the_wait_is_told_where_there_is_one():
    told = {
        gpus: explain("mask-rcnn-r50-fpn", gpus, "time.forward").formula
        for gpus in ("1xA100-SXM-80GB", "8xA100-SXM-80GB")
    }
    assert "hold most work" in told["8xA100-SXM-80GB"]
    assert "wait" not in told["1xA100-SXM-80GB"]
