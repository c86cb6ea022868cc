"""Durations priced by hand: one linear layer, the host, the loader, accumulation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from strategies import block, points, rates, strategy, workload

from simcore.answer.predict import predict as predicted
from simcore.answer.request import make_request
from simcore.base.errors import InvalidConfig
from simcore.request.resolved import Loading
from simcore.step.kernels import KINDS
from simcore.strategy.layout import Overlap
from simcore.strategy.optimizers import StepImpl
from simcore.strategy.programs.mechanisms import Recompute
from simcore.timing.evaluate import (
    CHUNK,
    Job,
    _spread,
    evaluate,
    evaluate_parts,
    program_of,
)
from simcore.timing.points import COLLECTIVE_BASE_S, Points
from simcore.timing.rates import class_rates
from simcore.workload.graph import Affine, Block, Kernel, Op, Workload
from simcore.workload.ops.products import linear

ALONE: dict[str, Any] = {"n_ranks": 1.0, "n_nodes": 1.0}
PLAIN = strategy("ddp", "fp32", optimizer="sgd-plain")
#: A program whose host takes one kernel issue for each kernel, whatever its kind.
FLAT = replace(PLAIN, compiled=True)


def one_linear() -> Workload:
    """64 rows a sample of [256] x [256, 512], fp32."""
    op = linear("fc", 64.0, 256, 512)
    return workload([Block(name="fc", ops=(op,), params=block("fc", [256 * 512]).params)])


def device(flop_per_s: float, bytes_per_s: float, **more: Any) -> Any:
    return rates(
        flop_per_s=np.full(len(KINDS), flop_per_s),
        bytes_per_s=np.full(len(KINDS), bytes_per_s),
        update_bytes_per_s=bytes_per_s,
        **more,
    )


@pytest.mark.parametrize(("software", "bytes_each"), [("plain", 6), ("nanotron", 10)])
def test_sums_of_gradients_in_fp32_are_fused_or_added(software: str, bytes_each: int) -> None:
    """A product reads and writes the sum in place of a gradient of 16 bits, 2 · 4 - 2 bytes more;
    added, that is read too, beside the sum that is read and written: 2 + 2 · 4."""
    made = make_request(
        "gpt2", "1xA100-80GB", precision="bf16", main_grads="fp32", strategy="ddp",
        software=software, micro_batch=1, grad_accum=3,
    )  # fmt: skip
    numel = made.workload.trainable_numel
    group = class_rates(made.cluster.groups[0], made.strategy.precision, made.profile)
    rate = group.kernels.of("elementwise")["bytes_per_s"]
    tensors = made.workload.n_tensors * (software == "nanotron")
    by_hand = 2 * (numel * bytes_each / rate + tensors * group.kernels.start_s)
    assert predicted(made).time_s["accumulation"] == pytest.approx(by_hand, rel=1e-6)


def test_a_linear_layer_by_hand() -> None:
    """Batch 4: each of three products does 2 * 256 * 256 * 512 FLOP and moves
    4 bytes * (256 * (256 + 512) + 256 * 512); the pair adds in quadrature."""
    flop = 2 * 256 * 256 * 512
    n_bytes = 4 * (256 * (256 + 512) + 256 * 512)
    kernel = np.hypot(flop / 1e9, n_bytes / 1e8)
    update = 256 * 512 * 2 * 4 / 1e8  # plain SGD: weight read and written
    gradient_free = evaluate(Job(one_linear(), PLAIN, (device(1e9, 1e8),)),
                             points(micro_batch=4.0, **ALONE))  # fmt: skip
    assert gradient_free.terms_s["forward"][0] == pytest.approx(kernel, rel=1e-12)
    assert gradient_free.terms_s["backward"][0] == pytest.approx(2 * kernel, rel=1e-12)
    assert gradient_free.terms_s["optimizer"][0] == pytest.approx(update, rel=1e-12)
    assert gradient_free.step_s[0] == pytest.approx(3 * kernel + update, rel=1e-12)


@pytest.mark.parametrize(
    ("precision", "impl", "n_bytes"),
    [
        # apex O2: 2 read and 4 written to widen a gradient; FusedAdam reads that, and reads and
        # writes weight and both moments; the weight of 16 bits is read and written
        ("fp16", "fused", 2 + 4 + 4 + 2 * (4 + 8) + 2 * 2),
        ("fp16", "foreach", 2 + 4 + 20 * 4 + 2 * 2),  # a kernel each: test_strategy counts 20
        ("bf16-true", "fused", 2 + 2 * (2 + 8)),  # no master: nothing is widened
        ("fp32", "fused", 4 + 2 * (4 + 8)),
        ("amp-fp16", "foreach", 20 * 4),
    ],
)
def test_an_update_widens_gradients_of_16_bits_for_its_masters(
    precision: str, impl: StepImpl, n_bytes: float
) -> None:
    job = Job(
        one_linear(), strategy("ddp", precision, optimizer="adamw", step_impl=impl),
        (device(np.inf, 1e8),),
    )  # fmt: skip
    found = evaluate(job, points(**ALONE)).terms_s["optimizer"][0]
    assert found == pytest.approx(256 * 512 * n_bytes / 1e8, rel=1e-12)


def test_half_precision_moves_half_the_bytes() -> None:
    """At free compute, 16-bit weights and activations take half the time of 32-bit."""
    at = points(micro_batch=4.0, **ALONE)
    full, half = (
        evaluate(Job(one_linear(), strategy("ddp", p, optimizer="sgd-plain"),
                     (device(np.inf, 1e8),)), at).terms_s["forward"][0]
        for p in ("fp32", "bf16")
    )  # fmt: skip
    assert half == pytest.approx(full / 2, rel=1e-12)


def test_small_products_fill_few_multiprocessors() -> None:
    """[256, 256] x [256, 512] has 8 x 8 tiles of 64 x 32: of 256 SMs a quarter is busy, with
    tiles that run at 1 / (1 + 0.05 x (2 + 4 - 1.5)) of the speed of large ones."""
    at = points(micro_batch=4.0, **ALONE)
    ideal, real = (
        evaluate(Job(one_linear(), PLAIN, (device(1e9, np.inf, sm_count=n),)), at)
        .terms_s["forward"][0]
        for n in (0.0, 256.0)
    )  # fmt: skip
    assert real == pytest.approx(4 * 1.225 * ideal, rel=1e-12)


def test_kernel_start_is_paid_a_launch() -> None:
    kernels = tuple(Kernel(kind="elementwise", launches=float(n)) for n in (1, 2, 3))
    model = workload([Block(name="a", ops=(Op(name="op", fwd=kernels),))])
    steps = evaluate(Job(model, PLAIN, (rates(start_s=2.0),)), points(**ALONE))
    assert steps.terms_s["forward"][0] == pytest.approx(12.0)


def test_a_host_bound_step_is_its_launches() -> None:
    """100 blocks of 1 + 1 kernels at 10 us each; the device needs no time at all."""
    model = workload([block("a", [1], forward_flop=0.0, backward_flop=0.0)], [0] * 100)
    job = Job(model, FLAT, (rates(host_issue_s=1e-5),))
    accum = np.array([1.0, 2.0, 8.0])
    steps = evaluate(job, points(3, grad_accum=accum, **ALONE))
    update = 100 / 30 * 1e-5  # foreach packs thirty tensors a launch
    summed = (accum - 1) * 100 * 1e-5  # one kernel a tensor adds to the gradients before
    assert steps.step_s == pytest.approx(accum * 2e-3 + summed + update, rel=1e-9)
    free = evaluate(job, points(3, grad_accum=accum, use_host=0.0, **ALONE))
    assert free.step_s == pytest.approx(0.0)


def test_a_loop_over_tensors_updates_and_clips_each_by_itself() -> None:
    """100 tensors at 10 us a launch: Adam's loop issues 13 kernels a tensor, clipping its norm
    and its scaling; foreach takes thirty tensors at once."""
    model = workload([block("a", [1], forward_flop=0.0, backward_flop=0.0)], [0] * 100)

    def step_s(impl: StepImpl, *, clip: bool) -> float:
        how = strategy("ddp", "fp32", optimizer="adam", step_impl=impl, grad_clip=clip)
        how = replace(how, compiled=True)
        return float(
            evaluate(Job(model, how, (rates(host_issue_s=1e-5),)), points(**ALONE)).step_s[0]
        )

    passes = 100 * 2 * 1e-5  # forward and backward
    kinds: dict[StepImpl, float] = {"for-loop": 1.0, "foreach": 30.0}
    for impl, packed in kinds.items():
        update = 100 / packed * 13 * 1e-5
        norm = 100 / packed * 2 * 1e-5
        assert step_s(impl, clip=False) == pytest.approx(passes + update, rel=1e-9)
        assert step_s(impl, clip=True) == pytest.approx(passes + update + norm, rel=1e-9)


def test_frozen_networks_are_issued_in_each_micro_step() -> None:
    from simcore.workload.graph import Frozen

    frozen = Frozen(
        name="f", resident_numel=1, ops=(Op(name="o", fwd=(Kernel(kind="copy", launches=50.0),)),)
    )
    model = workload([block("a", [1], forward_flop=0.0, backward_flop=0.0)]).replace(
        frozen=(frozen,)
    )
    job = Job(model, FLAT, (rates(host_issue_s=1.0),))
    one, four = evaluate(job, points(2, grad_accum=np.array([1.0, 4.0]), **ALONE)).step_s
    assert four - one == pytest.approx(3 * (52.0 + 1.0)), "and the sum of one gradient"


def fixed_step(seconds: float) -> Workload:
    """A step of so many seconds on the device, whatever the batch (traffic of a weight)."""
    kernel = Kernel(kind="copy", weight=seconds / 4)
    return workload([Block(name="a", ops=(Op(name="op", fwd=(kernel,)),))])


DEVICE = rates(bytes_per_s=np.ones(len(KINDS)), cores=16)


def load(model: Workload, how: Any = PLAIN, *, loading: Loading, **at: Any) -> float:
    values = {**ALONE, "gpus_per_node": 1.0, **at}
    return float(evaluate(Job(model, how, (DEVICE,), loading), points(**values)).step_s[0])


def test_loading_without_workers_blocks_the_step() -> None:
    """8 samples at 0.5 s, then 3 s of compute."""
    data = Loading(1000, 0.5, 0, False)
    assert load(fixed_step(3.0), loading=data, micro_batch=8.0) == pytest.approx(7.0)
    assert load(fixed_step(3.0), loading=data, micro_batch=8.0, loader=2.0) == pytest.approx(5.0)
    assert load(fixed_step(3.0), loading=data, micro_batch=8.0, use_loader=0.0) == 3.0


def test_loading_without_workers_blocks_the_host() -> None:
    """The process that loads cannot issue: 4 s of loading, then 2 s of issuing."""
    model = workload([block("a", [], forward_flop=0.0, backward_flop=0.0)])
    job = Job(model, FLAT, (rates(host_issue_s=1.0),), Loading(1000, 1.0, 0, False))
    step = evaluate(job, points(micro_batch=4.0, **ALONE)).step_s[0]
    assert step == pytest.approx(4.0 + 2.0 + 1.0)  # the last second issues the update


def test_prefetching_loaders_bound_the_period() -> None:
    """4 workers deliver 8 samples of 1 s in 2 s: hidden under 3 s, binding 1 s."""
    data = Loading(1000, 1.0, 4, True)
    assert load(fixed_step(3.0), loading=data, micro_batch=8.0) == pytest.approx(3.0)
    assert load(fixed_step(1.0), loading=data, micro_batch=8.0) == pytest.approx(2.0)
    # eight ranks of four workers share sixteen cores: half the rate
    crowded = load(fixed_step(1.0), loading=data, micro_batch=8.0, gpus_per_node=8.0)
    assert crowded == pytest.approx(4.0)


def test_workers_start_anew_each_epoch() -> None:
    """100 samples in batches of 10 on one rank: ten steps share 4 starts and the first batch."""
    data = Loading(100, 1.0, 4, False, worker_start_s=0.02)
    spent = load(fixed_step(5.0), loading=data, micro_batch=10.0)
    assert spent == pytest.approx(5.0 + (4 * 0.02 + 10.0) / 10)
    one_step = load(fixed_step(200.0), loading=data, micro_batch=500.0)
    assert one_step == pytest.approx(200.0 + 4 * 0.02 + 500.0)


def test_one_process_loads_for_all_devices_of_data_parallel() -> None:
    """Two devices, 8 samples each, one loader with 4 workers: 16 s / 4."""
    how = strategy("dp", optimizer="sgd-plain")
    at = {"n_ranks": 2.0, "gpus_per_node": 2.0, "micro_batch": 8.0, "intra_bw_bytes_per_s": 1.0}
    data = Loading(1600, 1.0, 4, True)
    assert load(fixed_step(1.0), how, loading=data, **at) == pytest.approx(4.0)
    anew = Loading(1600, 1.0, 4, False)  # 100 batches of 16 in waves of 4, the last used in 4 s
    expected = (16.0 + 96 * 4.0 + 4 * 1.0) / 100
    assert load(fixed_step(1.0), how, loading=anew, **at) == pytest.approx(expected)


def test_chunks_join_without_a_seam() -> None:
    """Configurations on both sides of every chunk boundary equal themselves alone."""
    n = 3 * CHUNK + 232
    rng = np.random.default_rng(7)
    nodes = rng.integers(1, 50, n).astype(float)
    axis = points(
        n,
        micro_batch=rng.integers(1, 65, n).astype(float),
        grad_accum=rng.integers(1, 4, n).astype(float),
        n_nodes=nodes,
        n_ranks=nodes * rng.integers(1, 9, n),
        inter_bw_bytes_per_s=rng.uniform(1e8, 1e11, n),
        intra_bw_bytes_per_s=rng.uniform(1e9, 1e11, n),
        inter_hop_s=1e-5,
        intra_hop_s=1e-6,
        compute=rng.uniform(0.5, 2.0, n),
        gpus_per_node=8.0,
    )
    job = Job(
        one_linear(), strategy(), (device(1e13, 1e12, host_issue_s=1e-6),),
        Loading(1e6, 1e-5, 4, False),
    )  # fmt: skip
    together = evaluate(job, axis)
    picks = {0, n - 1, *range(17, n, 101)}
    picks |= {k * CHUNK + d for k in (1, 2, 3) for d in (-1, 0, 1)}
    for i in sorted(picks):
        alone = evaluate(job, axis.take(slice(i, i + 1)))
        for name in ("step_s", "makespan_s", "comm_s", "load_period_s"):
            assert getattr(alone, name)[0] == pytest.approx(
                getattr(together, name)[i], rel=1e-12
            ), (i, name)
        for term, value in alone.terms_s.items():
            assert value[0] == pytest.approx(together.terms_s[term][i], rel=1e-12, abs=1e-18)


def test_mixed_classes_wait_for_the_slowest() -> None:
    fast, slow = device(2.0, np.inf), device(1.0, np.inf)
    model = workload([block("a", [4], forward_flop=10.0, backward_flop=20.0)])
    at = points(use_comm=0.0)
    times = [evaluate(Job(model, PLAIN, c), at).step_s[0]
             for c in ((fast,), (slow,), (fast, slow), (slow, fast))]  # fmt: skip
    assert times == pytest.approx([15.0, 30.0, 30.0, 30.0])


def test_points_default_to_one_and_keep_their_columns() -> None:
    axis = Points.of({"n_ranks": np.array([1.0, 2.0, 3.0])}, 3)
    assert len(axis) == 3
    assert axis.compute.tolist() == [1.0, 1.0, 1.0]
    assert axis.take(np.array([2, 0])).n_ranks.tolist() == [3.0, 1.0]
    changed = axis.with_columns(1, compute=2.0)
    assert changed.compute.tolist() == [1.0, 2.0, 1.0]
    assert axis.compute.tolist() == [1.0, 1.0, 1.0]


def test_geometry_scales_with_the_batch() -> None:
    """m = 256 a sample on 4 SMs: four tiles of 128 x 64, then of 128 x 128, then of 256 x 128."""
    kernel = Kernel(kind="gemm", flop=1.0, m=Affine(0.0, 256.0), n=Affine(128.0), k=Affine(64.0))
    model = workload([Block(name="a", ops=(Op(name="op", fwd=(kernel,)),))])
    job = Job(model, PLAIN, (rates(sm_count=4.0),))
    batch = np.array([1.0, 2.0, 4.0, 8.0])
    steps = evaluate(job, points(4, micro_batch=batch, **ALONE))
    assert steps.terms_s["forward"] == pytest.approx([1.075, 2 * 1.025, 4.0, 8.0])


def test_attention_backward_runs_at_its_own_rate() -> None:
    kernel = Kernel(kind="attention", flop=3.0)
    ops = (Op(name="op", fwd=(kernel,), bwd=(replace(kernel, flop=7.5),)),)
    model = workload([Block(name="a", ops=ops)])
    job = Job(model, PLAIN, (rates(attention_bwd_frac=0.5),))
    terms = evaluate(job, points(**ALONE)).terms_s
    assert (terms["forward"][0], terms["backward"][0]) == (3.0, 15.0)


def test_how_the_update_runs_is_an_option_of_its_own() -> None:
    """The model's own where nothing is said; a wrong word names the right one."""
    said = make_request("waveglow-512", "A100-SXM4-40GB", optimizer_impl="for-loop")
    assert said.strategy.step_impl == "for-loop"
    assert make_request("bert-large-apex", "A100-SXM4-40GB").strategy.step_impl == "fused"
    with pytest.raises(InvalidConfig, match="did you mean 'for-loop'"):
        make_request("waveglow-512", "A100-SXM4-40GB", optimizer_impl="loop")


# -- compute beside collectives --------------------------------------------------------------------

#: Each block's gradients are a bucket of their own.
BUCKETS = strategy("ddp", optimizer="sgd-plain", cap_bytes=1, first_bytes=1)


def two_buckets(last_backward_s: float) -> Workload:
    """Backward of 20 s makes 12 bytes of gradients; the rest of it runs beside their all-reduce,
    which takes 12 s at 1 byte/s. 40 bytes more are sent after backward has ended."""
    return workload([block("a", [10], backward_flop=last_backward_s),
                     block("c", [3], backward_flop=20.0)])  # fmt: skip


@pytest.mark.parametrize(
    ("last_s", "overlap", "backward_s", "sent_s"),
    [
        (5.0, 1.0, 20 + 5 * 1.5, 12 + 0.25 * 5 + 40),  # 5 s of both together
        (40.0, 1.0, 20 + 40 + 0.5 * 12, 12 * 1.25 + 40),  # 12 s of both together
        (40.0, 2.0, 20 + 40 + 0.25 * 12, 12 * 1.125 + 40),  # overlap twice as good
    ],
)
def test_compute_and_collectives_slow_each_other(
    last_s: float, overlap: float, backward_s: float, sent_s: float
) -> None:
    """The slower of two kinds of devices decides: 50 % for compute, 25 % for collectives."""
    kinds = (rates(overlap_slowdown_frac=0.5), rates(comm_slowdown_frac=0.25))
    steps = evaluate(Job(two_buckets(last_s), BUCKETS, kinds), points(overlap=overlap))
    assert steps.terms_s["backward"][0] == pytest.approx(backward_s, abs=1e-4)
    assert steps.terms_s["communication"][0] == pytest.approx(sent_s, abs=1e-4)
    assert steps.comm_s[0] == pytest.approx(52.0 + 2 * COLLECTIVE_BASE_S)
    assert steps.comm_beside_s[0] == pytest.approx(12.0 + COLLECTIVE_BASE_S)


@pytest.mark.parametrize(
    ("parallelism", "forward_s", "slowdown", "micro_s"),
    [
        ("zero3", 1.0, 0.0, 32.0),  # a gather and a reduction, 16 s each
        ("zero3", 100.0, 0.0, 102.0),
        ("zero3", 100.0, 0.25, 102 + 0.25 * 16),  # the reduction runs after backward
        ("zero2", 100.0, 0.25, 102 + 16.0),  # a reduction after all of backward
    ],
)
def test_earlier_micro_steps_hide_collectives_where_the_last_does(
    parallelism: str, forward_s: float, slowdown: float, micro_s: float
) -> None:
    model = workload([block("a", [8], forward_flop=forward_s)])
    how = strategy(parallelism, optimizer="sgd-plain", overlap=Overlap())
    steps = evaluate(Job(model, how, (rates(overlap_slowdown_frac=slowdown),)),
                     points(grad_accum=3.0))  # fmt: skip
    assert steps.terms_s["accumulation"][0] == pytest.approx(2 * micro_s, abs=1e-3)


@pytest.mark.parametrize("parallelism", ["ddp", "zero1", "zero3", "manual"])
def test_parts_of_a_model_are_priced_as_each_alone(parallelism: str) -> None:
    """Stages of other sizes, on devices that collectives slow, with several micro-steps."""
    how = strategy(parallelism, cap_bytes=1, first_bytes=1, grad_clip=True)
    device = device_of_all(overlap_slowdown_frac=0.5, comm_slowdown_frac=0.25)
    jobs = [Job(model, how, (device,)) for model in (two_buckets(5.0), two_buckets(40.0),
                                                     workload([block("x", [7])]))]  # fmt: skip
    axis = points(2, grad_accum=np.array([1.0, 3.0]), micro_batch=np.array([1.0, 2.0]))
    every = evaluate_parts(jobs, axis, keep_timeline=False)
    for n, job in enumerate(jobs):
        part, alone = every.of_part(n), evaluate(job, axis)
        assert part.step_s == pytest.approx(alone.step_s, rel=1e-12)
        assert part.host_micro_s == pytest.approx(alone.host_micro_s, rel=1e-12)
        assert part.terms_s.keys() == alone.terms_s.keys()
        for term, seconds in alone.terms_s.items():
            assert part.terms_s[term] == pytest.approx(seconds, rel=1e-12)


def device_of_all(**changes: Any) -> Any:
    """A device on which everything takes time."""
    return rates(flop_per_s=2.0, bytes_per_s=50.0, update_bytes_per_s=25.0, start_s=0.125,
                 host_issue_s=0.0625, h2d_bytes_per_s=10.0, **changes)  # fmt: skip


def test_figures_of_parts_go_to_the_tasks_of_each_part() -> None:
    of_two, parts = np.array([[1.0], [2.0]]), np.array([1, 0, 1])
    assert _spread(of_two, parts).tolist() == [[2.0], [1.0], [2.0]]
    for of_all in (np.array([5.0, 6.0]), np.array([[5.0, 6.0]])):
        assert np.broadcast_to(_spread(of_all, parts), (3, 2)).tolist() == [[5.0, 6.0]] * 3


def test_terms_that_are_asked_for_are_those_of_the_whole_breakdown() -> None:
    job, at = Job(one_linear(), PLAIN, (device(1e9, 1e8),)), points(micro_batch=4.0)
    whole = evaluate(job, at).terms_s
    some = evaluate(job, at, terms=("forward", "optimizer", "no such term")).terms_s
    assert set(some) == {"forward", "optimizer"} < set(whole)
    assert {name: some[name][0] for name in some} == {name: whole[name][0] for name in some}


def test_a_host_that_issues_sums_of_gradients_has_one_launch_more_a_tensor() -> None:
    """Of two tensors, in each micro-step but a single one; 10 us a launch."""
    two = workload([block("fc", [256, 512])])
    job = Job(two, FLAT, (device(1e9, 1e8, host_issue_s=1e-5),))
    one, three = (
        float(evaluate(job, points(grad_accum=n, **ALONE)).host_micro_s[0]) for n in (1.0, 3.0)
    )
    assert three - one == pytest.approx(2 * 1e-5)


def test_layers_run_again_in_the_graph_where_their_recompute_does_not_stop_early() -> None:
    """Whole layers forward in backward; one that stops early is in the kernels of its backward."""
    layer = replace(one_linear().blocks[0], recomputable=True)
    net = workload([layer])
    stops = replace(PLAIN.program, recompute=Recompute(stops_early=True))
    phases = {}
    for name, how in {
        "none": PLAIN,
        "again": replace(PLAIN, recompute="full"),
        "early": replace(PLAIN, recompute="full", program=stops),
    }.items():
        phases[name] = program_of(net, how, 1).weights.sum(axis=0).tolist()
    assert phases == {"none": [1.0, 1.0], "again": [2.0, 1.0], "early": [1.0, 1.0]}
