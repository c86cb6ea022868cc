"""Timed operators as seconds of the kernels of a step's table."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from strategies import kernel_rates, workload

from simcore.calibrate.job.kernels_of_step import group_of, measured_kernels, seconds_of
from simcore.step.kernels import BATCHED, KernelTable, kernel_table
from simcore.strategy.precision import PRECISIONS
from simcore.workload.graph import Affine, Block, Kernel, Op
from simcore.workload.trace.record import KernelRecord, Piece

RATES = kernel_rates(bytes_per_s=1.0)


@dataclass(frozen=True)
class Timed:
    kernels: tuple[KernelRecord, ...]
    seconds: float
    backward: bool = False
    sd_log: float = 0.0


def record(n: int, kind: str = "elementwise") -> KernelRecord:
    return KernelRecord(kind, 0, (Piece(n, 4, "high", "activation"),), ())  # type: ignore[arg-type]


def table(*kernels: Kernel) -> KernelTable:
    return kernel_table(
        workload([Block(name="b", ops=(Op(name="o", fwd=kernels),))]), PRECISIONS["fp32"]
    )


def test_equal_kernels_of_different_operators_share_their_mean() -> None:
    """Two additions and one activation of 8 elements at batch 2: 1, 2 and 6 s."""
    one = Kernel(kind="elementwise", high=4.0)
    ops = [Timed((record(8),), s) for s in (1.0, 2.0, 6.0)]
    seconds, spread = seconds_of(table(one, one, one), 2.0, measured_kernels(ops, RATES))
    assert spread[0] == pytest.approx(np.std(np.log([1.0, 2.0, 6.0])) / math.sqrt(3))
    assert seconds[0] == pytest.approx(3.0)  # one row, three runs: 9 s in all


def test_an_operator_of_two_kernels_is_divided_by_their_work() -> None:
    """30 s over 1,200 and 300 bytes at one byte a second."""
    ops = [Timed((record(300), record(75, "reduction")), 30.0)]
    found = measured_kernels(ops, RATES)
    assert found.seconds.tolist() == [pytest.approx(24.0), pytest.approx(6.0)]


def test_without_a_kernel_of_its_shape_and_pass_nothing_is_said() -> None:
    of = table(Kernel(kind="elementwise", high=1000.0))
    far = measured_kernels([Timed((record(970),), 10.0)], RATES)
    back = measured_kernels([Timed((record(1000),), 10.0, backward=True)], RATES)
    assert np.isnan(seconds_of(of, 1.0, far)[0]).all()
    assert np.isnan(seconds_of(of, 1.0, back)[0]).all()


def test_products_are_told_apart_by_their_sides() -> None:
    """The same FLOP and bytes, other sides: 4 x 16 x 8 and 8 x 4 x 16."""
    piece = Piece(100, 4, "high", "activation")
    ops = [Timed((KernelRecord("gemm", 1024, (piece,), (), dims),), s)
           for dims, s in (((4, 16, 8, 1), 1.0), ((8, 4, 16, 1), 5.0))]  # fmt: skip
    kernel = Kernel(kind="gemm", flop=1024.0, low=100.0, m=Affine(8), n=Affine(4), k=Affine(16))
    seconds, _ = seconds_of(table(kernel), 1.0, measured_kernels(ops, RATES))
    assert seconds[0] == pytest.approx(5.0)


def test_kinds_of_one_library_are_one_group() -> None:
    assert group_of(BATCHED, False) == group_of("gemm", False)
    assert group_of("conv_winograd", True) == group_of("conv", True)
    assert group_of("conv", True) != group_of("conv", False)
