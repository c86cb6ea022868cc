"""Whole predictions: what must hold of any of them, and what is known of some."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from alike import one_of_each
from costs import cost_ratio
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import PARALLELISMS

from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.answer.result import Prediction
from simcore.base.errors import UsageError
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS
from simcore.memory.job import largest_batch, memory_at
from simcore.report.text import render
from simcore.request.resolved import Request
from simcore.timing.evaluate import evaluate
from simcore.timing.points import Points
from simcore.timing.steps import job_of, point_values, steps_of, values_of
from simcore.workload.models import MODELS

COMPUTE = {"forward", "backward", "frozen_networks", "accumulation"}


def ask(model: str, gpus: str, **options: Any) -> Prediction:
    return predict(make_request(model, gpus, **options))


def test_two_limits_of_the_same_length_bind_together() -> None:
    """A slow network beside a slow loader: twice of either leaves the other in the way."""
    result = ask("mnist", "1x2xA100+1x3xT4")
    alone = [w for w in result.what_if if " and " not in w.resource]
    assert result.what_if[0].gain_frac > 3 * max(w.gain_frac for w in alone)
    assert result.bound_by == "network between nodes and data loading"
    assert result.what_if[0].resource == result.bound_by
    assert result.what_if[0].gain_frac > 0.3
    assert "x2 of both" in render(result)


#: FLOP of a 3 x 3 convolution over the multiplications of Winograd's F(4 x 4, 3 x 3) (Lavin & Gray
#: 2016: 4 times fewer). MFU counts convolutions directly, so that it may exceed one.
WINOGRAD = 4.0
#: Models of ``REAL`` with 3 x 3 convolutions.
CONVOLVED = ("resnet-50", "latte-s")


def check(result: Prediction) -> None:
    """What holds of every prediction."""
    step = result.step_time_s
    assert 0 < step.low <= step.value <= step.high < math.inf
    parts = {k: v for k, v in result.time_s.items() if k not in ("compute", "communication_hidden")}
    assert all(v >= 0 and math.isfinite(v) for v in result.time_s.values())
    assert sum(parts.values()) == pytest.approx(step.value, rel=1e-6)
    assert result.time_s["compute"] == pytest.approx(sum(parts[k] for k in COMPUTE))
    for what in result.what_if:
        assert what.step_time_s <= step.value * (1 + 1e-9), what
        assert 0 <= what.gain_frac + 1e-9 < 1
    assert result.samples_per_s == pytest.approx(result.global_batch / step.value)
    assert result.iter_per_s == pytest.approx(1 / step.value)
    assert 0 < result.mfu_frac < (WINOGRAD if result.model in CONVOLVED else 1)
    assert result.speedup_vs_1gpu > 0
    assert result.scaling_efficiency_frac > 0
    if not result.strategy.startswith("zero"):  # sharded updates may gain more than the ranks
        assert result.speedup_vs_1gpu <= result.n_gpus * (1 + 1e-9)
        assert result.scaling_efficiency_frac <= 1 + 1e-9
    memory = result.memory
    assert memory.low_bytes < memory.device_bytes < memory.high_bytes
    assert sum(memory.terms.values()) == pytest.approx(memory.device_bytes)
    assert memory.allocated_bytes <= memory.reserved_bytes <= memory.device_bytes


@pytest.mark.parametrize("gpus", ["1x1xA6000ada", "1x8xA6000ada", "2x8xA6000ada"])
@pytest.mark.parametrize("strategy", PARALLELISMS)
@pytest.mark.parametrize("model", ["latte-s", "resnet-18-cifar", "gpt2"])
def test_every_strategy_on_every_shape(model: str, strategy: str, gpus: str) -> None:
    if strategy == "dp" and gpus.startswith("2"):
        with pytest.raises(UsageError, match="one node"):
            ask(model, gpus, strategy=strategy)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        check(ask(model, gpus, strategy=strategy))
        check(ask(model, gpus, strategy=strategy, grad_accum=3, precision="amp-bf16",
                  recompute="full"))  # fmt: skip


@pytest.mark.parametrize("name", GPUS.names())
def test_every_gpu_predicts_or_says_why_not(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        asked = (("gpt2", "amp-bf16"), ("resnet-50", "fp32"), ("efficientnet-b0", "amp-bf16"))
        for model, precision in asked:
            try:
                result = ask(model, f"2x2x{name}", precision=precision)
            except UsageError as err:
                assert name in str(err) or "node" in str(err)
                if "holds 1 GPU" in str(err):
                    check(ask(model, f"2x1x{name}", precision=precision))
                continue
            check(result)


@pytest.mark.parametrize("gpu", ["MI100", "MI250X-GCD", "MI300X"])
def test_fp32_on_matrix_units_is_held_against_their_own_peak(gpu: str) -> None:
    """Else products at twice the vector units' rate have an MFU above one."""
    check(ask("mpt-3b", f"8x8x{gpu}", strategy="hsdp", grad_accum=16, precision="fp32-ieee"))


def test_terms_add_up_where_a_faster_host_makes_a_slower_step() -> None:
    """Work issued earlier can hold up on a wire what the step waits for; it then gains nothing."""
    request = make_request(
        "starcoder2-3b", "128x8xA30", grad_accum=4, precision="fp8", recompute="selective",
        tp=4, cp=8, seq_len=4096,
    )  # fmt: skip
    hosts = {**values_of(request), "host": np.array([1.0, 2.0])}
    slow, fast = steps_of(request, Points.of(hosts, 2)).step_s
    assert fast > slow  # else this job is no example any more
    p = predict(request)
    host = next(w for w in p.what_if if w.resource.startswith("host"))
    assert (host.step_time_s, host.gain_frac) == (p.step_time_s.value, 0.0)
    assert p.step_time_s.value == pytest.approx(slow)
    parts = {k: v for k, v in p.time_s.items() if k not in ("compute", "communication_hidden")}
    assert sum(parts.values()) == pytest.approx(p.step_time_s.value, rel=1e-6)


REAL = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["resnet-50", "bert-base", "gpt2", "latte-s", "mnist-cnn"]),
        "strategy": st.sampled_from([p for p in PARALLELISMS if p != "dp"]),
        "gpu": st.sampled_from(["A100-SXM", "A6000ada", "RTX4090", "T4", "H100-SXM", "V100-SXM"]),
        "n_nodes": st.integers(1, 5),
        "per_node": st.integers(1, 4),
        "micro_batch": st.integers(1, 64),
        "grad_accum": st.integers(1, 4),
        "precision": st.sampled_from(["fp32", "amp-fp16", "fp16"]),
        "recompute": st.sampled_from(["none", "full"]),
    }
)


def request_of(job: dict[str, Any], **more: Any) -> Request:
    words = {k: v for k, v in job.items() if k not in ("model", "gpu", "n_nodes", "per_node")}
    gpus = f"{job['n_nodes']}x{job['per_node']}x{job['gpu']}"
    return make_request(job["model"], gpus, **words, **more)


@settings(max_examples=40, deadline=None)
@given(REAL)
def test_random_jobs_hold_together(job: dict[str, Any]) -> None:
    check(predict(request_of(job)))


@settings(max_examples=40, deadline=None)
@given(REAL, st.sampled_from(["intra", "inter", "compute", "memory", "host", "loader"]),
       st.floats(1.0, 20.0))  # fmt: skip
def test_slower_parts_never_make_a_faster_step(
    job: dict[str, Any], knob: str, factor: float
) -> None:
    request = request_of(job)
    values = point_values(
        request.cluster, request.profile, request.workload.name, request.micro_batch,
        request.grad_accum,
    )  # fmt: skip
    slowed = np.array([1.0, 1.0 / factor]) * values.get(knob, 1.0)
    steps = evaluate(job_of(request), Points.of({**values, knob: slowed}, 2))
    assert steps.step_s[1] >= steps.step_s[0] * (1 - 1e-9)


@settings(max_examples=15, deadline=None)
@given(REAL)
def test_free_wires_scale_perfectly(job: dict[str, Any]) -> None:
    """Without communication and loading, ranks do not know of each other (sharding aside)."""
    if job["strategy"] in ("zero1", "zero2", "zero3"):
        job = job | {"strategy": "ddp"}
    request = request_of(job)
    values = point_values(request.cluster, request.profile, "", request.micro_batch, 1)
    ranks = np.array([request.cluster.n_gpus * 1.0, 1.0])
    nodes = np.array([request.cluster.n_nodes * 1.0, 1.0])
    axis = Points.of({**values, "n_ranks": ranks, "n_nodes": nodes, "use_comm": 0.0,
                      "use_loader": 0.0}, 2)  # fmt: skip
    steps = evaluate(job_of(request), axis)
    assert steps.step_s[0] == pytest.approx(steps.step_s[1], rel=1e-12)


def test_one_gpu_is_its_own_yardstick() -> None:
    result = ask("latte-s", "1x1xA6000ada")
    assert result.speedup_vs_1gpu == pytest.approx(1.0, rel=1e-12)
    assert result.scaling_efficiency_frac == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize(
    ("gpus", "options"),
    [
        ("1x8xA6000ada", {}),
        ("2x8xA100-SXM", {}),
        ("1x4xT4", {"strategy": "dp"}),
        ("1x8xA6000ada", {"strategy": "zero2", "offload": "optimizer"}),
    ],
)  # fmt: skip
def test_speedup_is_the_ratio_of_two_predictions(gpus: str, options: dict[str, Any]) -> None:
    many = ask("gpt2", gpus, micro_batch=2, **options)
    alone = ask("gpt2", f"1x1x{gpus.split('x', 2)[2]}", micro_batch=2,
                node=make_request("gpt2", gpus).cluster.groups[0].node.name, **options)  # fmt: skip
    ratio = many.samples_per_s / alone.samples_per_s
    assert many.speedup_vs_1gpu == pytest.approx(ratio, rel=0.01)


# -- mixed clusters ----------------------------------------------------------------------------

MIXED = "1x2xA100+1x3xT4"


@pytest.mark.parametrize("gpus", [MIXED, "1x3xT4+1x2xA100"])
def test_mixed_cluster_names_its_slowest_class(gpus: str) -> None:
    result = ask("resnet-50", gpus)
    check(result)
    by_name = {c.gpu: c for c in result.rank_classes}
    assert {c.gpu: c.n_gpus for c in result.rank_classes} == {"A100-SXM-80GB": 2, "T4": 3}
    assert max(result.rank_classes, key=lambda c: c.compute_s).gpu == "T4"
    assert by_name["T4"].compute_s > 3 * by_name["A100-SXM-80GB"].compute_s
    # measured against the fastest: five GPUs at T4's pace are slower than one A100
    assert result.single_gpu == "A100-SXM-80GB"
    alone = ask("resnet-50", "1x1xA100")
    assert result.speedup_vs_1gpu == pytest.approx(
        result.samples_per_s / alone.samples_per_s, rel=1e-6
    )
    # everything the slowest class does is told as what it is
    assert result.time_s["offload"] == pytest.approx(0.0, abs=1e-6)
    assert result.time_s["compute"] == pytest.approx(by_name["T4"].compute_s, rel=0.15)


def test_an_uneven_split_gains_what_the_harmonic_mean_says() -> None:
    """2 ranks of a seconds and 3 of b: dealt by speed, all end after 5 / (2/a + 3/b)."""
    result = ask("resnet-50", MIXED)
    a, b = (c.compute_s for c in result.rank_classes)
    ideal = 5 / (2 / a + 3 / b)
    assert result.uneven_split_gain_frac == pytest.approx(
        (max(a, b) - ideal) / result.step_time_s.value, rel=1e-6
    )
    assert 0 < result.uneven_split_gain_frac < 1
    assert ask("resnet-50", "1x5xA6000ada").uneven_split_gain_frac == 0.0


def test_the_gain_of_an_uneven_split_does_not_fade_with_accumulation() -> None:
    """Four micro-steps of a compute-bound job gain as large a share as one."""
    one, four = (ask("resnet-50", MIXED, grad_accum=a).uneven_split_gain_frac for a in (1, 4))
    assert four >= one * 0.95


def test_uneven_nodes_of_one_type_count_each_gpu_once() -> None:
    """2 + 3 A6000ada are five GPUs of one kind, whatever node they sit in."""
    split = ask("resnet-50", "1x2xA6000ada+1x3xA6000ada", network="400 Gbit/s")
    check(split)
    assert sum(c.n_gpus for c in split.rank_classes) == 5
    together = ask("resnet-50", "1x5xA6000ada")
    assert split.mfu_frac == pytest.approx(together.mfu_frac, rel=0.1)
    assert split.uneven_split_gain_frac == pytest.approx(0.0, abs=0.02)


# -- memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "gpus", "options"),
    [
        ("latte-xl", "1x8xA6000ada", {}),
        ("latte-l", "1x8xA6000ada", {"recompute": "full"}),
        ("resnet-50", "1x1xT4", {"precision": "fp32"}),
        ("gpt2-xl", "2x8xA100", {"strategy": "zero3", "precision": "bf16"}),
        (MIXED, "", {}),
    ],
)
def test_the_largest_batch_is_the_largest(model: str, gpus: str, options: dict[str, Any]) -> None:
    if model == MIXED:
        model, gpus = "resnet-50", MIXED
    request = make_request(model, gpus, **options)
    best = largest_batch(request, 4096)
    assert best >= 1
    assert predict(replace(request, micro_batch=best)).fits
    assert not predict(replace(request, micro_batch=best + 1)).fits
    assert make_request(model, gpus, micro_batch="max", **options).micro_batch == best


def test_a_batch_of_thousands_is_found_among_a_million_all_the_same() -> None:
    """Coarsely first, then one by one: the next sample would be the first too many."""
    request = make_request("resnet-18-cifar", "1x1xH100")
    best = largest_batch(request, 10**6)
    assert best > 4096
    capacity = request.cluster.groups[0].gpu.usable_memory_bytes
    needed = memory_at(request, np.array([float(best), best + 1.0])).needed
    assert needed[0] <= capacity < needed[1]
    assert largest_batch(request, best - 3) == best - 3
    assert make_request("resnet-18-cifar", "1x1xH100", micro_batch="max").micro_batch == best


def test_the_largest_batch_that_is_accepted_is_told_where_it_fits() -> None:
    """An interaction of NCF holds some 4 kB: a million of them take a twentieth of an A100."""
    request = make_request("ncf", "1xA100", micro_batch="max")
    assert request.micro_batch == 1_000_000 and predict(request).fits
    assert request.assumptions[-1] == "micro-batch 1000000 fits: larger ones are not accepted"


def test_what_never_fits_has_no_batch() -> None:
    request = make_request("gpt2-xl", "1x1xT4", micro_batch="max")
    assert largest_batch(request, 4096) == 0
    assert request.micro_batch == 1
    assert not predict(request).fits


def test_seed_statements_on_latte_xl() -> None:
    """Does not fit on a 4090; two a GPU is the most on A6000ada; two nodes need a little more."""
    assert not ask("latte-xl", "1x8xRTX4090").fits
    assert largest_batch(make_request("latte-xl", "1x8xA6000ada"), 4096) == 2
    one, two = (ask("latte-xl", f"{n}x8xA6000ada").memory.device_bytes for n in (1, 2))
    assert one < two < 1.05 * one


# -- cost --------------------------------------------------------------------------------------


def test_a_hundred_thousand_configurations_in_one_call() -> None:
    """Arrays over the configurations, no loop in Python: asking each apart would cost 100,000."""
    n, rng = 100_000, np.random.default_rng(0)
    request = make_request("latte-xl", "4x8xA6000ada")
    values: dict[str, Any] = dict(
        point_values(request.cluster, request.profile, "latte-xl", 2.0, 1.0)
    )
    values["n_nodes"] = rng.integers(1, 64, n).astype(float)
    values["n_ranks"] = 8 * values["n_nodes"]
    values["micro_batch"] = rng.integers(1, 17, n).astype(float)
    values["inter_bw_bytes_per_s"] = rng.uniform(1e9, 1e11, n)
    axis, job = Points.of(values, n), job_of(request)
    one = axis.take(slice(0, 1))
    assert evaluate(job, axis).step_s.shape == (n,)
    ratio = cost_ratio(lambda: evaluate(job, one), lambda: evaluate(job, axis), rounds=3, calls=1)
    assert ratio < 10_000


def test_cost_does_not_grow_with_the_cluster() -> None:
    """Equal nodes are one class of ranks, however many there are."""
    few, many = (make_request("latte-xl", f"{n}x8xA6000ada") for n in (1, 10_000))
    assert cost_ratio(lambda: predict(few), lambda: predict(many), calls=4) < 2.0


def test_ten_thousand_nodes_still_answer() -> None:
    check(ask("latte-xl", "10000x8xA6000ada"))


def test_two_profiles_of_one_cluster_do_not_mix() -> None:
    """What is cached must not leak from one network to another."""
    fast = ask("bert-base", "2x2xA100-PCIE", network="200 Gbit/s")
    slow = ask("bert-base", "2x2xA100-PCIE", network="1 Gbit/s")
    again = ask("bert-base", "2x2xA100-PCIE", network="200 Gbit/s")
    assert slow.step_time_s.value > 3 * fast.step_time_s.value
    assert again.step_time_s.value == fast.step_time_s.value


def test_the_same_question_has_the_same_answer() -> None:
    first, second = (ask("latte-s", "2x4xA6000ada") for _ in range(2))
    assert first.step_time_s == second.step_time_s
    assert first.time_s == second.time_s


def test_offload_costs_time_and_frees_the_device() -> None:
    home = ask("gpt2-xl", "1x8xA6000ada", strategy="zero2", precision="bf16", micro_batch=1)
    away = {
        target: ask("gpt2-xl", "1x8xA6000ada", strategy="zero2", precision="bf16", micro_batch=1,
                    offload=f"optimizer:{target}")
        for target in ("cpu", "cpu-far", "nvme")
    }  # fmt: skip
    for result in away.values():
        check(result)
        assert result.memory.device_bytes < home.memory.device_bytes
        assert result.time_s["offload"] > 0
    times = [away[t].time_s["offload"] for t in ("cpu", "cpu-far", "nvme")]
    assert times == sorted(times)
    assert away["nvme"].memory.nvme_bytes > 0 == away["nvme"].memory.host_bytes


@pytest.mark.parametrize(("software", "moved"), [("deepspeed", 42.0), ("fsdp", 80.0)])
def test_a_library_s_update_on_the_host_makes_more_passes(software: str, moved: float) -> None:
    """A DGX H100's sockets of 307.2 GB/s serve four ranks each, at 0.8 of it."""
    found = ask("llama3-8b", "8xH100", strategy="zero3", precision="bf16", micro_batch=1,
                offload="optimizer", software=software)  # fmt: skip
    update_s = 8_030_261_248 / 8 * moved / (307.2e9 * 0.8 / 4)
    crossing_s = found.time_s["offload"] - update_s
    assert 0.0 < crossing_s < 0.25  # weights up again; gradients go down under backward


def test_offloaded_parameters_are_fetched_and_not_sent_up_again() -> None:
    """1.56 billion parameters over 16 lanes of PCIe 4, below 31.5 GB/s; FSDP's are fp32."""

    def copies(software: str, gpus: str = "1x1xA100", shard_ranks: int = 0) -> dict[str, float]:
        request = make_request(
            "gpt2-xl", gpus, strategy="zero3", precision="bf16", micro_batch=1,
            offload="optimizer+params", software=software, shard_ranks=shard_ranks,
        )  # fmt: skip
        timeline = predict(request, keep_timeline=True).timeline
        assert timeline is not None
        found: dict[str, float] = {}
        for at, task in enumerate(timeline.graph.tasks):
            seconds = float(timeline.finish_s[at, 0] - timeline.start_s[at, 0])
            found[task.name] = found.get(task.name, 0.0) + seconds
        return found

    narrow, wide = copies("deepspeed"), copies("fsdp")
    assert narrow["parameters to device"] == wide["parameters to device"] == 0
    way = 1.56e9 * 2 / 31.5e9
    assert way < narrow["gradients to host"] < 1.4 * way
    assert 2 * way < narrow["fetch shard"] < 2.8 * way  # forward, and backward
    assert wide["gradients to host"] == pytest.approx(2 * narrow["gradients to host"])
    # DeepSpeed leaves the last norm's vectors where they are
    assert wide["fetch shard"] == pytest.approx(2 * narrow["fetch shard"], rel=1e-5)
    ranks = copies("deepspeed", "1x8xA100"), copies("deepspeed", "1x8xA100", shard_ranks=2)
    for name in ("gradients to host", "fetch shard"):  # of 2 ranks each has 4 times as much
        assert ranks[1][name] == pytest.approx(4 * ranks[0][name])


def test_a_slower_peak_is_said() -> None:
    """T4 has no TF32 unit: fp32 units run the products, and the answer tells."""
    result = ask("latte-s", "1x1xT4", precision="tf32")
    assert any("no tf32 unit" in a for a in result.assumptions)
    assert result.step_time_s.value == pytest.approx(
        ask("latte-s", "1x1xT4", precision="fp32").step_time_s.value
    )


def test_a_model_file_that_counts_otherwise_than_it_states_is_said(tmp_path: Path) -> None:
    """A copied file with a size left over from another model."""
    file = tmp_path / "mine.yaml"
    text = (
        "name: mine\nfull_name: Mine\narch: transformer\nsample_unit: sequence\n"
        "config: {layers: 2, hidden: 64, heads: 4, vocab: 100, seq_len: 32, max_positions: 32}\n"
        "params: {value: STATED, source: me}\nsources: {me: counted}\n"
        "training: {micro_batch: 1, precision: fp32, optimizer: adamw, source: me}\n"
    )
    # GPT-2's layers: 12 h^2 + 13 h each, both embeddings, the last norm
    made = 2 * (12 * 64**2 + 13 * 64) + (100 + 32) * 64 + 2 * 64
    for stated in (made, made + 1):
        file.write_text(text.replace("STATED", str(stated)))
        found = make_request(file, "1xH100").assumptions
        said = [a for a in found if "states" in a]
        assert bool(said) == (stated != made)
        assert all(f"{made + 1:,} parameters, its settings make {made:,}" in a for a in said)


def test_points_follow_the_cluster() -> None:
    cluster = parse_cluster("3x4xA6000ada", network="10 GB/s")
    values = point_values(cluster, load_profile(), "", 2, 5)
    assert (values["n_ranks"], values["n_nodes"], values["gpus_per_node"]) == (12, 3, 4)
    assert 0 < values["inter_bw_bytes_per_s"] <= 10e9
    assert (values["micro_batch"], values["grad_accum"]) == (2, 5)


@pytest.mark.parametrize(
    "names", [one_of_each(), pytest.param(MODELS.names(), marks=pytest.mark.long)],
    ids=["one of each kind", "all"],
)  # fmt: skip
def test_every_model_predicts_with_its_defaults(names: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for name in names:
            check(ask(name, "1x2xA100-SXM"))


@pytest.mark.parametrize(("gpus", "own_gib"), [("1x8xRTX4090", 512), ("1x8xH100", 2048)])
def test_what_the_gpus_of_a_node_keep_is_held_against_its_host_memory(
    gpus: str, own_gib: int
) -> None:
    """ZeRO-Infinity's 16 bytes a parameter (Rajbhandari et al. 2021), all of them in the host."""
    how: dict[str, Any] = {"strategy": "zero3", "offload": "optimizer+params", "micro_batch": 1}
    memory = predict(make_request("llama3-70b", gpus, **how)).memory
    kept = 16 * 70_553_706_496
    assert memory.host_capacity_bytes == own_gib * 2**30
    lack = max(kept - memory.host_capacity_bytes, 0)
    assert memory.host_lack_bytes == pytest.approx(lack, rel=1e-3)
    assert not predict(make_request("gpt2", gpus, micro_batch=1)).memory.host_lack_bytes


@pytest.mark.parametrize(
    ("gpu", "told"), [("RTX-PRO-6000", True), ("Gaudi3", True), ("H100-SXM", False)]
)
def test_figures_of_all_gpus_are_told(gpu: str, told: bool) -> None:
    """Whose efficiencies a device takes decides how far an answer is to be trusted."""
    said = [a for a in ask("gpt2", f"1x{gpu}").assumptions if "none of its kind" in a]
    assert len(said) == told and all(a.startswith(f"{GPUS[gpu].name}: matrix") for a in said)


@pytest.mark.parametrize("seq_len", [2**13, 2**17])
def test_attention_that_runs_again_takes_what_it_took(seq_len: int) -> None:
    """Its backward runs at less than forward's rate; a forward among backward does not."""
    words: dict[str, Any] = {"strategy": "zero3", "seq_len": seq_len}
    none, selective, full = (
        ask("qwen3-0.6b", "8xRTX-PRO-6000", recompute=how, **words)
        for how in ("none", "selective", "full")
    )
    again_s = selective.time_s["backward"] - none.time_s["backward"]
    assert 0 < again_s < none.time_s["forward"]
    assert selective.step_time_s.value < full.step_time_s.value
