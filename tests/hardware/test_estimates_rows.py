"""Rows that devices work on at once: resident threads over those of a block."""

from __future__ import annotations

import pytest

from simcore.hardware.estimates import (
    l2_bytes_per_s,
    norm_slots,
    row_s,
    rows_in_flight,
    rows_per_l2_byte,
)
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS


@pytest.mark.parametrize(
    ("gpu", "rows"),
    [
        ("A100-SXM-80GB", 108 * 2048 // 128),
        ("T4", 40 * 1024 // 128),
        ("RTX3090", 82 * 1536 // 128),
        ("H100-SXM-80GB", 132 * 2048 // 128),
        ("MI100", 120 * 2560 // 256),  # four warps of 64
    ],
)
def test_rows_in_flight(gpu: str, rows: int) -> None:
    assert rows_in_flight(GPUS[gpu]) == rows


def test_a_row_takes_an_sm_its_clocks() -> None:
    a100 = GPUS["A100-SXM-80GB"]
    assert row_s(a100, 700.0) == pytest.approx(700 / (108 * 1.41e9))
    t4, l4 = GPUS["T4"], GPUS["L4"]  # 40 SMs at 1.59 GHz, 58 at 2.04
    assert row_s(a100, 700.0) < row_s(l4, 700.0) < row_s(t4, 700.0) < row_s(t4, 800.0)
    assert rows_per_l2_byte(a100) == pytest.approx(1728 / (40 * 2**20))
    for other in ("Gaudi3", "TPU-v4", "Ascend-910B"):
        assert row_s(GPUS[other], 700.0) == rows_per_l2_byte(GPUS[other]) == 0.0


def test_devices_that_were_not_timed_have_the_rows_of_others() -> None:
    """Hopper and Ada are known by streams alone; eight devices take 500 to 1,500 clocks."""
    profile = load_profile()
    for gpu in ("H100-SXM-80GB", "L40S", "B200-SXM", "T4", "MI100"):
        assert 500 < profile.class_figures("norm", GPUS[gpu]).row_clocks < 1600
    assert profile.class_figures("elementwise", GPUS["T4"]).row_clocks == 0.0


@pytest.mark.parametrize(
    ("gpu", "measured"),
    [
        ("L40", 5.24e12), ("RTX4090", 4.90e12), ("A100-SXM-80GB", 5.43e12),
        ("H100-PCIE-80GB", 6.95e12), ("H200-SXM", 9.7e12), ("B200-SXM", 0.0), ("MI210", 0.0),
    ],
)  # fmt: skip
def test_rates_of_l2_are_those_of_gpu_benches(gpu: str, measured: float) -> None:
    found = l2_bytes_per_s(load_profile().runtime, GPUS[gpu])
    assert found == pytest.approx(measured, rel=0.06)


@pytest.mark.parametrize(
    ("gpu", "slots", "native"),
    [
        ("A100-SXM-80GB", 108 * 3, 108 * 4),  # cuDNN: 65,536 registers an SM, 20,480 a block
        ("RTX3090", 82 * 3, 82 * 3),  # 1,536 threads an SM, 512 a block
        ("T4", 40 * 2, 40 * 2),  # 1,024
        ("MI100", 0, 0),  # not cuDNN's kernels
    ],
)
def test_blocks_of_norms_in_flight(gpu: str, slots: float, native: float) -> None:
    found = [norm_slots(GPUS[gpu], native=own) for own in (False, True)]
    assert found == [slots, native]
