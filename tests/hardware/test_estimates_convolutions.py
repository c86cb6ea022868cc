"""What convolutions cost beside products: which devices turn tensors, what a tap costs."""

from __future__ import annotations

import pytest

from simcore.hardware.estimates import (
    depthwise_share,
    share_of_products,
    wants_channels_last,
)
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS, PeakName


@pytest.mark.parametrize(
    ("gpu", "peak", "wanted"),
    [
        ("V100-SXM-16GB", "fp16", True),
        ("H100-SXM", "bf16", True),
        ("A100-SXM-40GB", "tf32", True),
        ("A100-SXM-40GB", "fp32", False),  # vector units
        ("P100-SXM-16GB", "fp16", False),  # 16 bit, but no matrix units
        ("MI250X", "bf16", False),  # MIOpen
    ],
)
def test_matrix_units_of_nvidia_want_channels_last(gpu: str, peak: PeakName, wanted: bool) -> None:
    assert wants_channels_last(GPUS[gpu], peak) == wanted


def test_a_tap_costs_the_same_whatever_the_peak() -> None:
    """A share of the peak: the same rate over half of it is twice the share."""
    runtime, gpu = load_profile().runtime, GPUS["A100-SXM-40GB"]
    rates = {
        peak: depthwise_share(runtime, peak, gpu).value * (gpu.peak(peak) or 0.0)
        for peak in ("fp32", "tf32", "fp16", "bf16")
    }
    assert rates["fp32"] == pytest.approx(rates["tf32"])
    assert rates["fp16"] == pytest.approx(rates["bf16"])
    assert rates["fp16"] > rates["fp32"]


def test_channels_last_kernels_are_others_where_they_were_timed() -> None:
    runtime = load_profile().runtime

    def gain(name: str, peak: PeakName) -> float:
        first, last = (
            depthwise_share(runtime, peak, GPUS[name], channels_last=layout).value
            for layout in (False, True)
        )
        return last / first

    assert gain("A100-SXM-40GB", "fp16") == gain("RTX3090", "fp32") == pytest.approx(6.0)
    assert gain("V100-SXM-16GB", "fp16") == gain("MI250X", "bf16") == 1.0


def test_fp32_lanes_beside_integer_ones_do_not_help() -> None:
    """An RTX 3090 has twice the fp32 lanes an SM of a 2080 Ti, and as many of integers."""
    runtime = load_profile().runtime

    def per_clock(name: str) -> float:
        gpu = GPUS[name]
        assert gpu.boost_clock and gpu.sm_count
        rate = depthwise_share(runtime, "fp32", gpu).value * (gpu.peak("fp32") or 0.0)
        return rate / (gpu.boost_clock.value * gpu.sm_count.value)

    assert per_clock("RTX3090") == pytest.approx(per_clock("RTX2080Ti"))


def test_half_the_rate_is_a_family_of_its_own() -> None:
    runtime = load_profile().runtime
    shares = {n: share_of_products(runtime, GPUS[n]).value for n in ("RTX3090", "RTX-A6000")}
    assert shares["RTX3090"] > shares["RTX-A6000"]


def test_where_no_vector_rate_is_known_taps_cost_their_traffic() -> None:
    runtime = load_profile().runtime
    unknown = [g for name in GPUS.names() if (g := GPUS[name]).peak("fp32") is None]
    assert unknown
    for gpu in unknown:
        assert depthwise_share(runtime, "bf16", gpu).value == 1.0
