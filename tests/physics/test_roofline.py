"""Roofline: numbers worked out by hand, limits, monotony."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.base.units import GIGA, MICRO, TERA
from simcore.hardware.power import power_limited_frac
from simcore.physics.roofline import kernel_time_s

SIZE = st.floats(1.0, 1e6)
FRAC = st.floats(0.05, 1.0)


def test_three_four_five() -> None:
    # 1.2 TFLOP at 0.5 of 800 TFLOP/s is 3 ms, 3.2 GB at 0.8 of 1 TB/s is 4 ms: 5 ms and launch.
    time_s = kernel_time_s(
        1.2 * TERA, 3.2 * GIGA, 800 * TERA, TERA, 0.5, 0.8, 1.0, launch_s=3 * MICRO
    )
    assert time_s == pytest.approx(5.003e-3)


def test_half_filled_device_takes_twice_as_long() -> None:
    assert kernel_time_s(TERA, 0.0, 100 * TERA, TERA, 0.8, 0.8, 0.5) == pytest.approx(0.025)


def test_pure_memory_and_nothing_at_all() -> None:
    assert kernel_time_s(0.0, 8 * GIGA, TERA, TERA, 0.7, 0.8, 1.0) == pytest.approx(0.010)
    assert kernel_time_s(0.0, 0.0, TERA, TERA, 0.7, 0.8, 1.0, 2 * MICRO) == 2 * MICRO


def test_kernels_by_configurations_broadcast() -> None:
    flop = np.array([[TERA], [2 * TERA]])  # 2 kernels
    peak = np.array([100 * TERA, 200 * TERA, 400 * TERA])  # 3 configurations
    time_s = kernel_time_s(flop, 0.0, peak, TERA, 1.0, 1.0, 1.0)
    assert time_s == pytest.approx(np.array([[10, 5, 2.5], [20, 10, 5]]) * 1e-3)


@given(flop=SIZE, n_bytes=SIZE, eff_c=FRAC, eff_m=FRAC, fill=FRAC)
def test_between_the_larger_term_and_the_sum(
    flop: float, n_bytes: float, eff_c: float, eff_m: float, fill: float
) -> None:
    compute, memory = flop / (eff_c * 10 * fill), n_bytes / (eff_m * 3)
    time = float(kernel_time_s(flop, n_bytes, 10.0, 3.0, eff_c, eff_m, fill))
    assert max(compute, memory) * (1 - 1e-12) <= time <= (compute + memory) * (1 + 1e-12)


@given(flop=SIZE, n_bytes=SIZE, eff=FRAC, more=st.floats(1.0, 10.0))
def test_more_work_never_faster_more_hardware_never_slower(
    flop: float, n_bytes: float, eff: float, more: float
) -> None:
    base = kernel_time_s(flop, n_bytes, 10.0, 3.0, eff, eff, 1.0)
    slack = 1 + 1e-12
    assert kernel_time_s(flop * more, n_bytes, 10.0, 3.0, eff, eff, 1.0) * slack >= base
    assert kernel_time_s(flop, n_bytes * more, 10.0, 3.0, eff, eff, 1.0) * slack >= base
    assert kernel_time_s(flop, n_bytes, 10.0 * more, 3.0, eff, eff, 1.0) <= base * slack
    assert kernel_time_s(flop, n_bytes, 10.0, 3.0 * more, eff, eff, 1.0) <= base * slack


def test_power_limit_at_three_points() -> None:
    # w = tdp / peak = 1 pJ/FLOP throughout.
    watts, peak = 300.0, 300 * TERA
    assert power_limited_frac(watts, peak, 1e-12) == pytest.approx(2**-0.25)
    assert power_limited_frac(watts, peak, 0.1e-12) == pytest.approx(1.0, abs=1e-4)
    # Needs ten times what it gets: a tenth of the rate.
    assert power_limited_frac(watts, peak, 10e-12) == pytest.approx(0.1, rel=1e-4)
    # Where voltage follows the clock, power goes with its cube.
    assert power_limited_frac(watts, peak, 8e-12, 1 / 3) == pytest.approx(0.5, rel=1e-3)


@given(watts=st.floats(50, 1000), more=st.floats(1, 5), limit=st.floats(1e-13, 1e-11))
def test_more_watts_never_slow_a_device(watts: float, more: float, limit: float) -> None:
    few, many = power_limited_frac(np.array([watts, watts * more]), 200 * TERA, limit)
    assert 0 < few <= many * (1 + 1e-12) and many <= 1
