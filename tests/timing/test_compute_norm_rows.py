"""Layer norms: rows that cost their block, and rows that are read twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simcore.hardware.cluster import parse_cluster
from simcore.hardware.profile import load_profile
from simcore.step.kernels import KINDS, kernel_table
from simcore.strategy.precision import PRECISIONS
from simcore.timing.compute import phase_seconds
from simcore.timing.rates import ClassRates, class_rates
from simcore.workload import ops
from simcore.workload.graph import Block, Op, Workload

FP32 = PRECISIONS["fp32"]
NORM = KINDS.index("norm")


def rates(gpu: str) -> ClassRates:
    return class_rates(parse_cluster(f"1x1x{gpu}").groups[0], FP32, load_profile())


def passes_s(op: Op, of: ClassRates, memory: float = 1.0) -> tuple[float, float]:
    """Device seconds of forward and backward of one sample, less the kernels' start."""
    workload = Workload(
        name="one", sample_unit="sample", blocks=(Block(name="b", ops=(op,)),), order=(0,)
    )
    one = np.ones(1)
    table = kernel_table(workload, FP32)
    seconds = phase_seconds(table, replace(of.kernels, start_s=0.0), one, one, memory * one)
    return float(seconds[0, 0]), float(seconds[1, 0])


def norm(rows: float, dim: int) -> Op:
    return ops.layer_norm("norm", rows, dim, affine=False)


def test_short_rows_cost_their_blocks_whatever_their_length_and_the_memory() -> None:
    of = rates("A100-SXM-80GB")
    each = of.kernels.limits.row_s * 1e6
    for dim in (64, 128, 256):
        assert passes_s(norm(1e6, dim), of) == pytest.approx((each, each))
    assert passes_s(norm(1e6, 128), of, memory=2.0) == pytest.approx((each, each))
    assert passes_s(norm(2e6, 128), of)[0] == pytest.approx(2 * each)


def test_long_rows_are_read_twice() -> None:
    """fp32: 8 and 12 bytes an element while L2 holds the rows in flight, 12 and 20 beyond."""
    of = rates("A100-SXM-80GB")
    per_byte = 1.0 / of.kernels.of("norm")["bytes_per_s"]
    for dim, forward, backward in ((1200, 8, 12), (32768, 12, 20)):
        found = passes_s(norm(1e5, dim), of)
        elems = 1e5 * dim * per_byte
        assert found == pytest.approx((forward * elems, backward * elems))


def test_time_rises_with_rows_and_their_length() -> None:
    of = rates("T4")
    dims = [passes_s(norm(1e5, dim), of)[0] for dim in range(64, 8192, 64)]
    assert (np.diff(dims) >= 0.0).all()
    assert passes_s(norm(2e5, 768), of)[0] == pytest.approx(2 * passes_s(norm(1e5, 768), of)[0])


def test_norms_of_other_libraries_and_unknown_devices_move_bytes_alone() -> None:
    of = rates("A100-SXM-80GB")
    fused = ops.layer_norm("norm", 1e6, 128, affine=False, rms=True)
    assert passes_s(fused, of)[0] == pytest.approx(8 * 128e6 / of.kernels.of("norm")["bytes_per_s"])
    arc = rates("Arc-Pro-B60")
    assert passes_s(norm(1e6, 128), arc)[0] == pytest.approx(
        8 * 128e6 / arc.kernels.of("norm")["bytes_per_s"]
    )


@pytest.mark.parametrize(
    ("gpu", "rows", "dim", "measured_us"),
    [
        # NeuSight's layer norms in fp32 (MIT), sizes that show each: blocks, one reading, two.
        ("A100-PCIE-80GB", 4194304, 2048, 44732.0),
        ("A100-PCIE-80GB", 131072, 16384, 15985.0),
        ("T4", 1310720, 1024, 45639.0),
        ("T4", 131072, 8192, 52110.0),
    ],
)
def test_large_norms_take_what_was_timed(gpu: str, rows: int, dim: int, measured_us: float) -> None:
    assert passes_s(norm(rows, dim), rates(gpu))[0] * 1e6 == pytest.approx(measured_us, rel=0.1)


def sums_us(gpu: str, rows: float, dim: int) -> float:
    """Microseconds of the gradients of weight and bias of a layer norm in fp32."""
    of = rates(gpu)
    trained, fixed = (
        passes_s(ops.layer_norm("norm", rows, dim, affine=affine), of)[1]
        for affine in (True, False)
    )
    return (trained - fixed) * 1e6


@pytest.mark.parametrize(
    ("rows", "dim", "measured"),
    [
        (8192, 768, 42.5), (8192, 1024, 43.7), (16384, 768, 78.2), (25216, 768, 97.0),
        (4096, 1024, 22.0), (4096, 768, 15.4),
    ],
)  # fmt: skip
def test_gradients_of_weight_and_bias_keep_few_sms(rows: int, dim: int, measured: float) -> None:
    """Microseconds of GammaBetaBackwardCUDAKernelTemplate in profiles of GPT-2, BERT and ViT on an
    H200 (validate/cards/h200-2026-11-27/kernels.jsonl), from which no figure is taken. Memory alone
    would take 0.3 to 0.4 of them."""
    assert 0.7 < sums_us("H200-SXM", rows, dim) / measured < 1.1


def test_sums_over_wide_rows_or_with_an_unknown_cache_take_memory_s_time() -> None:
    of = rates("H200-SXM")
    streamed = 2 * 4096 * 16384 * 4 / of.kernels.of("reduction")["bytes_per_s"] * 1e6
    assert sums_us("H200-SXM", 4096, 16384) == pytest.approx(streamed, rel=0.1)
    assert rates("V100-SXM-32GB").kernels.limits.sm_bytes_per_s == 0.0
