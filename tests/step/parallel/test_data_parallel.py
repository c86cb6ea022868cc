"""Strategies on ideal hardware: overlap by hand, communication volume, cost of accumulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from strategies import PARALLELISMS, block, points, rates, strategy, workload

from simcore.step.kernels import KINDS, kernel_table
from simcore.step.parallel import PARALLELISMS as REGISTRY
from simcore.step.parallel.zero import gathered_params
from simcore.strategy.layout import Overlap
from simcore.strategy.programs import program_named
from simcore.timing.compute import compute_times
from simcore.timing.evaluate import Job, evaluate, price, program_of
from simcore.timing.points import COLLECTIVE_BASE_S, together
from simcore.workload.graph import Block, Frozen, Kernel, Op, Param, Workload


def three_buckets(forward_s: float, backward_s: Sequence[float]) -> Workload:
    """Blocks a, b, c of 40, 20 and 12 bytes of fp32 gradients, each a bucket of its own.

    Backward runs c, b, a for the given seconds; all of forward runs in a.
    """
    c, b, a = backward_s
    return workload(
        [
            block("a", [10], forward_flop=forward_s, backward_flop=a),
            block("b", [5], forward_flop=0.0, backward_flop=b),
            block("c", [3], forward_flop=0.0, backward_flop=c),
        ]
    )


TINY_BUCKETS: dict[str, Any] = {
    "cap_bytes": 1,
    "first_bytes": 1,
    "optimizer": "sgd-plain",
}


def test_overlap_of_three_buckets_by_hand() -> None:
    """Two ranks at 1 byte/s: an all-reduce of S bytes takes 2 * 1/2 * S = S seconds.

    forward 0..10; backward c ..30, b ..45, a ..50; buckets of 12, 20 and 40 bytes.
        c's bucket  30..42   hidden under b's backward (30..45)
        b's bucket  45..65   5 s hidden under a's backward, 15 s exposed
        a's bucket  ready at 50, waits for the wire: 65..105, all exposed
    """
    model = three_buckets(10.0, (20.0, 15.0, 5.0))
    how = strategy("ddp", **TINY_BUCKETS)
    job = Job(model, how, (rates(),))
    steps = evaluate(job, points(), keep_timeline=True)
    assert steps.timeline is not None
    base = COLLECTIVE_BASE_S
    tasks = steps.timeline.graph.tasks
    sends = {
        t.name: (steps.timeline.start_s[i, 0], steps.timeline.finish_s[i, 0])
        for i, t in enumerate(tasks)
        if t.term == "communication"
    }
    assert sends["all-reduce bucket 0"] == pytest.approx((30.0, 42.0 + base))
    assert sends["all-reduce bucket 1"] == pytest.approx((45.0, 65.0 + base))
    assert sends["all-reduce bucket 2"] == pytest.approx((65.0 + base, 105.0 + 2 * base))
    assert steps.step_s[0] == pytest.approx(105.0 + 2 * base)
    assert steps.comm_s[0] == pytest.approx(72.0 + 3 * base)


def test_compute_slows_beside_communication() -> None:
    """Slowed by 50 % while 72 s of sending run beside the 20 s of b's and a's backward."""
    model = three_buckets(10.0, (20.0, 15.0, 5.0))
    how = strategy("ddp", **TINY_BUCKETS)
    slowed = evaluate(Job(model, how, (rates(overlap_slowdown_frac=0.5),)), points())
    # b: 30..52.5, a: ..60; the wire: 30..42, 52.5..72.5, 72.5..112.5
    assert slowed.step_s[0] == pytest.approx(112.5, abs=1e-4)


def test_communication_slows_beside_compute() -> None:
    """Two sends of 32 s can run beside the 20 s of b's and a's backward: +100 % for 20 s."""
    model = three_buckets(10.0, (20.0, 15.0, 5.0))
    how = strategy("ddp", **TINY_BUCKETS)
    slowed = evaluate(Job(model, how, (rates(comm_slowdown_frac=1.0),)), points())
    # the wire: 32 s become 52 s, then the last bucket's 40 s as ever: 30..82, 82..122
    assert slowed.step_s[0] == pytest.approx(122.0, abs=1e-4)


def test_what_is_sent_after_backward_slows_nothing() -> None:
    """One bucket: it is ready when backward has ended."""
    model = three_buckets(10.0, (20.0, 15.0, 5.0))
    how = strategy("ddp", first_bytes=1000, cap_bytes=1000)
    plain, slowed = (
        evaluate(Job(model, how, (rates(**r),)), points()).step_s[0]
        for r in ({}, {"overlap_slowdown_frac": 0.5, "comm_slowdown_frac": 1.0})
    )
    assert slowed == plain


def test_manual_sends_every_tensor_after_backward() -> None:
    """10 forward + 40 backward, then 12 + 20 + 40 bytes one after another, each with a launch."""
    model = three_buckets(10.0, (20.0, 15.0, 5.0))
    how = strategy("manual", optimizer="sgd-plain")
    steps = evaluate(Job(model, how, (rates(),)), points())
    assert steps.step_s[0] == pytest.approx(50.0 + 72.0 + 3 * COLLECTIVE_BASE_S, rel=1e-12)


def test_manual_counts_repeated_blocks() -> None:
    model = workload([block("a", [10, 10, 5])], [0, 0, 0])
    how = strategy("manual", optimizer="sgd-plain")
    steps = evaluate(Job(model, how, (rates(),)), points())
    assert steps.comm_s[0] == pytest.approx(3 * (40 + 40 + 20) + 9 * COLLECTIVE_BASE_S)


def test_dp_grows_linearly_with_the_devices() -> None:
    """Each further device receives 72 bytes of parameters and returns 72 of gradients."""
    model = three_buckets(10.0, (20.0, 15.0, 5.0))
    how = strategy("dp", optimizer="sgd-plain")
    n = np.arange(1.0, 9.0)
    steps = evaluate(
        Job(model, how, (rates(),)),
        points(8, n_ranks=n, n_nodes=1.0, intra_bw_bytes_per_s=1.0, gpus_per_node=n),
    )
    expected = 50.0 + (n - 1) * (2 * 72 + 2 * COLLECTIVE_BASE_S)
    assert steps.step_s == pytest.approx(expected, rel=1e-12)


def test_dp_issues_all_devices_from_one_interpreter() -> None:
    model = three_buckets(0.0, (0.0, 0.0, 0.0))
    n = np.array([1.0, 2.0, 8.0])
    flat = replace(strategy("dp", optimizer="sgd-plain"), compiled=True)
    at = points(3, n_ranks=n, n_nodes=1.0, intra_bw_bytes_per_s=np.inf)
    one, two, eight = evaluate(Job(model, flat, (rates(host_issue_s=1.0),)), at).step_s
    # 3 forward and 3 backward kernels a device; the optimizer is the master's alone
    assert two - one == pytest.approx(6.0, abs=1e-3)
    assert eight - one == pytest.approx(42.0, abs=1e-3)


def sent_bytes(
    parallelism: str, model: Workload, precision: str, n: float, software: str = "plain"
) -> float:
    """Bytes that one rank sends in a step, from time on a wire of 1 byte/s without launches."""
    how = strategy(parallelism, precision, program=program_named(software))
    program = program_of(model, how, 1)
    passes = {"all_reduce": 2.0, "reduce_scatter": 1.0, "all_gather": 1.0}
    by_hand = sum(
        passes[c.op] * (n - 1) / n * size * count
        for c in program.comm
        for size, count in zip(c.sizes_bytes, c.counts, strict=True)
    )
    table = kernel_table(model, how.precision)
    at = points(n_ranks=n, n_nodes=n)
    alone = together([program])
    computed = compute_times(alone.computing, how, table, (rates(),), at)
    job = Job(model, how, (rates(),))
    priced = price([job], alone, table, at, computed, np.zeros(1))
    spent = priced.comm_total_s[0, 0]
    assert spent == pytest.approx(by_hand + len(program.comm) * COLLECTIVE_BASE_S, rel=1e-9)
    return by_hand


@pytest.mark.parametrize(("parallelism", "volumes"), [("ddp", 2), ("zero1", 2), ("zero2", 2)])
def test_volume_of_two_models_a_rank(parallelism: str, volumes: int) -> None:
    """Rajbhandari et al. 2020, section 7: stages 1 and 2 send as much as plain data parallel."""
    model = workload([block("layer", [1000, 24])], [0] * 50)
    n = 8.0
    whole = 2.0 * model.trainable_numel * (n - 1) / n
    assert sent_bytes(parallelism, model, "bf16", n) == pytest.approx(volumes * whole)


@pytest.mark.parametrize(
    ("software", "parallelism", "volumes"),
    [
        ("deepspeed", "zero1", 2 + 1),  # all-reduced whole, and the parameters gathered
        ("deepspeed", "zero2", 1 + 1),
        ("scaling", "zero1", 2 * 2 + 1),  # in fp32
    ],
)
def test_libraries_that_sum_gradients_whole(software: str, parallelism: str, volumes: int) -> None:
    """DeepSpeed's stage 1 (runtime/engine.py: no contiguous gradients, so allreduce_bucket)."""
    model = workload([block("layer", [1000, 24])], [0] * 50)
    whole = 2.0 * model.trainable_numel * 7 / 8
    assert sent_bytes(parallelism, model, "bf16", 8.0, software) == pytest.approx(volumes * whole)


def test_zero3_volume_is_three_models_less_the_block_at_the_turn() -> None:
    """Parameters twice and gradients once; the last block stays gathered between the passes."""
    model = workload([block("layer", [1000, 24])], [0] * 50)
    n = 8.0
    whole = 2.0 * model.trainable_numel * (n - 1) / n
    assert sent_bytes("zero3", model, "bf16", n) == pytest.approx((3 - 1 / 50) * whole)


def test_zero3_hides_what_fits_under_compute() -> None:
    """Four blocks of 4 s forward and 8 s backward; a gather takes 1 s, a reduce-scatter 1 s.

    Only the first gather (1 s) and the last reduce-scatter (1 s) find nothing to hide under:
    the others run beside the blocks before them.
    """
    model = workload([block("layer", [1], forward_flop=4.0, backward_flop=8.0)], [0] * 4)
    how = strategy("zero3", "bf16", optimizer="sgd-plain")
    job = Job(model, how, (rates(),))
    base = COLLECTIVE_BASE_S
    step = evaluate(job, points()).step_s[0]  # 2 bytes * 1/2 = 1 s a collective
    assert step == pytest.approx(1 + 4 * 4 + 4 * 8 + 1 + 2 * base)


def test_zero3_that_neither_overlaps_nor_prefetches_waits_for_everything() -> None:
    """Three blocks of 4 s and 8 s, a second for each gather and reduce-scatter, one by one.

    The last block is still there when backward begins, so that two blocks are gathered again.
    """
    model = workload([block("layer", [1], forward_flop=4.0, backward_flop=8.0)], [0] * 3)
    alone = {"overlap": Overlap(grads=False), "prefetch_blocks": 0}
    how = strategy("zero3", "bf16", optimizer="sgd-plain", **alone)
    step = evaluate(Job(model, how, (rates(),)), points()).step_s[0]
    assert step == pytest.approx(3 * (1 + 4) + 3 * (8 + 1) + 2 + 8 * COLLECTIVE_BASE_S)


def test_zero3_on_a_slow_wire_is_bound_by_it() -> None:
    """Wire of 100 s a collective: 4 + 3 gathers and 4 reduce-scatters, back to back.

    Compute shows only where the wire waits for it: the last backward before the last scatter.
    """
    model = workload([block("layer", [100], forward_flop=1.0, backward_flop=2.0)], [0] * 4)
    how = strategy("zero3", "bf16", optimizer="sgd-plain")
    step = evaluate(Job(model, how, (rates(),)), points()).step_s[0]
    assert 1100.0 < step < 1100.0 + 12.0


FROZEN = Frozen(
    name="encoder",
    resident_numel=1,
    ops=(Op(name="conv", fwd=(Kernel(kind="conv", flop=7.0),)),),
)


@pytest.mark.parametrize("accum", [1, 2, 5])
def test_accumulation_repeats_compute_and_sends_once(accum: int) -> None:
    """Each micro-step runs 7 s frozen, 10 s forward, 40 s backward; the buckets travel once."""
    model = three_buckets(10.0, (20.0, 15.0, 5.0)).replace(frozen=(FROZEN,))
    for name, exposed in (("ddp", 55.0), ("manual", 72.0)):
        how = strategy(name, **TINY_BUCKETS)
        # Compute slows beside communication only in the micro-step that has any.
        job = Job(model, how, (rates(),))
        step = evaluate(job, points(grad_accum=float(accum))).step_s[0]
        assert step == pytest.approx(accum * 57.0 + exposed, abs=1e-3), name


def test_earlier_micro_steps_of_ddp_are_not_slowed() -> None:
    """no_sync: nothing is sent, so nothing slows."""
    model = three_buckets(10.0, (20.0, 15.0, 5.0))
    job = Job(model, strategy("ddp", **TINY_BUCKETS), (rates(overlap_slowdown_frac=0.5),))
    one, three = evaluate(job, points(2, grad_accum=np.array([1.0, 3.0]))).step_s
    assert three - one == pytest.approx(2 * 50.0)


def test_zero2_sends_gradients_in_every_micro_step() -> None:
    """Reduce-scatter of 72 bytes takes 36 s a micro-step; the gather of 72 bytes comes once."""
    model = three_buckets(1.0, (1.0, 1.0, 1.0))
    slow: dict[str, Any] = {"zero_numel": 1, "optimizer": "sgd-plain"}
    one, three = evaluate(
        Job(model, strategy("zero2", **slow), (rates(),)),
        points(2, grad_accum=np.array([1.0, 3.0])),
    ).step_s
    assert three - one == pytest.approx(2 * 36.0, abs=1e-3)
    one, three = evaluate(
        Job(model, strategy("zero1", **slow), (rates(),)),
        points(2, grad_accum=np.array([1.0, 3.0])),
    ).step_s
    assert three - one == pytest.approx(2 * 4.0, abs=1e-3)


@pytest.mark.parametrize(("name", "gathers_s"), [("zero2", 0.0), ("zero3", 72.0)])
def test_fsdp_without_a_sync_sends_gradients_once(name: str, gathers_s: float) -> None:
    """no_sync: earlier micro-steps gather parameters, as stage 3 must, and reduce nothing."""
    model = three_buckets(1.0, (1.0, 1.0, 1.0))
    slow: dict[str, Any] = {"zero_numel": 1, "optimizer": "sgd-plain"}

    def a_micro_step(software: str) -> float:
        job = Job(model, strategy(name, **slow, program=program_named(software)), (rates(),))
        one, three = evaluate(job, points(2, grad_accum=np.array([1.0, 3.0]))).step_s
        return float(three - one) / 2

    assert a_micro_step("fsdp") - a_micro_step("fsdp-no-sync") >= 30.0
    assert a_micro_step("fsdp-no-sync") == pytest.approx(max(4.0, gathers_s), abs=10.0)


def test_dp_replicates_in_every_micro_step() -> None:
    model = three_buckets(10.0, (20.0, 15.0, 5.0))
    job = Job(model, strategy("dp", optimizer="sgd-plain"), (rates(),))
    at = points(2, n_nodes=1.0, intra_bw_bytes_per_s=1.0, grad_accum=np.array([1.0, 3.0]))
    one, three = evaluate(job, at).step_s
    assert three - one == pytest.approx(2 * (50.0 + 144.0), abs=1e-3)


@pytest.mark.parametrize("name", PARALLELISMS)
def test_without_communication_every_strategy_takes_the_compute(name: str) -> None:
    """Free wires: forward and backward, whatever the strategy and the number of ranks."""
    model = three_buckets(10.0, (20.0, 15.0, 5.0))
    job = Job(model, strategy(name, optimizer="sgd-plain"), (rates(),))
    n = np.array([1.0, 2.0, 64.0])
    steps = evaluate(job, points(3, n_ranks=n, n_nodes=1.0, use_comm=0.0))
    assert steps.step_s == pytest.approx(50.0)


@pytest.mark.parametrize("name", PARALLELISMS)
def test_every_strategy_states_what_it_divides(name: str) -> None:
    n = np.array([1.0, 4.0])
    degree = REGISTRY[name].shard_degree(strategy(name), n)
    assert degree.tolist() == ([1.0, 4.0] if name.startswith("zero") else [1.0, 1.0])


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_recompute_runs_forward_again_where_the_block_allows(recompute: str) -> None:
    model = workload(
        [
            block("again", [1], forward_flop=3.0, backward_flop=6.0, recomputable=True),
            block("never", [1], forward_flop=5.0, backward_flop=10.0),
        ]
    )
    how = strategy("ddp", optimizer="sgd-plain", recompute=recompute)
    step = evaluate(Job(model, how, (rates(),)), points(n_ranks=1.0, n_nodes=1.0)).step_s[0]
    assert step == pytest.approx(24.0 + (3.0 if recompute == "full" else 0.0))


def test_ddp_copies_gradients_into_buckets_and_back() -> None:
    """18 fp32 parameters at 1 byte/s: 144 s in and 144 s out, beside nothing but the wire.

    A view of the buckets needs no copy back, main gradients none at all, one device neither.
    """
    model = three_buckets(10.0, (20.0, 15.0, 5.0))
    one_pass = 2 * 18 * 4.0

    def busy(ranks: float, **options: Any) -> tuple[float, float]:
        precision = options.pop("precision", "fp32")
        how = strategy("ddp", precision, optimizer="sgd-plain", **options)
        spent = [
            evaluate(
                Job(model, how, (rates(bytes_per_s=np.full(len(KINDS), bw)),)),
                points(n_ranks=ranks),
            ).terms_s
            for bw in (1.0, np.inf)
        ]
        return tuple(  # type: ignore[return-value]
            float(spent[0][t][0] - spent[1][t][0]) for t in ("backward", "optimizer")
        )

    assert busy(2.0) == pytest.approx((one_pass, one_pass))
    assert busy(2.0, views=True) == pytest.approx((one_pass, 0.0))
    assert busy(1.0) == pytest.approx((0.0, 0.0))


def test_ddp_sends_buffers_before_the_synchronised_forward() -> None:
    """5 fp32 elements in 3 tensors: 20 s on a wire of 1 byte/s, then 20 bytes into the message and
    20 out of it, read and written at 1 byte/s; nothing of it on one device or under zero2."""
    plain = three_buckets(10.0, (20.0, 15.0, 5.0))
    model = plain.replace(buffers_numel=5, n_buffers=3)
    device = rates(bytes_per_s=np.full(len(KINDS), 1.0))

    def step_s(of: Workload, parallelism: str, ranks: float) -> float:
        how = strategy(parallelism, optimizer="sgd-plain")
        return float(evaluate(Job(of, how, (device,)), points(n_ranks=ranks)).step_s[0])

    for parallelism, ranks, more in (
        ("ddp", 2.0, 20.0 + COLLECTIVE_BASE_S + 80.0), ("ddp", 1.0, 0.0), ("zero2", 2.0, 0.0),
    ):  # fmt: skip
        extra = step_s(model, parallelism, ranks) - step_s(plain, parallelism, ranks)
        assert extra == pytest.approx(more)


@pytest.mark.parametrize(
    ("numels", "twice"),
    [
        # GPT-3 175B: down follows its recompute at once, up has 1.2e9 of down between its uses
        ((453e6, 151e6, 604e6, 604e6), 3),
        ((67e6, 67e6, 470e6, 235e6), 2),  # Llama 70B: o has 1.41e9 between, gate and up 0.47e9
        ((50e6, 17e6, 90e6, 45e6), 0),  # of 7B all stay
    ],
)
def test_recompute_gathers_again_what_is_used_too_late(
    numels: tuple[float, ...], twice: int
) -> None:
    """DeepSpeed lets go of what the next 1e9 elements do not need (stage3_max_reuse_distance)."""
    params = tuple(Param(f"p{i}", int(n)) for i, n in enumerate(numels))
    small = Param("bias", 100_000)  # stage3_param_persistence_threshold: stays
    layer = Block(name="layer", ops=(), params=(*params, small), recomputable=True)
    how = strategy("zero3", program=program_named("deepspeed"), reuse_numel=10**9)
    assert gathered_params(layer, how) == params
    assert gathered_params(layer, how, recomputes=True) == (*params, *params[:twice][::-1])
    fsdp = strategy("zero3", program=program_named("fsdp"))
    assert gathered_params(layer, fsdp, recomputes=True) == layer.params


@pytest.mark.parametrize("params", [False, True])
def test_parameters_in_8_bits_travel_so_but_for_what_is_outside_layers(params: bool) -> None:
    """Of 10 in a layer, which comes twice, and 3 in a head, in bf16 otherwise."""
    layer = block("layer", [10], forward_flop=1.0, backward_flop=1.0, recomputable=True)
    head = block("head", [3], forward_flop=1.0, backward_flop=1.0)
    model = Workload(name="x", sample_unit="sample", blocks=(layer, head), order=(0, 0, 1))

    def gathered(fp8_params: bool) -> float:
        how = strategy("zero1", "bf16", fp8_copies=int(fp8_params), overlap=Overlap(params=params))
        sent = program_of(model, how, 1).comm
        return sum(sum(c.sizes_bytes) for c in sent if c.op == "all_gather")

    assert gathered(False) == 2 * (2 * 10 + 3)
    assert gathered(True) == 2 * 10 + 2 * 3


def test_colossal_ai_gathers_each_parameter_by_itself() -> None:
    """LowLevelZeroOptimizer.step: an all_gather each; two layers of 10 and 4, a head of 3."""
    layer = block("layer", [10, 4], forward_flop=1.0, backward_flop=1.0)
    head = block("head", [3], forward_flop=1.0, backward_flop=1.0)
    model = Workload(name="x", sample_unit="sample", blocks=(layer, head), order=(0, 0, 1))
    how = strategy("zero2", "bf16", program=program_named("colossalai"))
    (sent,) = [c for c in program_of(model, how, 1).comm if c.op == "all_gather"]
    assert sorted(zip(sent.sizes_bytes, sent.counts, strict=True)) == [(6, 1), (8, 2), (20, 2)]


def test_the_tensor_used_last_is_not_gathered_again_whatever_may_lie_between() -> None:
    """Nothing lies between its use in the recomputed forward and in backward."""
    layer = Block(name="layer", ops=(), recomputable=True,
                  params=tuple(Param(f"p{i}", 10) for i in range(3)))  # fmt: skip
    how = strategy("zero3", program=program_named("fsdp"), reuse_numel=2)
    first, second, _ = layer.params
    assert gathered_params(layer, how, recomputes=True) == (*layer.params, second, first)
