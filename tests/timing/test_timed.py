"""Kernels timed by shape: exact where they were timed, a smooth law elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from strategies import kernel_rates, workload

from simcore.base.errors import InvalidConfig
from simcore.hardware.calibrations import MeasuredDevice, TimedKernel
from simcore.hardware.spec import GPUS
from simcore.step.kernel_text import kernel_texts
from simcore.step.kernels import KernelTable, kernel_table
from simcore.strategy.precision import PRECISIONS
from simcore.timing.compute import phase_seconds
from simcore.timing.rates import KernelRates
from simcore.timing.timed import TimedKernels, timed_here, timed_kernels
from simcore.workload.graph import Affine, Block, Kernel, Op

FP32 = PRECISIONS["fp32"]
GPU = GPUS["A100-SXM-80GB"]


def product(n: float, backward: bool = False) -> KernelTable:
    """A product of one row a sample: 2 n^2 FLOP."""
    kernel = Kernel(kind="gemm", flop=2.0 * n * n, low=2.0 * n, weight=n * n,
                    m=Affine(0, 1), n=Affine(n), k=Affine(n))  # fmt: skip
    op = Op(name="o", fwd=() if backward else (kernel,), bwd=(kernel,) if backward else ())
    return kernel_table(workload([Block(name="b", ops=(op,))]), FP32)


def entry(table: KernelTable, batch: float, seconds: float, precision: str = "fp32") -> TimedKernel:
    text = next(t for t in kernel_texts(table) if "gemm" in t)
    return TimedKernel(kernel=text, precision=precision, batch=batch, seconds=seconds)


def device(*kernels: TimedKernel, **more: object) -> KernelRates:
    """One FLOP a second, and these timed kernels."""
    timed = timed_kernels(MeasuredDevice(gpu=GPU.name, kernels=kernels), GPU, FP32)
    return replace(kernel_rates(), timed=timed, **more)  # type: ignore[arg-type]


def seconds(table: KernelTable, rates: KernelRates, batch: float = 1.0, compute: float = 1.0,
            memory: float = 1.0) -> float:  # fmt: skip
    one = np.ones(1)
    return float(phase_seconds(table, rates, batch * one, compute * one, memory * one).sum())


def test_a_timed_kernel_takes_its_measured_time() -> None:
    big, small = product(8), product(2)  # 128 and 8 FLOP a sample
    rates = device(entry(big, 1, 100.0), entry(big, 4, 900.0), entry(small, 1, 20.0))
    assert seconds(big, rates) == pytest.approx(100.0)
    assert seconds(big, rates, batch=4.0) == pytest.approx(900.0)
    assert seconds(small, rates) == pytest.approx(20.0)


def test_what_if_scales_a_measured_time() -> None:
    big = product(8)
    assert seconds(big, device(entry(big, 1, 100.0)), compute=2.0) == pytest.approx(50.0)


def copies(n_bytes: float) -> KernelTable:
    copy = Kernel(kind="copy", low=n_bytes / 4.0)
    return kernel_table(workload([Block(name="b", ops=(Op(name="o", fwd=(copy,)),))]), FP32)


@pytest.mark.parametrize("n_bytes", [200.0, 150.0, 300.0])
def test_between_two_timed_kernels_by_hand(n_bytes: float) -> None:
    """100 bytes took twice, 400 bytes eight times the formula's time; weights are 1 / d^4."""
    low, high = (
        TimedKernel(kernel=kernel_texts(copies(b))[0], precision="fp32", batch=1, seconds=s)
        for b, s in ((100.0, 200.0), (400.0, 3200.0))
    )
    rates = device(low, high)
    rates.kinds["bytes_per_s"] = 1.0
    weights = [(np.log(n_bytes / b) ** 2 + 1.0) ** -2 for b in (100.0, 400.0)]
    share = weights[1] / sum(weights)
    assert seconds(copies(n_bytes), rates) == pytest.approx(n_bytes * 2.0 * 4.0**share)


def test_the_same_kernel_at_another_batch_counts_more_than_another_kernel_of_its_size() -> None:
    """At batch 2 the kernel n = 8 has the FLOP of n = 11.3, yet keeps its own factor mostly."""
    ours, other = product(8), product(11)
    rates = device(entry(ours, 1, 3.0 * 128), entry(other, 1, 12.0 * 242))
    factor = seconds(ours, rates, batch=2.0) / 256.0
    assert 3.0 < factor < 6.0  # not the mean of 3 and 12, and far from 12


def test_far_away_the_factor_is_the_mean_of_all() -> None:
    rates = device(entry(product(2), 1, 2.0 * 8), entry(product(4), 1, 8.0 * 32))
    assert seconds(product(1e12), rates) / 2e24 == pytest.approx(4.0, rel=0.05)


def test_forward_and_backward_are_apart_where_both_were_timed() -> None:
    ahead, back = product(8), product(8, backward=True)
    both = device(entry(ahead, 1, 128.0), entry(back, 1, 640.0))
    assert seconds(back, both) == pytest.approx(640.0)
    assert seconds(back, device(entry(ahead, 1, 256.0))) == pytest.approx(256.0)


def test_other_kinds_stay_with_the_formula() -> None:
    rates = device(entry(product(8), 1, 999.0))
    rates.kinds["bytes_per_s"] = 4.0
    assert seconds(copies(20.0), rates) == pytest.approx(5.0)


def test_another_precision_or_device_is_not_this_one() -> None:
    kernels = (entry(product(8), 1, 100.0, "amp-bf16"),)
    assert timed_kernels(MeasuredDevice(gpu=GPU.name, kernels=kernels), GPU, FP32) is None
    mine = (entry(product(8), 1, 100.0),)
    assert timed_kernels(MeasuredDevice(gpu="H100-PCIe", kernels=mine), GPU, FP32) is None


def test_ranks_that_slow_each_other_slow_measured_kernels() -> None:
    """Timed alone; with half the rate each, a measured kernel takes twice as long."""
    big = product(8)
    both = kernel_rates(flop_per_s=0.5)
    timed = device(entry(big, 1, 100.0)).timed
    crowded = replace(both, timed=timed, alone=kernel_rates())
    assert seconds(big, crowded) == pytest.approx(200.0)


def test_only_the_very_kernel_at_its_batch_counts_as_timed() -> None:
    big, small = product(8), product(2)
    timed = device(entry(big, 4, 100.0)).timed
    assert isinstance(timed, TimedKernels)
    assert timed_here(big, timed, 4.0).any()
    assert not timed_here(big, timed, 5.0).any()
    assert not timed_here(small, timed, 4.0).any()


def test_a_text_that_is_no_kernel_is_refused() -> None:
    wrong = TimedKernel(kernel="forward gem", precision="fp32", batch=1, seconds=1.0)
    with pytest.raises(InvalidConfig, match="'forward gem' is no kernel"):
        timed_kernels(MeasuredDevice(gpu=GPU.name, kernels=(wrong,)), GPU, FP32)


def test_sides_that_grow_with_the_batch_are_compared_at_their_batch() -> None:
    """64 columns a sample timed at batch 4, and as many columns of one sample: one point each."""
    grows, fixed = (
        kernel_table(
            workload([Block(name="b", ops=(Op(name="o", fwd=(Kernel(
                kind="gemm", flop=flop, low=low, m=Affine(8), n=n, k=Affine(16)),)),))]), FP32
        )
        for flop, low, n in ((100.0, 10.0, Affine(0, 64)), (400.0, 40.0, Affine(256)))
    )  # fmt: skip
    both = device(entry(grows, 4, 800.0), entry(fixed, 1, 1600.0))
    # at its batch of one the fixed kernel lies on both points, of which one is another kernel
    assert seconds(grows, both, batch=4.0) == pytest.approx(800.0)
    assert seconds(fixed, device(entry(grows, 4, 800.0))) == pytest.approx(800.0)


def test_bytes_of_weights_do_not_grow_with_the_batch() -> None:
    """100 fixed bytes took twice, 400 eight times the formula's time; at any batch of none more."""

    def weights(n_bytes: float) -> KernelTable:
        copy = Kernel(kind="copy", weight=n_bytes / 4.0)
        return kernel_table(workload([Block(name="b", ops=(Op(name="o", fwd=(copy,)),))]), FP32)

    few, many = (
        TimedKernel(kernel=kernel_texts(weights(b))[0], precision="fp32", batch=1, seconds=s)
        for b, s in ((100.0, 200.0), (400.0, 3200.0))
    )
    rates = device(few, many)
    rates.kinds["bytes_per_s"] = 1.0
    shares = [(np.log(200.0 / b) ** 2 + 1.0) ** -2 for b in (100.0, 400.0)]
    expected = 200.0 * 2.0 * 4.0 ** (shares[1] / sum(shares))
    for batch in (1.0, 8.0):
        assert seconds(weights(200.0), rates, batch=batch) == pytest.approx(expected)


def test_another_kernel_is_as_far_as_the_same_one_at_e_times_the_size() -> None:
    """One square of distance 1 for another kernel, one for the size: twice as far, a quarter's
    weight."""
    ours, other = copies(100.0), copies(100.0 * np.e)
    low, high = (
        TimedKernel(kernel=kernel_texts(table)[0], precision="fp32", batch=1, seconds=s)
        for table, s in ((ours, 200.0), (other, 100.0 * np.e * 32.0))
    )
    rates = device(low, high)
    rates.kinds["bytes_per_s"] = 1.0
    # at batch 1 of its own kernel the measured time stands; between them both are others
    middle = copies(100.0 * np.sqrt(np.e))
    assert seconds(middle, rates) == pytest.approx(100.0 * np.sqrt(np.e) * 8.0)
