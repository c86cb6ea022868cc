"""The spread that unseen networks are predicted with covers them as often as it says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simcore.base.figures import Z80
from simcore.calibrate.machine.steps import predictive_sd
from simcore.calibrate.steps.fit import ROW_SD_LOG


@pytest.mark.parametrize("networks", [2, 3, 6])
def test_the_next_network_lies_inside_80_percent_of_the_time(networks: int) -> None:
    """Errors of 20 % sd, two rows a network that share most of theirs: 4,000 draws."""
    rng = np.random.default_rng(networks)
    inside = 0
    for _ in range(4000):
        *seen, new = rng.normal(0.0, 0.2, networks + 1)
        errors = [e + rng.normal(0.0, 0.02) for e in seen for _ in range(2)]
        inside += abs(new) <= Z80 * predictive_sd(errors, networks)
    assert 0.78 <= inside / 4000 <= 0.88


def test_it_is_never_narrower_than_steps_scatter() -> None:
    assert predictive_sd([0.0, 0.0, 0.0], 3) == ROW_SD_LOG


def test_many_networks_need_no_widening() -> None:
    errors = [0.2, -0.2] * 500
    assert predictive_sd(errors, 1000) == pytest.approx(0.2, rel=0.01)
    assert predictive_sd(errors[:6], 3) > 0.2 * math.sqrt(4 / 3)
