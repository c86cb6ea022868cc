"""Update, sums, casts, copies and offload of one device, each worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import block, points, rates, strategy, workload

from simcore.hardware.calibrations import TimedUpdate
from simcore.physics.kernel import TrafficLimits
from simcore.strategy.optimizers import Optimizer
from simcore.strategy.programs.mechanisms import (
    PLAIN,
    Fsdp,
    Gradients,
    HostWork,
    OptimizerState,
    Program,
    TrainerLoop,
)
from simcore.strategy.programs.mechanisms import Offload as OffloadsAs
from simcore.strategy.strategy import Offload
from simcore.timing.quantities import FOREACH_TENSORS_PER_LAUNCH, Quantities, update_name
from simcore.workload.graph import Op, Param, Workload
from simcore.workload.saved import Saved

#: A made-up rule: 5 fp32 elements of traffic, 8 bytes of state, 3 kernels a foreach, 2 a tensor.
RULE = Optimizer("rule", "", state_bytes=8.0, traffic_elems=5.0, temporary_elems=0.0, kernels=3,
                 kernels_per_tensor=2)  # fmt: skip
#: Tensors of 60 and 40 elements: 100 parameters.
MODEL = workload([block("b", [60, 40])], input_bytes=6.0)
ISSUE_S = 0.125


def program(**parts: Any) -> Program:
    return replace(PLAIN, name="test", **parts)


def made(
    parallelism: str = "ddp", precision: str = "fp32", models: tuple[Workload, ...] = (MODEL,),
    on: dict[str, Any] | None = None, axis: dict[str, Any] | None = None, **changes: Any,
) -> Quantities:  # fmt: skip
    """Two ranks, 4 micro-steps of 2 samples; elementwise kernels at 10 bytes/s, the update at 5."""
    rule = changes.pop("rule", RULE)
    how = replace(strategy(parallelism, precision, **changes), optimizer=rule, compiled=True)
    device = {"bytes_per_s": 10.0, "update_bytes_per_s": 5.0, "start_s": 0.25,
              "h2d_bytes_per_s": 4.0, "dram_bytes_per_s": 30.0, "far_bytes_per_s": 2.0,
              "nvme_read_bytes_per_s": 8.0, "nvme_write_bytes_per_s": 16.0, "gpus_per_node": 2,
              "ranks_per_socket": 3.0}  # fmt: skip
    one = np.ones(1)
    return Quantities(
        workloads=models,
        strategy=how,
        points=points(**{"micro_batch": 2.0, "grad_accum": 4.0, **(axis or {})}),
        classes=(rates(**(device | (on or {}))),),
        issue_s=ISSUE_S * one,
        launch_s=0.0 * one,
        loader=7.0 * one,
        micro_s=np.full((1, 1, 1), 50.0),
        host_micro_s=np.full((1, 1), 20.0),
    )


def seconds(name: str, q: Quantities) -> float:
    return float(np.ravel(q.quantity(name, 0))[0])


# -- parameter update ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "impl", "traffic", "launches"),
    [
        # fp32: 5 elements of 4 bytes; foreach: at least one launch of each of 3 kernels
        ("fp32", "foreach", 20.0, 3),
        ("fp32", "for-loop", 20.0, 2 * 2),
        # one pass: weight (4) and state (8) both ways, and the gradient
        ("fp32", "fused", 2 * 4 + 2 * 8 + 4.0, 1),
        # 16 bit with fp32 masters: gradients read (2) and written in fp32, and weights both ways
        ("bf16", "foreach", 20.0 + 2 + 4 + 2 * 2, 3),
        ("bf16", "fused", 2 * 4 + 2 * 8 + 4.0 + 2 + 4 + 2 * 2, 1),
    ],
)
def test_an_optimizer_by_hand(precision: str, impl: str, traffic: float, launches: int) -> None:
    q = made(precision=precision, step_impl=impl)
    assert seconds("optimizer_s", q) == pytest.approx(100 * traffic / 5.0 + launches * 0.25)
    assert seconds("update_host_s", q) == pytest.approx(launches * ISSUE_S)
    # Half the bandwidth is twice the time.
    half = made(precision=precision, step_impl=impl, axis={"memory": 0.5})
    assert seconds("optimizer_s", half) == pytest.approx(100 * traffic / 2.5 + launches * 0.25)


@pytest.mark.parametrize(
    ("impl", "kernels", "issues", "launches"),
    [
        ("foreach", 3, 2 * (0.6 + 3 * 0.2), 3), ("fused", 3, 2 * (0.6 + 0.2), 1),
        ("for-loop", 3, 2 * 0.6 + 4 * 0.38, 4),
        ("foreach", 60, 2 * 0.6 + 60 * 0.38, 60),  # its only implementation is a loop of 2 a tensor
    ],
)  # fmt: skip
def test_an_update_of_pytorch_costs_its_host_by_tensor(
    impl: str, kernels: int, issues: float, launches: float
) -> None:
    """Two tensors: 0.6 issues of Python each, 0.2 in each list, and 0.38 for a kernel."""
    q = made(step_impl=impl, rule=replace(RULE, kernels=kernels))
    eager = replace(q, strategy=replace(q.strategy, compiled=False), launch_s=np.full(1, 7.0))
    expected = issues * ISSUE_S + launches * 7.0
    assert seconds("update_host_s", eager) == pytest.approx(expected)
    away = replace(eager.strategy, parallelism="zero1", offload=Offload(optimizer="cpu"))
    assert seconds("update_host_s", replace(eager, strategy=away)) == 0.0
    both = replace(eager.strategy, grad_clip=True, ema=True)
    norm = 2 * (0.6 + 2 * 0.2) * ISSUE_S + 2 * 7.0
    if impl == "for-loop":
        norm = (2 * 0.6 + 4 * 0.38) * ISSUE_S + 4 * 7.0
    loop = (2 * 0.6 + 4 * 0.38) * ISSUE_S + 4 * 7.0  # the EMA's
    found = seconds("update_host_s", replace(eager, strategy=both))
    assert found == pytest.approx(expected + norm + loop)


def test_products_of_an_optimizer_add_to_its_traffic() -> None:
    q = made(rule=replace(RULE, flop=6.0), on={"half_product_flop_per_s": 3.0},
             axis={"compute": 0.5})  # fmt: skip
    assert seconds("optimizer_s", q) == pytest.approx(100 * 20 / 5 + 0.75 + 100 * 6 / 1.5)


def test_many_tensors_take_many_launches() -> None:
    many = made(models=(workload([block("b", [1] * 300)]),))
    packs = 300 / FOREACH_TENSORS_PER_LAUNCH
    assert packs > 1
    assert many.launches(3, 2, "foreach") == pytest.approx(3 * packs)
    assert many.launches(3, 2, "fused") == pytest.approx(packs)
    assert many.launches(3, 2, "for-loop") == 600


def test_a_shard_is_updated_and_its_experts_among_fewer_ranks() -> None:
    """4 ranks: 100 dense parameters, and 80 of experts that 2 ranks share out."""
    experts = replace(block("e", [80]), params=(Param("w", 80, routed=True),))
    both = workload([block("b", [100]), experts])
    four = {"n_ranks": 4.0, "n_nodes": 4.0}
    assert made("zero1", models=(both,), axis=four, expert_ranks=2.0).held == pytest.approx(
        100 / 4 + 80 / 2
    )
    assert made("zero1", models=(both,), axis=four, expert_ranks=8.0).held == pytest.approx(
        100 / 4 + 80
    )
    assert made("ddp", models=(both,), axis=four, expert_ranks=2.0).held == pytest.approx(180)


def test_an_owner_holds_at_least_the_largest_tensor() -> None:
    owns = program(optimizer_state=OptimizerState(owned_tensor_by_tensor=True))
    assert made("zero1", program=owns).held == 60.0
    assert made("zero1").held == 50.0
    assert made("zero1", program=owns, axis={"n_ranks": 1.0, "n_nodes": 1.0}).held == 100.0


def played(kernels_s: list[float], per_tensor: int) -> float:
    """Host and device, event by event: each tensor's kernels are issued in turn; behind the first
    of them the host waits until the device has run it, as a norm that a branch reads."""
    host = device = 0.0
    for kernel_s in kernels_s:
        for i in range(per_tensor):
            host += ISSUE_S
            device = max(device, host) + kernel_s
            if i == 0:
                host = max(host, device)
    return max(host, device)


def loop(numels: list[int], per_tensor: int, **on: Any) -> float:
    rule = replace(RULE, kernels_per_tensor=per_tensor, syncs_each_tensor=True)
    return seconds("optimizer_s", made(models=(workload([block("b", numels)]),), rule=rule, on=on))


@given(st.lists(st.integers(1, 10**4), min_size=1, max_size=40), st.integers(2, 24))
def test_a_loop_that_waits_is_never_less_than_the_slower_and_near_the_events(
    numels: list[int], per_tensor: int
) -> None:
    """20 bytes an element at 2,000 bytes/s, over the kernels of each tensor."""
    on = {"update_bytes_per_s": 2e3, "start_s": 0.0}
    kernels_s = [n * 20 / 2e3 / per_tensor for n in numels]
    total = loop(numels, per_tensor, **on)
    assert total >= max(sum(kernels_s), ISSUE_S * len(numels)) * per_tensor * (1 - 1e-9)
    assert total == pytest.approx(
        played(kernels_s, per_tensor), abs=len(numels) * (ISSUE_S + max(kernels_s))
    )


def test_small_tensors_take_what_the_host_does_and_large_ones_what_the_device_does() -> None:
    """4 kernels a tensor: issued in half a second; 20 bytes an element at 5 a second, 1 s of start.

    Each tensor ends with the wait for an answer, an eighth of a second.
    """
    assert loop([3], 4, start_s=0.0, update_bytes_per_s=1e9) == pytest.approx(0.5 + 0.125)
    assert loop([60, 40], 4) == pytest.approx(240 + 160 + 2 * (4 * 0.25 + 0.125))
    sharded = made("zero1", rule=replace(RULE, syncs_each_tensor=True))
    assert seconds("optimizer_s", sharded) == pytest.approx(120 + 80 + 2 * (2 * 0.25 + 0.125))


def test_norms_copies_and_averages_of_weights() -> None:
    q = made(grad_clip=True, ema=True)
    assert seconds("grad_norm_s", q) == pytest.approx(100 * 4 / 5 + 2 * 0.25)
    looped = made(step_impl="for-loop")
    assert seconds("grad_norm_s", looped) == pytest.approx(100 * 4 / 5 + 2 * 2 * 0.25)
    assert seconds("grad_norm_s", made(step_impl="fused")) == seconds("grad_norm_s", q)
    # mul_ and add_ of each tensor: 5 elements
    assert seconds("ema_s", q) == pytest.approx(100 * 20 / 5 + 2 * 2 * 0.25)
    assert seconds("ema_s", made(ema=True, ema_impl="foreach")) == pytest.approx(
        100 * 20 / 5 + 2 * 0.25
    )
    copies = program(optimizer_state=OptimizerState(update_copies_bytes=3.0))
    assert seconds("update_passes_s", made(program=copies)) == pytest.approx(300 / 10 + 2 * 0.25)
    alone = {"n_ranks": 1.0, "n_nodes": 1.0}
    assert seconds("update_passes_s", made(program=copies, axis=alone)) == 0.0
    # eleven kernels around each of two tensors, on one rank too, which the host must issue
    calls = program(optimizer_state=OptimizerState(update_kernels_a_tensor=11))
    for axis in ({}, alone):
        found = seconds("update_passes_s", made(program=calls, axis=axis))
        assert found == pytest.approx(2 * 11 * max(0.25, ISSUE_S))


# -- micro-steps -----------------------------------------------------------------------------------


def test_sums_of_gradients_by_hand() -> None:
    """Three earlier micro-steps of 50 s; reads 4 and 4 bytes, writes 4; a kernel a tensor."""
    q = made()
    each = 50 + 100 * 12 / 10 + 2 * 0.25
    assert seconds("accumulation_s", q) == pytest.approx(3 * each)
    assert seconds("accumulation_host_s", q) == pytest.approx(3 * (20 + 2 * ISSUE_S))
    assert float(q.sums_host_s[0]) == pytest.approx(2 * ISSUE_S)
    assert float(made(axis={"grad_accum": 1.0}).sums_host_s[0]) == 0.0
    assert seconds("accumulation_s", made(axis={"grad_accum": 1.0})) == 0.0


def test_fused_sums_read_and_write_them_in_place_of_a_gradient() -> None:
    """fp32 sums of bf16 weights: 2 · 4 - 2 bytes more, and no kernel."""
    fused = replace(strategy("ddp", "bf16").precision, grad_bytes=4, fused_grad_sum=True)
    q = made()
    q = replace(q, strategy=replace(q.strategy, precision=fused))
    assert seconds("accumulation_s", q) == pytest.approx(3 * (50 + 100 * 6 / 10))
    assert float(q.sums_host_s[0]) == 0.0
    own = program(gradients=Gradients(added_by_own_kernel=True))
    added = replace(q, strategy=replace(q.strategy, program=own))
    assert seconds("accumulation_s", added) == pytest.approx(3 * (50 + 100 * 10 / 10 + 0.5))


def test_zero3_sums_shards_unless_it_reduces_last() -> None:
    assert seconds("accumulation_s", made("zero3")) == pytest.approx(3 * (50 + 50 * 1.2 + 0.5))
    late = program(fsdp=Fsdp(reduces_last_micro_step=True))
    assert seconds("accumulation_s", made("zero3", program=late)) == pytest.approx(3 * 170.5)


def test_autocast_casts_matrices_in_each_micro_step() -> None:
    """Of 100 weights 60 are a matrix: read in fp32, written in 16 bit."""
    op = Op(name="op", fwd=(), gemm_weight=60.0)
    model = workload([replace(block("b", [60, 40]), ops=(op,))])
    q = made(precision="amp-bf16", models=(model,))
    assert seconds("cast_weights_s", q) == pytest.approx(60 * 6 / 5 + 0.25)
    assert seconds("accumulation_s", q) == pytest.approx(3 * (50 + 72.25 + 120.5))
    by_element = made(precision="amp-bf16", models=(model,),
                      on={"limits": TrafficLimits(indexed_s=2.0)})  # fmt: skip
    assert seconds("cast_weights_s", by_element) == pytest.approx(60 * 2 + 0.25)
    assert seconds("cast_weights_s", made(models=(model,))) == 0.0


def test_a_trainer_waits_between_micro_steps() -> None:
    """By hand: 10 kernel issues and 3 for each of two layers, in each of 4 micro-steps."""
    layers = workload([block("l", [50], recomputable=True), block("h", [1])], order=(0, 0, 1))
    busy = program(host=HostWork(trainer_loop=TrainerLoop(micro_step=10.0, layer=3.0, adapter=0.0)))
    q = made(program=busy, models=(layers,))
    assert seconds("driver_s", q) == pytest.approx(4 * (10 + 2 * 3) * ISSUE_S)
    assert seconds("driver_s", made()) == 0.0


# -- copies of messages ----------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [{}, {"n_ranks": 1.0, "n_nodes": 1.0}, {"use_comm": 0.0}])
def test_copies_of_buckets_and_buffers(axis: dict[str, float]) -> None:
    shared = not axis
    model = workload([block("b", [60, 40])], buffers_numel=5.0, n_buffers=3)
    q = made(models=(model,), axis=axis)
    for name in ("bucket_fill_s", "bucket_drain_s"):
        assert seconds(name, q) == pytest.approx((2 * 100 * 4 / 10 + 2 * 0.25) * shared)
    assert seconds("buffer_copies_s", q) == pytest.approx((4 * 4 * 5 / 10 + 3 * 0.25) * shared)
    assert seconds("buffer_copies_host_s", q) == pytest.approx(3 * ISSUE_S * shared)
    assert seconds("bucket_copies_host_s", q) == pytest.approx(2 * 2 * ISSUE_S * shared)
    views = made(models=(model,), axis=axis, views=True)
    assert seconds("bucket_copies_host_s", views) == pytest.approx(2 * ISSUE_S * shared)


# -- host memory and offload -----------------------------------------------------------------------


def test_inputs_and_loading() -> None:
    assert seconds("input_copy_s", made()) == pytest.approx(6 * 2 * 4 / 4)
    assert seconds("loader_blocking_s", made()) == 7.0


@pytest.mark.parametrize(("target", "rate"), [("cpu", 4.0), ("cpu-far", 2.0), ("nvme", 4.0)])
def test_gradients_go_to_the_host_and_weights_come_back(target: str, rate: float) -> None:
    q = made("zero1", "bf16", offload=Offload(optimizer=target))  # type: ignore[arg-type]
    assert seconds("offload_down_s", q) == pytest.approx(50 * 2 / rate)
    assert seconds("offload_up_s", q) == pytest.approx(50 * 2 / rate)
    wide = program(offload=OffloadsAs(crosses_in_fp32=True))
    q = made("zero1", "bf16", offload=Offload(optimizer=target), program=wide)  # type: ignore[arg-type]
    assert seconds("offload_down_s", q) == pytest.approx(50 * 4 / rate)
    assert seconds("offload_up_s", q) == pytest.approx(50 * 4 / rate)


@pytest.mark.parametrize(
    ("target", "by_hand"),
    [
        # 28 bytes a parameter at 30/3 bytes/s, of which 0.8 are reached
        ("cpu", 50 * 28 / 8.0),
        ("cpu-far", 50 * 28 / (2.0 / 3.0 * 0.8)),
        # two devices' states of 12 bytes a parameter through one NVMe
        ("nvme", 50 * 28 / 8.0 + 2 * 50 * 12 * (1 / 8 + 1 / 16)),
    ],
)
def test_the_host_updates_by_hand(target: str, by_hand: float) -> None:
    q = made("zero1", offload=Offload(optimizer=target))  # type: ignore[arg-type]
    assert seconds("host_optimizer_s", q) == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("target", "by_hand"), [("cpu", 50 * 2 / 4), ("cpu-far", 50 * 2 / 2), ("nvme", 50 * 2 * 2 / 8)]
)
def test_parameters_that_stay_away_are_fetched_block_by_block(target: str, by_hand: float) -> None:
    away = Offload(optimizer=target, params=target)  # type: ignore[arg-type]
    q = made("zero3", "bf16", offload=away)
    assert seconds("fetch_block_0", q) == pytest.approx(by_hand)
    assert seconds("fetch_block_1", q) == 0.0  # another part of the model has it
    assert seconds("offload_up_s", q) == 0.0


def test_activations_travel_both_ways_within_a_micro_step() -> None:
    """10 elements of 4 bytes a sample, 2 samples at 4 bytes/s: 20 s one way, for both calls."""
    away = block("b", [60, 40], offloaded=Saved(low=10.0))
    model = workload([away, block("stays", [])], order=(0, 0, 1))
    q = made(models=(model,))
    assert seconds("activations_copy_s", q) == pytest.approx(2 * 20.0)
    assert seconds("accumulation_s", q) == pytest.approx(3 * 291.0)  # the copies hide
    slow = made(models=(model,), on={"h2d_bytes_per_s": 0.5})
    assert seconds("accumulation_s", slow) == pytest.approx(3 * 2 * 320)


def test_parts_of_a_model_have_rows_of_their_own() -> None:
    other = workload([block("b", [30])], input_bytes=1.0)
    q = made(models=(MODEL, other), ema=True)
    assert q.numel == pytest.approx(np.array([[100.0], [30.0]]))
    assert q.quantity("ema_s", 0)[:, 0] == pytest.approx([401.0, 120.5])
    rule = replace(RULE, syncs_each_tensor=True)
    waiting = made(models=(MODEL, other), rule=rule).quantity("optimizer_s", 0)
    assert waiting[:, 0] == pytest.approx([401.25, 120.625])
    assert made(rule=rule).quantity("optimizer_s", 0).shape == (1,)


@pytest.mark.parametrize(("numel", "factor"), [(100, 2.0), (400, 4.0), (1600, 8.0), (10, 2.0)])
def test_an_update_follows_the_models_whose_updates_were_timed(numel: int, factor: float) -> None:
    """Of 100 parameters twice, of 1,600 eight times the figures' time: half way in logarithms 4."""
    models = (workload([block("b", [numel])]),)
    plain = made(models=models)
    own = update_name(plain.strategy)
    updates = tuple(
        TimedUpdate(optimizer=name, numel=n, over_figures=f)
        for name, n, f in ((own, 1600.0, 8.0), (own, 100.0, 2.0), ("other foreach", 400.0, 99.0))
    )
    timed = seconds("optimizer_s", made(models=models, on={"updates": updates}))
    assert timed == pytest.approx(factor * seconds("optimizer_s", plain))


def test_parameters_are_sent_by_the_ranks_that_own_them_with_zero_1_alone() -> None:
    owned = program(optimizer_state=OptimizerState(owned_tensor_by_tensor=True))
    sent = np.asarray(made("zero1", program=owned).broadcasts_s)
    assert (sent > 0.0).all()
    for none in (made("zero1"), made("ddp", program=owned), made("zero2", program=owned)):
        assert np.all(none.broadcasts_s == 0.0)
    silent = made("zero1", program=owned, axis={"use_comm": 0.0}).broadcasts_s
    assert np.all(silent == 0.0)


# -- what a step waits for beside its strategy ---------------------------------------------------


def test_norms_over_all_ranks_wait_in_each_micro_step() -> None:
    """3 norms of 2 floats: 2 ranks send 8 bytes at 1 byte/s, and wait 5 s, twice a micro-step."""
    synced = replace(MODEL, sync_norms=3, buffers_numel=6, sync_norm_wait_s=5.0)
    wires = {"n_nodes": 1.0, "intra_bw_bytes_per_s": 1.0}
    found = seconds("sync_norms_s", made(models=(synced,), axis=wires))
    assert found == pytest.approx(2 * 3 * 4 * (8.0 + 5.0))
    alone = {"n_ranks": 1.0, **wires}
    assert seconds("sync_norms_s", made(models=(synced,), axis=alone)) == 0.0


def test_blocks_of_a_frozen_base_are_exchanged_in_both_passes() -> None:
    """Two of three blocks are away: 4 x 10 + 3 bytes each, out and in, twice, in 4 micro-steps."""
    base = block("base", [1], recomputable=True, base_numel=10, packed_bytes=3.0)
    net = workload([block("head", [1], base_numel=99), base], [0, 1, 1, 1])
    q = made(models=(net,), offload=Offload(blocks=2))
    assert seconds("blocks_copy_s", q) == pytest.approx(2 * 2 * 2 * 43.0 / 4.0 * 4)
