"""The power law: three points by hand, and that more watts never slow a device."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.base.units import TERA
from simcore.hardware.class_figures import power_limited_frac


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
