"""Integer operations a second, and what an element costs that a kernel takes by itself."""

from __future__ import annotations

import pytest

from simcore.hardware.estimates import indexed_s, integer_ops_per_s
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS
from simcore.workload import ops


@pytest.mark.parametrize(
    ("gpu", "lanes", "units", "clock_hz"),
    [
        ("A100-SXM-40GB", 64, 108, 1.41e9),
        ("RTX3090", 64, 82, 1.695e9),  # of 128 for fp32
        ("MI100", 64, 120, 1.502e9),
        ("MI300X", 64, 304, 2.1e9),  # its fp32 peak is of 128 multiply-adds a unit and clock
    ],
)
def test_64_lanes_a_unit(gpu: str, lanes: int, units: int, clock_hz: float) -> None:
    assert integer_ops_per_s(GPUS[gpu]) == pytest.approx(lanes * units * clock_hz, rel=1e-3)


@pytest.mark.parametrize("gpu", ["P100-SXM-16GB", "MTT-S4000", "Arc-Pro-B60"])
def test_elsewhere_every_lane_does_both(gpu: str) -> None:
    assert integer_ops_per_s(GPUS[gpu]) == (GPUS[gpu].peak("fp32") or 0.0) / 2 > 0


def test_an_element_costs_by_the_lanes_and_nothing_where_they_are_unknown() -> None:
    runtime = load_profile().runtime
    assert indexed_s(runtime, GPUS["A100-SXM-40GB"]) == pytest.approx(51 / (64 * 108 * 1.41e9))
    assert all(indexed_s(runtime, GPUS[g]) == 0.0 for g in ("Gaudi3", "Ascend-910B", "TPU-v4"))


def test_a_loss_in_place_takes_b200_what_simumax_measured() -> None:
    """3.3 ps an element, both ways (SimuMax, ce_fusion of b200_bf16_ceperm.json)."""
    loss, _ = ops.loss_in_place("loss", 4096, 128_000)
    profile = load_profile()
    forward = loss.fwd[0].indexed * indexed_s(profile.runtime, GPUS["B200-SXM-180GB"])
    backward = 2.0 * loss.bwd[0].low / (0.8 * 8e12)  # bytes, of which a stream moves four fifths
    assert (forward + backward) / (4096 * 128_000) == pytest.approx(3.3e-12, rel=0.1)
