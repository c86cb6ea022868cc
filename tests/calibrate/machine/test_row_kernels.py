"""Rows of benchmarks are the operators that they timed: work, traffic and geometry by hand."""

from __future__ import annotations

from typing import Any

import pytest

from simcore.calibrate.bench.store import TABLES, RawRow
from simcore.calibrate.machine.row_kernels import op_of, times_kernels
from simcore.workload.graph import CUDNN_NORM, NATIVE_NORM


def row(table: str, **cells: Any) -> RawRow:
    empty = dict.fromkeys(TABLES[table], "")
    how = {"mode": "alone", "cache": "cold"}
    return RawRow(table, {**empty, **how, **{k: str(v) for k, v in cells.items()}}, 1.0, 0.0, "")


@pytest.mark.parametrize("name", ["linear", "linear_dgrad", "linear_wgrad", "bmm"])
def test_products_have_the_work_and_the_geometry_of_their_row(name: str) -> None:
    """[m, k] @ [k, n]: 2mnk FLOP; every operand and the result pass memory once."""
    m, n, k = 512, 3072, 768
    op = op_of(row("gemm", op=name, m=m, n=n, k=k, batch=1))
    (kernel,) = (*op.fwd, *op.bwd)
    assert bool(op.bwd) == ("grad" in name)
    assert kernel.flop == 2.0 * m * n * k
    assert kernel.low + kernel.weight == m * k + k * n + m * n
    sides = (kernel.m, kernel.n, kernel.k)
    assert [s.fixed + s.per_sample for s in sides] == [m, n, k]


def test_rows_of_odd_width_are_loaded_in_parts() -> None:
    (kernel,) = op_of(row("gemm", op="linear", m=100, n=300, k=500, batch=1)).fwd
    assert kernel.load_elems == 4  # 300 and 500 are multiples of 4, not of 8


def test_a_pass_of_a_convolution_or_attention_is_that_pass_alone() -> None:
    cells = {"batch": 32, "cin": 64, "cout": 128, "kernel_size": 3, "in_hw": 56, "stride": 2,
             "pad": 1}  # fmt: skip
    flop = 2.0 * 32 * 28 * 28 * 128 * 64 * 9
    forward, backward = (op_of(row("conv", **cells, **{"pass": p})) for p in ("fwd", "bwd"))
    assert [x.flop for x in forward.fwd] == [flop] and not forward.bwd
    assert [x.flop for x in backward.bwd] == [flop, flop] and not backward.fwd
    cells = {"batch": 2, "heads": 8, "kv_heads": 8, "seq_q": 256, "seq_kv": 256, "head_dim": 64,
             "causal": 1}  # fmt: skip
    forward, backward = (op_of(row("attention", **cells, **{"pass": p})) for p in ("fwd", "bwd"))
    assert forward.fwd[0].flop == 4.0 * 2 * 8 * 256 * 256 * 64 / 2
    assert backward.bwd[0].flop == 2.5 * forward.fwd[0].flop


@pytest.mark.parametrize("layout", ["nchw", "channels_last"])
@pytest.mark.parametrize("way", ["fwd", "dgrad", "wgrad"])
def test_each_gradient_of_a_convolution_is_a_row_in_both_layouts(way: str, layout: str) -> None:
    cells = {"batch": 8, "cin": 64, "cout": 128, "kernel_size": 3, "in_hw": 28, "stride": 1,
             "pad": 1, "groups": 1, "layout": layout, "pass": way}  # fmt: skip
    op = op_of(row("conv", **cells))
    (kernel,) = (*op.fwd, *op.bwd)
    assert kernel.flop == 2.0 * 8 * 28 * 28 * 128 * 64 * 9
    assert bool(kernel.relaid) == (layout == "nchw")
    assert bool(kernel.k.per_sample) == (way == "wgrad")  # only that contracts the pixels
    depthwise = op_of(row("conv", **cells | {"cout": 64, "groups": 64}))
    assert [k.kind for k in (*depthwise.fwd, *depthwise.bwd)] == ["conv_depthwise"]


@pytest.mark.parametrize(
    ("name", "elements"),
    [("add", 3), ("ln", 2), ("bn", 3), ("bn_last_bwd", 5), ("softmax_bwd", 3), ("sum_rows", 1)],
)
def test_traffic_of_memory_bound_rows_is_that_of_the_table(name: str, elements: int) -> None:
    n = 4096 * 1024
    op = op_of(row("memory_bound", op=name, rows=4096, cols=1024, elements=n, bytes=elements * n))
    kernels = (*op.fwd, *op.bwd)
    for own in (True, False):  # PyTorch's own batch norms move as much as cuDNN's
        moved = sum(k.low + k.high for k in kernels if k.kind != (CUDNN_NORM, NATIVE_NORM)[own])
        assert moved == elements * n


def test_only_cold_calls_of_one_rank_time_kernels() -> None:
    assert times_kernels(row("gemm"))
    assert not times_kernels(row("gemm", cache="warm"))
    assert not times_kernels(row("gemm", mode="together"))
    assert times_kernels(row("host", op="graph", cache="warm"))
    assert not times_kernels(row("host", op="eager"))
