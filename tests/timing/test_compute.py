"""Seconds of kernels on made-up devices, each worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from strategies import INF, kernel_rates, points, rates, strategy, workload

from simcore.hardware.calibrations import MeasuredDevice, TimedKernel
from simcore.hardware.spec import GPUS
from simcore.physics.collectives import expected_maximum
from simcore.physics.fill import attention_fill, conv_fill, matmul_fill
from simcore.physics.kernel import FOUND, TrafficLimits
from simcore.step.kernel_text import kernel_texts
from simcore.step.kernels import BATCHED, KINDS, KernelTable, kernel_table
from simcore.step.program import Program
from simcore.strategy.precision import PRECISIONS
from simcore.timing.compute import (
    class_phases,
    compute_times,
    host_s,
    issue_s,
    issuing_devices,
    pass_seconds,
    phase_seconds,
    phases_of_parts,
)
from simcore.timing.evaluate import program_of
from simcore.timing.points import together
from simcore.timing.rates import KernelRates, no_work
from simcore.timing.timed import timed_kernels
from simcore.workload.graph import Affine, Block, Frozen, Kernel, Op, Workload
from simcore.workload.ops.products import WindowKernel

FP32 = PRECISIONS["fp32"]


def of_kernels(*forward: Kernel, backward: tuple[Kernel, ...] = ()) -> Workload:
    return workload([Block(name="b", ops=(Op(name="o", fwd=forward, bwd=backward),))])


def table_of(*forward: Kernel, backward: tuple[Kernel, ...] = ()) -> KernelTable:
    return kernel_table(of_kernels(*forward, backward=backward), FP32)


def seconds(table: KernelTable, device: KernelRates, batch: Any = 1.0, compute: Any = 1.0,
            memory: Any = 1.0, phase: int = 0) -> Any:  # fmt: skip
    """Seconds of one phase for each column; a number for one column."""
    columns = np.broadcast_arrays(*np.atleast_1d(batch, memory), np.ones(np.shape(compute)[-1:]))
    one = np.ones(columns[0].shape)
    found = phase_seconds(table, device, batch * one, compute * one, memory * one)[phase]
    return float(found[0]) if found.shape == (1,) else found


# -- roofline --------------------------------------------------------------------------------------


def test_work_and_traffic_of_a_batch_by_hand() -> None:
    """Batch 2: 2 · 9 FLOP at 6/s are 3 s; 4 bytes of 1 weight and of 1.5 elements a sample, 4 s."""
    table = table_of(Kernel(kind="gemm", flop=9.0, low=1.5, weight=1.0))
    device = kernel_rates(flop_per_s=6.0, bytes_per_s=4.0, start_s=0.25)
    assert seconds(table, device, 2.0) == pytest.approx(5.25)
    # Twice the compute rate and half the bandwidth: 1.5 s and 8 s.
    assert seconds(table, device, 2.0, 2.0, 0.5) == pytest.approx(np.hypot(1.5, 8.0) + 0.25)


def test_l2_serves_what_was_just_written() -> None:
    """The second kernel of two reads 4 bytes that the first wrote, from an L2 of 10 bytes.

    It moves 8 bytes at 1/s; L2 has 0.72 of the 4 and reads them at 4/s. At batch 2 the 8 bytes are
    too many.
    """
    ops = tuple(Op(name=n, fwd=(Kernel(kind="elementwise", low=2.0),)) for n in "ab")
    table = kernel_table(workload([Block(name="b", ops=ops)]), FP32)
    device = kernel_rates(bytes_per_s=1.0)
    small = replace(device, limits=TrafficLimits(l2_bytes=10.0, l2_bytes_per_s=4.0))
    assert seconds(table, device, np.array([1.0, 2.0])) == pytest.approx([16.0, 32.0])
    saved = FOUND * 4.0 * (1.0 - 1.0 / 4.0)
    assert seconds(table, small, np.array([1.0, 2.0])) == pytest.approx([16.0 - saved, 32.0])
    slow = replace(device, limits=TrafficLimits(l2_bytes=10.0, l2_bytes_per_s=0.5))
    assert seconds(table, slow) == pytest.approx(16.0)


def test_equal_kernels_take_their_time_each() -> None:
    one = Kernel(kind="gemm", flop=3.0, low=1.0, launches=2.0)
    device = kernel_rates(flop_per_s=1.0, bytes_per_s=1.0, start_s=0.25)
    assert seconds(table_of(one, one, one), device) == pytest.approx(3 * (5.0 + 2 * 0.25))


def test_batches_and_knobs_by_column() -> None:
    table = table_of(Kernel(kind="gemm", flop=3.0, low=1.0), Kernel(kind="copy", low=2.0))
    device = kernel_rates(flop_per_s=1.0, bytes_per_s=1.0)
    batch = np.array([2.0, 1.0, 2.0, 3.0])
    found = seconds(table, device, batch, np.array([1.0, 1.0, 0.5, 1.0]), np.array([1, 1, 1, 2.0]))
    expected = [10 + 16, 5 + 8, np.hypot(12, 8) + 16, np.hypot(9, 6) + 12]
    assert found == pytest.approx(expected)


def test_each_kernel_may_have_a_pace() -> None:
    table = table_of(Kernel(kind="gemm", flop=3.0), Kernel(kind="gemm", flop=5.0))
    found = phase_seconds(table, kernel_rates(), np.full(2, 1.0),
                          np.array([[1.0, 3.0], [2.0, 5.0], [1.0, 1.0]]), np.ones(2))  # fmt: skip
    assert found[0] == pytest.approx([3 + 2.5, 1 + 1])
    assert found.shape == (2, 2)


def test_phases_are_sums_of_their_own_kernels() -> None:
    frozen = Frozen(
        name="f", resident_numel=0, ops=(Op(name="o", fwd=(Kernel(kind="gemm", flop=7.0),)),)
    )
    model = of_kernels(Kernel(kind="gemm", flop=2.0), Kernel(kind="gemm", flop=3.0),
                       backward=(Kernel(kind="gemm", flop=11.0),))  # fmt: skip
    table = kernel_table(replace(model, frozen=(frozen,)), FP32)
    one = np.ones(1)
    assert phase_seconds(table, kernel_rates(), one, one, one)[:, 0].tolist() == [5.0, 11.0, 7.0]


# -- fill ------------------------------------------------------------------------------------------

PRODUCT = Kernel(kind="gemm", flop=8.0, m=Affine(0.0, 96.0), n=Affine(80.0), k=Affine(640.0),
                 groups=Affine(1.0, 1.0), weight=1.0)  # fmt: skip
SHAPE = {"sm_count": 4.0, "wave_frac": 0.5, "half_depth": 32.0}


def test_products_fill_the_device_by_their_sides() -> None:
    """Batch 3: 288 x 80 x 640, 4 groups."""
    fill = float(matmul_fill(288.0, 80.0, 640.0, 4.0, 4.0, 0.5, 32.0))
    assert 0 < fill < 1
    assert seconds(table_of(PRODUCT), kernel_rates(**SHAPE), 3.0) == pytest.approx(24 / fill)
    unknown = kernel_rates(**{**SHAPE, "sm_count": 0.0})
    assert seconds(table_of(PRODUCT), unknown, 3.0) == pytest.approx(24.0)


@pytest.mark.parametrize("per_sample", [96.0, 0.5])
def test_rows_of_experts_fill_whole_tiles_beside_those_that_pad_them(per_sample: float) -> None:
    """Four experts whose tiles exceed their rows by 256 in all: that much more is computed. Rows of
    three samples fill tiles of 256, and no fewer."""
    padded = replace(PRODUCT, m=Affine(256.0, per_sample), groups=Affine(4.0, 0.0))
    fill = float(
        matmul_fill(512.0 if per_sample == 96.0 else 256.0, 80.0, 640.0, 4.0, 4.0, 0.5, 32.0)
    )
    more = 256.0 / per_sample
    found = seconds(table_of(padded), kernel_rates(**SHAPE), 3.0)
    assert found == pytest.approx(8.0 * (3.0 + more) / fill)


def test_outputs_are_padded_to_a_tile_where_the_library_has_one() -> None:
    """64 rows by 128 columns, for batched products alone."""
    device = kernel_rates(**SHAPE)
    device.kinds["tile"][KINDS.index(BATCHED)] = 64.0, 128.0
    batched = replace(PRODUCT, weight=0.0)
    fill = float(matmul_fill(288.0, 80.0, 640.0, 4.0, 4.0, 0.5, 32.0, (64.0, 128.0)))
    assert seconds(table_of(batched), device, 3.0) == pytest.approx(24 / fill)
    plain = seconds(table_of(PRODUCT), device, 3.0)
    assert plain == seconds(table_of(PRODUCT), kernel_rates(**SHAPE), 3.0)
    assert plain < 24 / fill


ATTENTION = Kernel(kind="attention", flop=8.0, m=Affine(300.0), n=Affine(72.0), k=Affine(200.0),
                   groups=Affine(0.0, 2.0))  # fmt: skip


def test_attention_by_queries_heads_and_keys() -> None:
    """Batch 3, 6 heads; backward at half the rate, forward that is repeated in it at forward's."""
    fill = float(attention_fill(300.0, 72.0, 200.0, 6.0, 4.0, 0.5, 32.0, 40.0))
    device = kernel_rates(**SHAPE, half_width=40.0, attention_bwd_frac=0.5)
    back = replace(ATTENTION, flop=20.0)
    table = table_of(ATTENTION, backward=(back, ATTENTION))
    assert seconds(table, device, 3.0) == pytest.approx(24 / fill)
    assert seconds(table, device, 3.0, phase=1) == pytest.approx((60 / 0.5 + 24) / fill)
    assert seconds(table, replace(device, sm_count=0.0), 3.0, phase=1) == pytest.approx(144.0)


def test_a_window_computes_whole_tiles_at_its_edges() -> None:
    """Two edges of tiles of 128 queries: 128 keys more in either pass."""
    window = WindowKernel(**vars(ATTENTION), edges=2.0)
    device = kernel_rates(**SHAPE, half_width=40.0, attention_bwd_frac=1.0)
    table = table_of(window, backward=(replace(window, flop=20.0),))
    fill = float(attention_fill(300.0, 72.0, 200.0, 6.0, 4.0, 0.5, 32.0 + 128.0, 40.0))
    for phase, flop in ((0, 24.0), (1, 60.0)):
        assert seconds(table, device, 3.0, phase=phase) == pytest.approx(flop / fill)


#: 3x3 over 8 x 8 pixels, 64 to 96 channels; the weight's gradient contracts the pixels.
CONV = Kernel(kind="conv_winograd", flop=8.0, low=1.0, m=Affine(0.0, 64.0), n=Affine(96.0),
              k=Affine(9 * 64.0))  # fmt: skip
WEIGHT = replace(CONV, m=Affine(9 * 64.0), k=Affine(0.0, 64.0))


@pytest.mark.parametrize("kernel", [CONV, WEIGHT])
def test_winograd_by_images_and_channels(kernel: Kernel) -> None:
    """5 images of 64 pixels, whatever the product; 8 FLOP a byte on this device."""
    device = kernel_rates(**SHAPE, winograd=True, flop_per_s=4.0, bytes_per_s=0.5)
    fill = float(conv_fill(64.0, 5.0, 64.0, 96.0, 4.0, 0.5, 32.0, 8.0))
    compute, memory = 5 * 8 / 4 / fill, 5 * 4 / 0.5
    assert seconds(table_of(kernel), device, 5.0) == pytest.approx(np.hypot(compute, memory))
    plain = kernel_rates(**SHAPE, flop_per_s=4.0, bytes_per_s=0.5)
    assert seconds(table_of(kernel), plain, 5.0) != pytest.approx(np.hypot(compute, memory))


# -- traffic laws ----------------------------------------------------------------------------------


def test_rows_are_read_twice_and_take_their_time() -> None:
    """Batch 2: 3 rows of 5 elements of 4 bytes a sample, a third of the bytes read again."""
    kernel = Kernel(kind="norm", low=15.0, weight=2.0, rows=3.0, reread_frac=1 / 3)
    n_bytes = 2 * 60 + 8
    half_missed = TrafficLimits(rows_per_l2_byte=1.1 / 20.0)
    slow_rows = TrafficLimits(row_s=7.0)
    for limits, expected in ((TrafficLimits(), n_bytes), (half_missed, n_bytes * (1 + 1 / 6)),
                             (slow_rows, n_bytes), (TrafficLimits(row_s=30.0), 180.0)):  # fmt: skip
        device = kernel_rates(bytes_per_s=1.0, limits=limits)
        assert seconds(table_of(kernel), device, 2.0) == pytest.approx(expected)
        # Two of them take twice as long; bandwidth is no help to rows.
        assert seconds(table_of(kernel, kernel), device, 2.0) == pytest.approx(2 * expected)
    device = kernel_rates(bytes_per_s=1.0, limits=TrafficLimits(row_s=30.0))
    assert seconds(table_of(kernel), device, 2.0, memory=0.5) == pytest.approx(256.0)
    assert seconds(table_of(kernel), device, 2.0, memory=4.0) == pytest.approx(180.0)


def test_indexed_elements_take_their_time() -> None:
    kernel = Kernel(kind="copy", low=3.0, indexed=2.0)
    device = kernel_rates(bytes_per_s=1.0, limits=TrafficLimits(indexed_s=10.0))
    assert seconds(table_of(kernel), device, 2.0) == pytest.approx(2 * 2 * 10.0)
    assert seconds(table_of(kernel), kernel_rates(bytes_per_s=1.0), 2.0) == pytest.approx(24.0)
    mixed = table_of(kernel, Kernel(kind="copy", low=100.0))
    assert seconds(mixed, device, np.array([1.0, 2.0])) == pytest.approx([20 + 400, 40 + 800])


@pytest.mark.parametrize("instances", [False, True])
def test_a_block_a_channel_goes_through_in_waves(instances: bool) -> None:
    """Batch 2: 10 channels, 3 at a time, in 4 waves; 0.27 clocks an element, 15 of them each."""
    blocks = Affine(0.0, 5.0) if instances else Affine(10.0)
    kernel = Kernel(kind="batch_norm", low=75.0, blocks=blocks)
    device = kernel_rates(bytes_per_s=10.0, block_slots=3.0, clock_s=20.0)
    waves = 4 * 15 * 0.27 * 20.0
    assert seconds(table_of(kernel), device, 2.0) == pytest.approx(np.hypot(60.0, waves))
    # stated clocks: 50 of all blocks and a sample, 10 of a block
    stated = replace(kernel, block_clocks=50.0)
    assert seconds(table_of(stated), device, 2.0) == pytest.approx(np.hypot(60.0, 4 * 10 * 20.0))


def turning(direct_flop_per_s: float, **changes: Any) -> KernelRates:
    direct = no_work()
    direct["flop_per_s"], direct["bytes_per_s"] = direct_flop_per_s, 1.0
    return kernel_rates(bytes_per_s=1.0, direct=direct, **changes)


def test_channels_first_takes_the_faster_way() -> None:
    """Batch 2, twice: 6 s of products and 8 s of traffic are 10 s; 24 bytes a sample are turned."""
    kernel = Kernel(kind="conv", flop=3.0, low=1.0, relaid=3.0)
    table = table_of(kernel, kernel)
    quarter = turning(0.05, turned_s_per_byte=0.25, start_s=0.5)
    assert seconds(table, quarter, 2.0) == pytest.approx(2 * (10 + 48 * 0.25 + 0.5))
    least = turning(0.05, turned_s_per_byte=0.25, start_s=0.5, least_turned_s_per_byte=0.375)
    assert seconds(table, least, 2.0) == pytest.approx(2 * (10 + 48 * 0.375 + 0.5))
    # Half the bandwidth doubles traffic and turns; twice the compute rate halves the products.
    assert seconds(table, quarter, 2.0, 2.0, 0.5) == pytest.approx(
        2 * (np.hypot(3, 16) + 48 * 0.5 + 0.5)
    )
    # On vector units: 6 / 0.4 = 15 s of products and 8 s of traffic.
    vector = turning(0.4, turned_s_per_byte=0.25, start_s=0.5)
    assert seconds(table, vector, 2.0) == pytest.approx(2 * (17 + 0.5))
    assert seconds(table, vector, 2.0, 2.0) == pytest.approx(2 * (np.hypot(7.5, 8) + 0.5))
    pace = np.array([[1.0], [2.0], [1.0]])
    one, slow = phase_seconds(table_of(kernel, replace(kernel, flop=6.0)), vector, np.full(1, 2.0),
                              pace, np.ones(1)), seconds(table_of(kernel), vector, 2.0)  # fmt: skip
    assert one[0, 0] == pytest.approx(2 * slow)
    # Where no layout is turned there is one way; tensors that are channels last have one, too.
    assert seconds(table, turning(100.0), 2.0) == pytest.approx(20.0)
    assert seconds(table_of(replace(kernel, relaid=0.0)), vector, 2.0) == pytest.approx(10.5)


def test_vector_units_fill_by_their_own_rates() -> None:
    kernel = replace(CONV, relaid=1e6)
    direct = no_work()
    direct["flop_per_s"], direct["bytes_per_s"], direct["wave_frac"] = 2.0, INF, 0.25
    direct["half_depth"], direct["winograd"] = 16.0, True
    device = kernel_rates(**SHAPE, direct=direct, turned_s_per_byte=1.0)
    fill = float(conv_fill(64.0, 5.0, 64.0, 96.0, 4.0, 0.25, 16.0, 0.0))
    assert seconds(table_of(kernel), device, 5.0) == pytest.approx(40 / 2 / fill)


# -- classes of ranks and columns ------------------------------------------------------------------

ONE = of_kernels(Kernel(kind="gemm", flop=6.0), backward=(Kernel(kind="gemm", flop=12.0),))
TABLE = kernel_table(ONE, FP32)
FAST, SLOW = rates(flop_per_s=2.0), rates(flop_per_s=1.0)
PLAIN = strategy("ddp")


def program(n_classes: int = 1) -> Program:
    return program_of(ONE, PLAIN, n_classes)


def test_classes_have_rates_shares_and_paces_of_their_own() -> None:
    axis = points(3, micro_batch=np.array([1.0, 2.0, 1.0]), compute=np.array([1.0, 1.0, 2.0]))
    fast, slow = class_phases(PLAIN, TABLE, (FAST, SLOW), axis, (1.5, 0.5))
    assert fast[0] == pytest.approx([6 * 1.5 / 2, 12 * 1.5 / 2, 6 * 1.5 / 4])
    assert slow[1] == pytest.approx([12 * 0.5, 24 * 0.5, 12 * 0.5 / 2])
    (paced,) = class_phases(PLAIN, TABLE, (SLOW,), axis, paces=([np.full((1, 3), 4.0)], [2]))
    assert paced[0] == pytest.approx([1.5, 3.0, 0.75])
    own = replace(axis, class_compute=np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 8.0]]))
    fast, slow = class_phases(PLAIN, TABLE, (FAST, SLOW), own)
    assert fast[0] == pytest.approx([3.0, 6.0, 1.5])
    assert slow[0] == pytest.approx([6.0, 12.0, 6 / 16])
    # where only the second class differs, the two points have prices of their own
    apart = replace(points(2), class_compute=np.array([[1.0, 1.0], [1.0, 8.0]]))
    fast, slow = class_phases(PLAIN, TABLE, (FAST, SLOW), apart)
    assert fast[0] == pytest.approx([3.0, 3.0]) and slow[0] == pytest.approx([6.0, 6 / 8])


def test_equal_columns_are_priced_once() -> None:
    axis = points(4, micro_batch=np.array([1.0, 2.0, 1.0, 1.0]), memory=np.array([1.0, 1, 1, 2]))
    found = compute_times(together((program(),)).computing, PLAIN, TABLE, (SLOW,), axis)
    assert found.column.tolist() == [0, 1, 0, 2]
    assert found.task_s.shape[1] == 3
    assert found.take(slice(1, 3)).column.tolist() == [1, 0]
    assert found.micro_step_s[0, 0] == pytest.approx([18.0, 36.0, 18.0])


def test_the_rank_with_most_work_holds_up_all() -> None:
    """16 ranks, 2 · 2 samples each: 1 + 0.5 / 2 · E[max of 16]."""
    axis = points(micro_batch=2.0, grad_accum=2.0, n_ranks=16.0, n_nodes=2.0)
    (even,), (uneven,) = (
        class_phases(PLAIN, TABLE, (SLOW,), axis, work_sd_frac=sd) for sd in (0.0, 0.5)
    )
    assert uneven == pytest.approx(even * (1 + 0.25 * expected_maximum(16)))
    few = points(2, micro_batch=1.0, n_ranks=np.array([16.0, 2.0]), n_nodes=2.0)
    found = compute_times(together((program(),)).computing, PLAIN, TABLE, (SLOW,), few,
                          work_sd_frac=0.5)  # fmt: skip
    most = [1 + 0.5 * expected_maximum(n) for n in (16, 2)]
    assert found.micro_step_s[0, 0][found.column] == pytest.approx(18 * np.array(most))


def test_tasks_of_each_class_take_its_own_time() -> None:
    joined = together((program(2),)).computing
    found = compute_times(joined, PLAIN, TABLE, (FAST, SLOW), points())
    assert found.micro_step_s[:, 0, 0] == pytest.approx([9.0, 18.0])
    assert found.task_s[joined.rows[0]].sum() == pytest.approx(9.0)
    assert found.task_s[joined.rows[1]].sum() == pytest.approx(18.0)
    phases = class_phases(PLAIN, TABLE, (FAST, SLOW), points())
    assert pass_seconds(joined, PLAIN, (FAST, SLOW), points(), phases, 0.0, False)[
        0, 0
    ] == pytest.approx(18.0)
    given = compute_times(joined, PLAIN, TABLE, (FAST, SLOW), points(),
                          phases=[2.0 * p for p in phases])  # fmt: skip
    assert given.micro_step_s[:, 0, 0] == pytest.approx([18.0, 36.0])


def test_parts_of_a_model_are_priced_in_one_call() -> None:
    other = kernel_table(of_kernels(Kernel(kind="gemm", flop=5.0), Kernel(kind="copy")), FP32)
    paces = np.array([[1.0], [2.0]]), np.array([[2.0], [4.0]])
    tables, classes = (TABLE, other), (SLOW, FAST)
    once, twice = phases_of_parts(PLAIN, tables, classes, points(), (), 0.0, paces)
    assert [p[:, 0].tolist() for p in once] == [[6.0, 12.0, 2.5, 0.0], [3.0, 6.0, 1.25, 0.0]]
    assert [p[:, 0].tolist() for p in twice] == [[3.0, 6.0, 1.25, 0.0], [1.5, 3.0, 0.625, 0.0]]


# -- hosts -----------------------------------------------------------------------------------------


def issuing(seconds_each: float, **over: float) -> Any:
    return rates(host_issue_s=seconds_each, issue_over_torch=over)


def test_the_slowest_host_issues_kernels() -> None:
    classes = (issuing(2.0), issuing(3.0, cpp=0.25))
    axis = points(2, host=np.array([1.0, 2.0]), use_host=np.array([1.0, 1.0]))
    assert issue_s(PLAIN, classes, axis) == pytest.approx([3.0, 1.5])
    own = replace(axis, class_host=np.array([[0.5, 1.0], [1.0, 3.0]]))
    assert issue_s(PLAIN, classes, own) == pytest.approx([4.0, 1.0])
    off = replace(own, use_host=np.array([1.0, 0.0]))
    assert issue_s(PLAIN, classes, off) == pytest.approx([4.0, 0.0])
    assert issue_s(PLAIN, classes, replace(axis, use_host=np.zeros(2))).tolist() == [0.0, 0.0]
    cpp = replace(PLAIN, issuer="cpp")  # type: ignore[arg-type]
    assert issue_s(cpp, classes, axis) == pytest.approx([2.0, 1.0])


def test_one_process_issues_for_all_devices_of_dp_alone() -> None:
    axis = points(n_ranks=4.0)
    assert issuing_devices(PLAIN, axis) == 1.0
    assert issuing_devices(strategy("dp"), axis) == pytest.approx(4.0)


def test_units_are_gathered_where_there_is_more_than_one_rank() -> None:
    table = replace(
        TABLE, issues_per_phase=np.array([1.0, 2.0]), calls_per_phase=np.array([0.0, 4.0]),
        unit_issues_per_phase=np.array([10.0, 20.0]),
    )  # fmt: skip
    weights = np.array([[1.0, 1.0], [2.0, 0.0]])
    costs = np.full(2, 0.5), np.full(2, 0.25), np.array([True, False])
    found = host_s(weights, table, *costs)
    assert found == pytest.approx(np.array([[0.5 * 33 + 1.0, 2.5], [0.5 * 22, 1.0]]))
    alone = host_s(weights, TABLE, *costs)
    assert alone == pytest.approx(np.array([[1.0, 1.0], [1.0, 1.0]]))


def test_the_device_waits_for_host_work_that_depends_on_it() -> None:
    """Batch 3, share 2: 5 + 0.5 · 6 kernel issues of an eighth of a second, after 6 · 6 FLOP."""
    waits = of_kernels(Kernel(kind="gemm", flop=6.0, awaited=Affine(5.0, 0.5)))
    table = kernel_table(waits, FP32)
    joined = together((program_of(waits, PLAIN, 1),)).computing
    device = rates(host_issue_s=0.125)
    axis = points(micro_batch=3.0)
    found = compute_times(joined, PLAIN, table, (device,), axis, (2.0,))
    assert found.micro_step_s[0, 0, 0] == pytest.approx(36 + 8 * 0.125)
    blocking = replace(PLAIN, launch_blocking=True)
    found = compute_times(joined, blocking, table, (device,), axis, (2.0,))
    assert found.micro_step_s[0, 0, 0] == pytest.approx(36 + (8 + 1) * 0.125)
    # One process issues the kernels of all devices; each waits for all of them.
    together_4 = points(micro_batch=3.0, n_ranks=4.0, n_nodes=1.0)
    dp = replace(strategy("dp"), launch_blocking=True)
    found = compute_times(joined, dp, table, (device,), together_4, (2.0,))
    assert found.micro_step_s[0, 0, 0] == pytest.approx(36 + (8 + 1) * 0.5)
    hosts = points(2, micro_batch=3.0, host=np.array([1.0, 2.0]))
    found = compute_times(joined, PLAIN, table, (device,), hosts)
    assert found.column.tolist() == [0, 1]
    assert found.micro_step_s[0, 0] == pytest.approx([18 + 6.5 / 8, 18 + 6.5 / 16])


@pytest.mark.parametrize(("alone", "ratio"), [(None, 0.5), (2.0, 1.0)])
def test_a_timed_kernel_corrects_the_formula_of_a_rank_alone(
    alone: float | None, ratio: float
) -> None:
    """8 FLOP at batch 4, timed at 16 s where the formula has 32 s on this rank, 16 s alone.

    The second entry, of batch 1, has the formula's time of a rank alone.
    """
    table = table_of(Kernel(kind="gemm", flop=8.0, m=Affine(0, 1), n=Affine(2), k=Affine(2)))
    (text,) = [t for t in kernel_texts(table) if "gemm" in t]
    first = 8.0 * ratio if alone is None else 4.0
    kernels = [TimedKernel(kernel=text, precision="fp32", batch=n, seconds=s)
               for n, s in ((4, 16.0), (1, first))]  # fmt: skip
    gpu = GPUS["A100-SXM-80GB"]
    timed = timed_kernels(MeasuredDevice(gpu=gpu.name, kernels=tuple(kernels)), gpu, FP32)
    other = None if alone is None else kernel_rates(flop_per_s=alone)
    device = replace(kernel_rates(), timed=timed, alone=other)
    assert seconds(table, device, 4.0) == pytest.approx(32.0 * ratio)
    assert seconds(table, device, 1.0) == pytest.approx(8.0 * ratio)
