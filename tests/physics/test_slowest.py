"""Order statistics against their known values (Harter 1961) and what a step makes of them."""

import pytest

from simcore.api import predict
from simcore.physics.slowest import expected_maximum, slowest_rate_frac


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


def test_one_gpu_column_of_a_job_is_the_job_on_one_gpu():
    """The speed-up's denominator does not wait for devices that it does not have."""
    many = predict(model="gpt2-small", gpus="8xA100-SXM-80GB", micro_batch=4)
    one = predict(model="gpt2-small", gpus="1xA100-SXM-80GB", micro_batch=4)
    rate = many.samples_per_s / many.speedup_vs_1gpu
    assert rate == pytest.approx(one.samples_per_s, rel=1e-3)  # the PCIe root is shared
