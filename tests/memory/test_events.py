"""The step's allocations: their peak is the closed form's, and each comes and goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from alike import first_of_each, settings_of
from strategies import block, strategy, workload

from simcore import api
from simcore.answer.request import make_request
from simcore.base.errors import UsageError
from simcore.base.units import GIGA, MIB
from simcore.memory.allocator import replay
from simcore.memory.events import EventList, step_events
from simcore.memory.parts import CUBLAS_WORKSPACE_BYTES
from simcore.memory.terms import RankJob, memory_of
from simcore.strategy.optimizers import OPTIMIZERS
from simcore.strategy.precision import PRECISIONS, with_main_grads
from simcore.strategy.programs import program_named
from simcore.strategy.strategy import Offload, Strategy
from simcore.workload.graph import Block, Frozen, Kernel, Op, Workload
from simcore.workload.models import MODELS
from simcore.workload.saved import Saved

CLOSE_FRAC = 0.02


@lru_cache(maxsize=4)
def record(name: str) -> tuple[Any, Workload]:
    return MODELS[name], MODELS[name].build()


def peak(events: EventList, phase: str = "step 2") -> float:
    """Most bytes requested at once from the first event of ``phase`` on."""
    sizes: dict[int, int] = {}
    held, most = 0, 0
    start = next(at for at, name in events.phases if name.startswith(phase))
    for at, (number, n_bytes) in enumerate(events.events):
        if n_bytes is None:
            held -= sizes.pop(number)
        else:
            sizes[number] = n_bytes
            held += n_bytes
        if at >= start:
            most = max(most, held)
    return float(most)


def closed(model: Workload, how: Strategy, batch: float, ranks: float, accum: float = 1.0) -> Any:
    one = np.array([1.0])
    job = RankJob(
        model, how, one * batch, one * accum, one * ranks, one, nvlink=True, cuda_context_bytes=0.0
    )
    return memory_of(job)


def settings() -> Iterator[object]:
    """Every model; for the first of an architecture each strategy without and with recompute.

    The others take turns at strategies and recompute: only their blocks are new. Of those that
    differ in numbers alone all but one are for ``-m long``.
    """
    strategies = ("ddp", "zero1", "zero2", "zero3")
    modes = ("none", "full")
    firsts = {MODELS[name].arch: name for name in reversed(MODELS.names())}
    turns = []
    for at, name in enumerate(MODELS.names()):
        if name in firsts.values():
            yield from ((name, mode, strategy) for mode in modes for strategy in strategies)
        else:
            turns.append((name, modes[at // 4 % 2], strategies[at % 4]))
    yield from first_of_each(turns, kind=lambda case: settings_of(case[0]), name="-".join)


@pytest.mark.parametrize(("name", "recompute", "parallelism"), list(settings()))
def test_peak_of_the_timeline_is_the_closed_forms(
    name: str, recompute: str, parallelism: str
) -> None:
    found, model = record(name)
    t = found.training
    how = Strategy(
        parallelism=parallelism,  # type: ignore[arg-type]
        precision=PRECISIONS[t.precision],
        optimizer=OPTIMIZERS[t.optimizer],
        recompute=recompute,  # type: ignore[arg-type]
        ema=t.ema,
        step_impl=t.optimizer_impl,
    )
    events = step_events(model, how, micro_batch=t.micro_batch, n_ranks=8, steps=2)
    formula = closed(model, how, t.micro_batch, 8.0).allocated[0]
    assert peak(events, "step 1") == pytest.approx(formula, rel=CLOSE_FRAC)


@pytest.mark.parametrize("name", ["latte-s", "gpt2", "llama2-7b"])
@pytest.mark.parametrize("parallelism", ["zero2", "zero3"])
def test_the_same_where_gradients_stay_whole(name: str, parallelism: str) -> None:
    """Sums of earlier micro-steps, cut to shards as the last one's backward comes to them."""
    _, model = record(name)
    library = program_named("fsdp-no-sync")
    library = replace(library, fsdp=replace(library.fsdp, outer_layers_one_unit=False))
    how = strategy(parallelism, "bf16", program=library, step_impl="fused")
    for batch in (1, 8):
        events = step_events(model, how, micro_batch=batch, grad_accum=2, n_ranks=8, steps=2)
        formula = closed(model, how, batch, 8.0, 2.0).allocated[0]
        assert peak(events, "step 1") == pytest.approx(formula, rel=CLOSE_FRAC)


@pytest.mark.parametrize("numel", [2e8, 1e9, 1e12])
def test_the_same_where_gradients_wait_for_their_reduction(numel: float) -> None:
    """Fewer than a layer's, those of a few layers, and all of llama2-7b."""
    _, model = record("llama2-7b")
    library = program_named("megatron-lm")
    library = replace(library, fsdp=replace(library.fsdp, queued_numel=numel, ahead_numel=numel))
    how = strategy("zero3", "bf16", program=library, step_impl="fused")
    peaks = []
    for batch in (1, 4):
        events = step_events(model, how, micro_batch=batch, grad_accum=2, n_ranks=8, steps=2)
        formula = closed(model, how, batch, 8.0, 2.0).allocated[0]
        peaks.append(formula)
        assert peak(events, "step 1") == pytest.approx(formula, rel=CLOSE_FRAC)
    least = closed(model, strategy("zero3", "bf16", step_impl="fused"), 1, 8.0, 2.0).allocated[0]
    assert peaks[0] > least


@pytest.mark.parametrize(("name", "batch", "widened"), [("gpt2", 0.25, True), ("gpt2", 8.0, False),
                                                         ("llama2-7b", 0.25, False)])  # fmt: skip
def test_the_same_where_backward_s_gradients_are_added_as_fp32(
    name: str, batch: float, widened: bool
) -> None:
    """BF16_Optimizer: with little to keep, the copy of the largest gradient is the peak."""
    _, model = record(name)
    words = {"program": program_named("deepspeed"), "step_impl": "fused", "recompute": "full"}
    how = strategy("zero1", "bf16", **words)
    how = replace(how, precision=with_main_grads(how.precision, "fp32"))
    found = closed(model, how, batch, 8.0, 2.0)
    events = step_events(model, how, micro_batch=batch, grad_accum=2, n_ranks=8, steps=2)
    assert peak(events, "step 1") == pytest.approx(found.allocated[0], rel=CLOSE_FRAC)
    copy = 4.0 * max(q.numel for b in model.blocks for q in b.params)
    assert (found.terms["working_set"][0] == copy) == widened
    # no block that layers leave free holds the copy
    assert found.cached[0] >= found.allocated[0] + copy * (not widened)


@pytest.mark.parametrize("name", ["latte-s", "gpt2", "resnet-50", "bert-base"])
@pytest.mark.parametrize("words", [{"views": True}, {"step_impl": "fused"}, {"ema": True}])
def test_the_same_for_other_settings(name: str, words: dict[str, Any]) -> None:
    _, model = record(name)
    how = strategy("ddp", "amp-bf16", **words)
    for batch, accum in ((1, 1), (16, 1), (2, 4)):
        events = step_events(model, how, micro_batch=batch, grad_accum=accum, n_ranks=8)
        formula = closed(model, how, batch, 8.0, accum).allocated[0]
        assert peak(events) == pytest.approx(formula, rel=CLOSE_FRAC)


@pytest.mark.parametrize("name", ["gpt2", "bert-base"])
def test_fp32_copies_of_gradients_stand_beside_everything_else(name: str) -> None:
    """One sample and full recompute: the update is the fullest moment, 22 bytes a parameter with
    buckets (2 + 2 + 2 + 12 and the copies' 4)."""
    _, model = record(name)
    how = strategy("ddp", "fp16", step_impl="fused", recompute="full")
    formula = closed(model, how, 1, 8.0)
    assert formula.moment[0] == 2
    state = 22.0 * model.trainable_numel
    assert formula.allocated[0] == pytest.approx(state, rel=CLOSE_FRAC)
    events = step_events(model, how, micro_batch=1, n_ranks=8)
    assert peak(events) == pytest.approx(state, rel=CLOSE_FRAC)


@pytest.mark.parametrize("ranks", [1, 8])
def test_offloaded_parameters_are_fetched_block_by_block(ranks: int) -> None:
    _, model = record("gpt2")
    how = strategy("zero3", "bf16", offload=Offload(optimizer="cpu", params="cpu"))
    events = step_events(model, how, micro_batch=4, n_ranks=ranks)
    formula = closed(model, how, 4, float(ranks))
    assert formula.terms["gathered_parameters"][0] > 0
    assert peak(events) == pytest.approx(formula.allocated[0], rel=CLOSE_FRAC)


@pytest.mark.parametrize("quantised", ["none", "nf4"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_memory_over_the_step_has_a_sharded_base(quantised: str, recompute: str) -> None:
    model = MODELS["llama3.2-1b"].build(lora_rank=8, quantised_base=quantised)
    how = strategy("zero3", "bf16", recompute=recompute)
    events = step_events(model, how, micro_batch=1, n_ranks=8)
    assert peak(events) == pytest.approx(closed(model, how, 1, 8.0).allocated[0], rel=CLOSE_FRAC)


def tiny() -> Workload:
    """Two blocks of 1000 and 3000 fp32 parameters; 4 and 8 MB saved, 2 and 6 MB of work."""

    def make(name: str, numel: int, keep: float, busy: float) -> Block:
        op = Op(
            name="op",
            fwd=(Kernel(kind="gemm"),),
            bwd=(Kernel(kind="gemm", low=busy / 4),),
            saved=Saved(low=keep / 4),
        )
        return Block(name=name, ops=(op,), params=block(name, [numel]).params)

    return workload([make("first", 1000, 4e6, 2e6), make("second", 3000, 8e6, 6e6)])


def test_a_step_by_hand() -> None:
    """State 4000 x (4 + 8 + 4); at the peak 12 MB saved and 6 of work, no gradient yet."""
    events = step_events(tiny(), strategy(), micro_batch=1)
    assert peak(events) == 4000 * 16 + 18e6 + CUBLAS_WORKSPACE_BYTES
    terms = [w.term for w in events.what]
    assert terms.count("parameters") == 2
    assert terms.count("optimizer_state") == 4  # momentum and variance of each
    assert terms.count("gradients") == 2 * 3
    assert terms.count("activations") == 2 * 3
    assert [name for _, name in events.phases][1:5] == [
        "step 0 frozen networks", "step 0 forward", "step 0 backward", "step 0 update"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("precision", "optimizer", "pieces"),
    [
        ("fp32", "adamw", [4.0, 4.0]), ("bf16", "adamw", [4.0, 4.0, 4.0]),  # the masters first
        ("fp32", "sgd", [4.0]), ("bf16", "sgd", [4.0, 4.0]), ("bf16", "sgd-plain", [4.0]),
        ("fp32", "sgd-plain", []),
    ],
)  # fmt: skip
def test_state_is_made_tensor_by_tensor_in_the_first_update(
    precision: str, optimizer: str, pieces: list[float]
) -> None:
    """Of 1,000 and 3,000 parameters, bytes a parameter of each piece."""
    events = step_events(tiny(), strategy("ddp", precision, optimizer=optimizer), micro_batch=1)
    made = [
        n for number, n in events.events
        if n is not None and n > 0 and events.what[number].term == "optimizer_state"
    ]  # fmt: skip
    assert sorted(made) == sorted(numel * width for numel in (1000, 3000) for width in pieces)


def test_only_state_outlives_a_step() -> None:
    events = step_events(tiny(), strategy(), micro_batch=1)
    left = {number for number, n in events.events if n is not None}
    left -= {number for number, n in events.events if n is None}
    assert {events.what[n].term for n in left} == {
        "parameters", "optimizer_state", "gradient_buckets", "workspace"
    }  # fmt: skip


def test_steps_after_the_warm_up_are_alike() -> None:
    _, model = record("gpt2")
    events = step_events(model, strategy("ddp", "amp-bf16"), micro_batch=2)
    assert peak(events, "step 1") == peak(events, "step 2")
    starts = [at for at, name in events.phases if name.endswith("frozen networks")]
    assert starts[2] - starts[1] == len(events.events) - starts[2]


def test_gradients_as_bucket_views_are_there_once() -> None:
    own, views = (closed(tiny(), strategy(views=v), 0.0, 2.0).terms for v in (False, True))
    assert (own["gradients"][0], own["gradient_buckets"][0]) == (16_000.0, 16_000.0)
    assert (views["gradients"][0], views["gradient_buckets"][0]) == (0.0, 16_000.0)
    manual = closed(tiny(), strategy("manual", views=True), 0.0, 2.0).terms
    assert manual["gradients"][0] == 16_000.0  # no buckets, nothing to be a view of


def test_logits_are_copied_to_fp32_only_while_the_loss_runs() -> None:
    """GPT-2 under autocast: 2 bytes a logit stay, 4 of the copy do not, 4 of log-softmax do."""
    _, model = record("gpt2")
    events = step_events(model, strategy("ddp", "amp-bf16"), micro_batch=4)
    logits = 4 * 1024 * 50257
    head = [
        (events.what[number], n_bytes)
        for number, n_bytes in events.events
        if n_bytes is not None and events.what[number].module == "head" and n_bytes >= 2 * logits
    ]
    forward = [(w.op, w.term, n // logits) for w, n in head if "backward" not in w.op][:3]
    assert ("loss.logits", "activations", 2) in forward or ("head", "activations", 2) in forward
    assert ("loss.logits", "working_set", 4) in forward
    assert ("loss", "activations", 4) in forward


def test_frozen_networks_come_and_go_before_forward() -> None:
    frozen = Frozen(name="vae", resident_numel=1000, ops=(), transient_low=1e7)
    events = step_events(tiny().replace(frozen=(frozen,)), strategy(), micro_batch=1)
    assert peak(events) == pytest.approx(4000 * 16 + 4000 + 4e7 + CUBLAS_WORKSPACE_BYTES, rel=1e-6)
    assert "frozen_models" in {w.term for w in events.what}


def test_sharded_parameters_are_gathered_block_by_block() -> None:
    """ZeRO-3: at most two blocks of parameters at once, and the gradients of one."""
    model = workload([block("layer", [1_000_000])], [0] * 6)
    events = step_events(model, strategy("zero3"), micro_batch=1, n_ranks=4)
    held, most = 0, 0
    sizes: dict[int, int] = {}
    for number, n_bytes in events.events:
        if events.what[number].term == "gathered_parameters":
            held += sizes.setdefault(number, n_bytes or 0) if n_bytes else -sizes[number]
            most = max(most, held)
    assert most == 3 * 4e6
    assert held == 0


# -- through the allocator ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "resnet-50", "bert-base", "latte-l", "vit-b-16"])
def test_reserved_holds_what_the_closed_form_asks_for(name: str) -> None:
    """The closed form is what a cache without holes would take: blocks, not segments.

    What holes add is for the replay to say: 3 to 20 % in these nets.
    """
    plain = api.memory_timeline(name, "1x8xA100-SXM-80GB")
    memory = api.predict(name, "1x8xA100-SXM-80GB").memory
    assert plain.peak_allocated_bytes == pytest.approx(memory.reserved_bytes, rel=0.03)
    assert 1.02 < plain.peak_reserved_bytes / plain.peak_allocated_bytes < 1.2
    grown = api.memory_timeline(name, "1x8xA100-SXM-80GB", expandable_segments=True)
    same = api.memory_timeline(name, "1x8xA100-SXM-80GB", growing_segments="on")
    assert (same.reserved == grown.reserved).all()
    assert grown.peak_allocated_bytes <= plain.peak_allocated_bytes
    assert plain.outside_bytes == pytest.approx(memory.device_bytes - memory.reserved_bytes)


def test_published_limits_of_latte() -> None:
    """The largest XL batch on 48 GB is 2, and 24 GB hold none (measured, validate/tables)."""
    runs = {
        (gpu, batch): api.memory_timeline("latte-xl", f"1x8x{gpu}", micro_batch=batch)
        for gpu, batch in (("A6000ada", 2), ("A6000ada", 3), ("RTX4090", 1))
    }
    assert {k: t.fits for k, t in runs.items()} == {
        ("A6000ada", 2): True, ("A6000ada", 3): False, ("RTX4090", 1): False
    }  # fmt: skip
    largest = runs["A6000ada", 2]
    assert (largest.peak_reserved_bytes + largest.outside_bytes) / GIGA == pytest.approx(
        37.79, rel=0.07
    )


def test_a_failing_step_says_where() -> None:
    timeline = api.memory_timeline("latte-xl", "1x8xRTX4090", micro_batch=1)
    at = timeline.replay.failed_at
    assert at is not None
    assert timeline.events.events[at][1] is not None
    assert len(timeline.reserved) == at - timeline.start
    assert timeline.replay.n_retries >= 1


def test_terms_of_a_timeline_add_up_to_what_is_live() -> None:
    timeline = api.memory_timeline("bert-base", "1x8xA100-SXM-80GB")
    total = sum(timeline.terms.values())
    live = timeline.replay.requested[timeline.start :]
    np.testing.assert_allclose(total, live)
    assert (timeline.allocated >= live).all()
    assert [name for _, name in timeline.phases] == [
        "frozen networks", "forward", "backward", "update"
    ]  # fmt: skip
    with pytest.raises(UsageError, match="did you mean"):
        api.memory_timeline("bert-bas", "1x8xA100-SXM-80GB")


def test_a_divided_model_is_refused() -> None:
    with pytest.raises(UsageError, match="data parallelism only"):
        api.memory_timeline("gpt2", "1x8xA100-SXM-80GB", tp=2)


@pytest.mark.parametrize(
    ("gpu", "mib"),
    [("A100-SXM-80GB", 16.25), ("H100-SXM-80GB", 64), ("B200", 64), ("V100-SXM2-32GB", 16.25)],
)
def test_workspace_of_two_handles(gpu: str, mib: float) -> None:
    """CublasHandlePool.cpp: 8.125 MiB a handle, 32 MiB from Hopper on; two threads use one."""
    memory = api.predict("mnist-cnn", f"1x1x{gpu}").memory
    assert memory.terms["workspace"] == mib * MIB
    timeline = api.memory_timeline("mnist-cnn", f"1x1x{gpu}")
    assert timeline.terms["workspace"][-1] == mib * MIB


def test_where_a_block_lies_depends_on_the_warm_up() -> None:
    """The optimizer's state lands among freed activations; the second step finds holes."""
    _, model = record("gpt2")
    events = step_events(model, strategy("ddp", "amp-bf16"), micro_batch=8)
    played = replay(events.events)
    second = next(at for at, name in events.phases if name == "step 1 frozen networks")
    assert played.reserved[second - 1] < played.peak_reserved_bytes
    assert played.reserved[-1] % (2 * MIB) == 0


def test_buckets_of_one_element_are_no_more_than_a_model_has_tensors() -> None:
    """Each bucket of DDP holds at least one tensor: ResNet-50's were 25,557,032 of four bytes."""
    how = make_request("resnet-50", "1x2xT4", bucket_numel=1)
    events = step_events(how.workload, how.strategy, micro_batch=1, grad_accum=1, n_ranks=2)
    buckets = {i for i, a in enumerate(events.what) if a.term == "gradient_buckets"}
    held = closed(how.workload, how.strategy, 1.0, 2.0).terms["gradient_buckets"][0]
    found = sum(n for i, n in events.events if n is not None and i in buckets)
    assert len(buckets) <= 10_001 and found == pytest.approx(held, rel=1e-3)


def _buckets(how: Strategy) -> list[int]:
    """Bytes of each gradient bucket of a model of 60 MB of fp32 gradients."""
    events = step_events(
        workload([block("x", [3_000_000] * 5)]), how, micro_batch=1, n_ranks=8, steps=1
    )
    sizes = dict(e for e in events.events if e[1] is not None)
    return [sizes[i] for i, a in enumerate(events.what) if a.term == "gradient_buckets"]  # type: ignore[misc]


def test_ddp_has_buckets_of_25_mb_and_zero_one_buffer() -> None:
    """torch's bucket_cap_mb; DeepSpeed's buckets are one flat buffer each (zero/stage_1_and_2)."""
    assert _buckets(strategy("ddp", "fp32")) == [
        25 * int(MIB),
        25 * int(MIB),
        60_000_000 - 50 * int(MIB),
    ]
    assert len(_buckets(strategy("zero1", "fp32"))) == 1


def test_an_allocation_of_less_than_half_a_byte_is_none() -> None:
    events = EventList()
    assert [events.alloc(size, "activations", "x") for size in (0.4, 1.0, 2.0)] == [-1, 0, 1]
    assert events.events == [(0, 1), (1, 2)]
