"""Tasks that each strategy adds to a step: what they wait for, which ranks send how much, by hand.

Three blocks in order, of 10, 20 and 4 parameters in bf16; the first two are repeated layers.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from strategies import block, strategy, workload

from simcore.step.parallel import (
    blocks_ahead,
    gathered_width,
    outer_layers_stay,
    split_experts,
    weight_bytes,
)
from simcore.step.program import FORWARD_PARTS, HOST_STRETCHES, Program
from simcore.strategy.layout import Overlap
from simcore.strategy.programs import program_named
from simcore.strategy.programs.mechanisms import TrainerLoop
from simcore.strategy.strategy import Offload, Strategy
from simcore.timing.evaluate import program_of
from simcore.workload.graph import Block, Frozen, Param, Workload
from simcore.workload.saved import Saved

A, B = (block(name, [n], recomputable=True) for name, n in (("a", 10), ("b", 20)))
MODEL = workload([A, B, block("c", [4])])
FROZEN = Frozen(name="f", resident_numel=1, ops=A.ops)
TINY: dict[str, Any] = {"cap_bytes": 1, "first_bytes": 1, "zero_numel": 1}


def how(name: str, **words: Any) -> Strategy:
    """A strategy under a program without particulars; words of its parts are given by part."""
    precision = words.pop("precision", "bf16")
    program = program_named("plain")
    parts = {k: words.pop(k) for k in ("gradients", "optimizer_state", "zero3", "fsdp", "host")
             if k in words}  # fmt: skip
    changed = {k: replace(getattr(program, k), **v) for k, v in parts.items()}
    return strategy(name, precision, program=replace(program, **changed), **{**TINY, **words})


def built(name: str, model: Workload = MODEL, **words: Any) -> Program:
    return program_of(model, how(name, **words), 1)


def waits(program: Program, name: str) -> list[set[str]]:
    """What each task of this name waits for."""
    tasks = program.graph.tasks
    return [{tasks[d].name for d in t.deps} for t in tasks if t.name == name]


def sends(program: Program) -> list[tuple[str, str, list[float], bool]]:
    """Name, ranks, bytes and whether in every micro-step, of each collective."""
    return [
        (program.graph.tasks[c.task].name, c.scope, list(c.sizes_bytes), c.every_micro_step)
        for c in program.comm
    ]


# -- stages 1 and 2, and plain data parallel -------------------------------------------------------


@pytest.mark.parametrize(("stage", "each"), [(1, False), (2, True)])
def test_gradients_are_scattered_and_parameters_gathered_after_the_update(
    stage: int, each: bool
) -> None:
    program = built(f"zero{stage}")
    assert sends(program) == [
        ("reduce-scatter bucket 0", "shard", [8.0], each),
        ("reduce-scatter bucket 1", "shard", [40.0], each),
        ("reduce-scatter bucket 2", "shard", [20.0], each),
        ("all-gather parameters", "shard", [68.0], False),
    ]
    assert waits(program, "all-gather parameters") == [{"optimizer"}]
    assert waits(program, "optimizer") == [{"backward", "reduce-scatter bucket 2"}]


def test_stage_1_may_sum_whole_gradients_over_all_ranks() -> None:
    words = {"gradients": {"zero1_all_reduces": True, "bucket_copy_bytes": 4}}
    names = [s[:3] for s in sends(built("zero1", **words))]
    assert names[:3] == [
        (f"all-reduce bucket {i}", "all", [n]) for i, n in enumerate((16.0, 80.0, 40.0))
    ]
    assert next(s[0] for s in sends(built("zero2", **words))) == "reduce-scatter bucket 0"


def test_each_shard_is_summed_up_over_the_states_replicas() -> None:
    """Two ranks share a state: halves of 8, 40 and 20 bytes, each after its reduce-scatter."""
    for name, each in (("zero1", False), ("zero2", True)):
        program = built(name, shard_ranks=2)
        replicas = [s for s in sends(program) if s[1] == "replicas"]
        assert replicas == [
            (f"all-reduce shard {i}", "replicas", [n], each) for i, n in enumerate((4, 20, 10))
        ]
        assert waits(program, "all-reduce shard 1") == [{"reduce-scatter bucket 1"}]
        assert waits(program, "optimizer") == [{"backward", "all-reduce shard 2"}]
    sharded = [s for s in sends(built("zero3", shard_ranks=2)) if s[1] == "replicas"]
    assert [s[2:] for s in sharded] == [([4.0], True), ([20.0], True), ([10.0], True)]
    assert not any(s[1] == "replicas" for s in sends(built("zero2")))


def test_forward_waits_for_the_parameters_of_its_piece() -> None:
    """Of 3 blocks each is a piece; the layers' parameters travel in 8 bits where they are so."""
    words: dict[str, Any] = {"overlap": Overlap(params=True)}
    program = built("zero1", **words)
    gathers = [s for s in sends(program) if s[0].startswith("all-gather")]
    assert gathers == [
        (f"all-gather piece {i}", "shard", [n], False) for i, n in enumerate((20.0, 40.0, 8.0))
    ]
    found = waits(program, "forward")
    assert [{w for w in each if "piece" in w} for each in found] == [
        {"all-gather piece 0"}, {"all-gather piece 1"}, {"all-gather piece 2"},
    ]  # fmt: skip
    narrow = sends(built("zero1", fp8_copies=1, **words))
    assert [s[2] for s in narrow if "piece" in s[0]] == [[10.0], [20.0], [8.0]]


def test_a_long_forward_has_no_more_pieces_than_host_tasks() -> None:
    many = workload([A, B], [0, 1] * (HOST_STRETCHES + 1))
    pieces = [s for s in sends(built("zero1", many, overlap=Overlap(params=True)))
              if "piece" in s[0]]  # fmt: skip
    # 34 blocks in pieces of 3: eleven of them and a rest of one
    assert len(pieces) == 12 and pieces[-1][2] == [40.0]


def test_what_is_updated_tensor_by_tensor_is_sent_so() -> None:
    two = workload([block("a", [10, 4]), block("b", [4])], [0, 0, 1])
    found = built("zero1", two, optimizer_state={"gathered_tensor_by_tensor": True})
    (last,) = [c for c in found.comm if c.op == "all_gather"]
    assert dict(zip(last.sizes_bytes, last.counts, strict=True)) == {20.0: 2.0, 8.0: 3.0}
    owned = built("zero1", optimizer_state={"owned_tensor_by_tensor": True})
    assert [owned.graph.tasks[c.task].name for c in owned.comm if c.op == "all_gather"] == []
    assert waits(owned, "broadcast parameters") == [{"optimizer"}]


def test_experts_travel_among_those_that_hold_them() -> None:
    """Of 20 parameters of b, 16 belong to experts."""
    routed = Block(name="b", ops=(), params=(Param("w", 4), Param("e", 16, routed=True)),
                   recomputable=True)  # fmt: skip
    model = workload([A, routed])
    ranks = {"expert_ranks": 4, "cap_bytes": 1000, "first_bytes": 1000, "zero_numel": 1000}
    assert [s[:3] for s in sends(built("ddp", model, **ranks))] == [
        ("all-reduce bucket 0", "all", [28.0]), ("all-reduce bucket 0", "experts", [32.0]),
    ]  # fmt: skip
    assert [s[:3] for s in sends(built("zero2", model, **ranks))] == [
        ("reduce-scatter bucket 0", "shard", [28.0]),
        ("reduce-scatter bucket 0", "experts", [32.0]),
        ("all-gather parameters", "shard", [28.0]), ("all-gather parameters", "experts", [32.0]),
    ]  # fmt: skip
    third = [s[:3] for s in sends(built("zero3", model, **ranks)) if s[0].endswith(" b")]
    assert third == [
        ("all-gather b", "shard", [8.0]), ("all-gather b", "experts", [32.0]),
        ("reduce-scatter b", "shard", [8.0]), ("reduce-scatter b", "experts", [32.0]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "whole", "experts", "parts"),
    [
        ({}, 10.0, 4.0, [("all", 10.0)]),
        ({"expert_ranks": 2}, 10.0, 4.0, [("all", 6.0), ("experts", 4.0)]),
        ({"expert_ranks": 2}, 10.0, 0.0, [("all", 10.0)]),
        ({"expert_ranks": 2}, 4.0, 4.0, [("experts", 4.0)]),
        ({"expert_ranks": 2, "shard_ranks": 8}, 10.0, 4.0, [("all", 10.0)]),
    ],
)
def test_parts_of_a_message(
    words: dict[str, int], whole: float, experts: float, parts: list[tuple[str, float]]
) -> None:
    assert split_experts(how("ddp", **words), "all", whole, experts) == parts


# -- stage 3 ---------------------------------------------------------------------------------------


def test_stage_3_gathers_before_each_pass_and_scatters_after() -> None:
    program = built("zero3", prefetch_blocks=1)
    assert sends(program) == [
        ("all-gather a", "shard", [20.0], True), ("all-gather b", "shard", [40.0], True),
        ("all-gather c", "shard", [8.0], True), ("all-gather b", "shard", [40.0], True),
        ("reduce-scatter c", "shard", [8.0], True), ("all-gather a", "shard", [20.0], True),
        ("reduce-scatter b", "shard", [40.0], True), ("reduce-scatter a", "shard", [20.0], True),
    ]  # fmt: skip
    assert not any(s[3] for s in sends(built("zero3", fsdp={"reduces_last_micro_step": True}))
                   if s[0].startswith("reduce"))  # fmt: skip


@pytest.mark.parametrize(
    ("prefetch", "first", "second", "third", "again"),
    [
        # none ahead: a block's gather waits for the block before it
        (0, {"earlier micro-steps"}, {"forward a"}, {"forward b"},
         {"a": {"backward b"}, "b": {"backward c"}}),
        (1, {"earlier micro-steps"}, {"earlier micro-steps"}, {"forward a"},
         {"a": {"backward c"}, "b": {"forward c"}}),
        (2, {"earlier micro-steps"}, {"earlier micro-steps"}, {"earlier micro-steps"},
         {"a": {"forward c"}, "b": {"forward b"}}),
        (9, {"earlier micro-steps"}, {"earlier micro-steps"}, {"earlier micro-steps"},
         {"a": {"forward a"}, "b": {"forward a"}}),
    ],
)  # fmt: skip
def test_what_a_gather_waits_for(
    prefetch: int, first: set[str], second: set[str], third: set[str], again: dict[str, set[str]]
) -> None:
    program = built("zero3", prefetch_blocks=prefetch)
    assert waits(program, "all-gather a") == [first, again["a"]]
    assert waits(program, "all-gather b") == [second, again["b"]]
    assert waits(program, "all-gather c") == [third]  # still there when backward begins


def test_without_overlap_each_block_waits_for_the_scatter_before_it() -> None:
    alone = built("zero3", prefetch_blocks=0, overlap=Overlap(grads=False))
    assert waits(alone, "all-gather a")[1] == {"backward b", "reduce-scatter b"}
    assert waits(alone, "optimizer") == [{"backward a", "reduce-scatter a"}]


def test_shards_on_the_host_are_fetched_before_they_are_gathered() -> None:
    program = built("zero3", offload=Offload(params="cpu"))
    named = {row: name for name, _, row in program.misc if name.startswith("fetch_block")}
    fetched = [named[row] for row in program.rows.tolist() if row in named]
    assert fetched == [f"fetch_block_{i}_s" for i in (0, 1, 2, 1, 0)]
    assert all(w == {"fetch shard"} for n in "abc" for w in waits(program, f"all-gather {n}"))
    assert not waits(built("zero3"), "fetch shard")


def test_messages_of_single_tensors() -> None:
    two = workload([block("a", [10, 4], recomputable=True), B])
    program = built("zero3", two, gather_tensors=True)
    sizes = {name: size for name, _, size, _ in sends(program)}
    assert sizes["all-gather a"] == sizes["reduce-scatter a"] == [20.0, 8.0]
    together = {name: size for name, _, size, _ in sends(built("zero3", two))}
    assert together["all-gather a"] == [28.0]


def test_tensors_that_stay_are_not_gathered() -> None:
    kept = built("zero3", zero3={"persistent_numel": 10})
    assert {name for name, *_ in sends(kept) if name.startswith("all-gather")} == {"all-gather b"}


@pytest.mark.parametrize(
    ("ahead", "prefetch", "blocks"), [(0, 1, 1), (15, 1, 1), (16, 1, 2), (99, 1, 2), (16, 3, 3)]
)
def test_blocks_gathered_ahead(ahead: int, prefetch: int, blocks: int) -> None:
    """Layers of 10 and 20, 15 in the mean: so many as hold the elements, at most the layers."""
    words: dict[str, Any] = {"fsdp": {"ahead_numel": ahead}, "prefetch_blocks": prefetch}
    assert blocks_ahead(MODEL, how("zero3", **words)) == blocks
    assert blocks_ahead(workload([block("c", [4])]), how("zero3", **words)) == prefetch


@pytest.mark.parametrize("one_unit", [False, True])
@pytest.mark.parametrize("stays", [False, True])
def test_outer_layers_stay_by_either_way(one_unit: bool, stays: bool) -> None:
    of = {"outer_layers_one_unit": one_unit, "outer_layers_stay": stays}
    assert outer_layers_stay(how("zero3", fsdp=of)) == (one_unit or stays)


def test_widths_of_parameters_in_8_bits() -> None:
    """30 parameters in layers and 4 outside them; two copies of one byte of each in layers."""
    plain, narrow = how("zero1"), how("zero1", fp8_copies=2)
    assert weight_bytes(MODEL, plain) == 2 * 34
    assert weight_bytes(MODEL, narrow) == 2 * 4 + 2 * 1 * 30
    assert weight_bytes(MODEL, how("zero1", fp8_copies=1)) == 2 * 4 + 1 * 30
    assert [gathered_width(b, narrow) for b in MODEL.blocks] == [1.0, 1.0, 2.0]
    assert [gathered_width(b, plain) for b in MODEL.blocks] == [2.0, 2.0, 2.0]


def test_weights_with_a_scale_a_block_are_gathered_in_16_bits() -> None:
    """Megatron-Core's reuse_grad_buf_for_mxfp8_param_ag: copies are made after the gather."""
    blocks = how("zero1", precision="mxfp8", fp8_copies=2)
    assert [gathered_width(b, blocks) for b in MODEL.blocks] == [2.0, 2.0, 2.0]
    assert weight_bytes(MODEL, blocks) == 2 * 4 + 2 * 1 * 30


# -- parts that all share --------------------------------------------------------------------------


def test_gradients_are_copied_into_buckets_and_out_but_for_views() -> None:
    plain, views = built("ddp"), built("ddp", views=True)
    assert waits(plain, "gradients into buckets") == [{"backward"}]
    assert waits(plain, "gradients out of buckets") == [
        {"gradients into buckets", "all-reduce bucket 2"}
    ]
    assert waits(plain, "optimizer") == [{"gradients out of buckets"}]
    assert waits(views, "optimizer") == [{"gradients into buckets", "all-reduce bucket 2"}]


def test_without_overlap_buckets_wait_for_all_of_backward() -> None:
    for name, sent in (("ddp", "all-reduce"), ("zero1", "reduce-scatter")):
        apart, alone = (built(name, overlap=Overlap(grads=g)) for g in (True, False))
        tasks = alone.graph.tasks
        last = max(i for i, t in enumerate(tasks) if t.name == "backward")
        for program, several in ((apart, True), (alone, False)):
            deps = [t.deps for t in program.graph.tasks if t.name.startswith(f"{sent} bucket")]
            assert (len(set(deps)) == 3) == several
        assert {t.deps for t in tasks if t.name.startswith(f"{sent} bucket")} == {(last,)}
        # the first part of backward has nothing beside it
        flags = [bool(apart.overlapped[apart.rows[i]]) for i, t in enumerate(apart.graph.tasks)
                 if t.name == "backward"]  # fmt: skip
        assert flags == [False, True, True]
        assert not alone.overlapped.any()


def test_forward_and_backward_have_no_more_tasks_than_they_may() -> None:
    """27 runs of blocks in tasks of four, of eight at most; 34 buckets issued three at a time."""
    for runs, tasks in ((FORWARD_PARTS, 8), (FORWARD_PARTS + 1, 5), (27, 7)):
        many = workload([A, B], [i % 2 for i in range(runs)])
        assert len(waits(built("ddp", many), "forward")) == tasks
    twice = workload([A, B], [0, 0, 1])
    program = built("ddp", twice)
    assert len(waits(program, "forward")) == 2  # a run of equal blocks is one
    forward = [w[:2].tolist() for w in program.weights if w[:2].any()]
    assert forward == [[2.0, 0.0], [0.0, 1.0]]
    long = built("ddp", workload([A, B], [0, 1] * 17))
    assert len(waits(long, "backward")) == 34
    assert len([t for t in long.graph.tasks if t.name == "issue backward"]) == 12


@pytest.mark.parametrize(
    ("words", "last"),
    [
        ({}, ["optimizer"]),
        ({"grad_clip": True}, ["gradient norm", "optimizer"]),
        ({"ema": True}, ["optimizer", "EMA"]),
        ({"optimizer_state": {"update_copies_bytes": 2}}, ["copies in update", "optimizer"]),
        ({"optimizer_state": {"update_kernels_a_tensor": 2}}, ["copies in update", "optimizer"]),
        ({"offload": Offload(optimizer="cpu"), "grad_clip": True},
         ["gradient norm", "gradients to host", "host optimizer", "parameters to device"]),
    ],
)  # fmt: skip
def test_steps_of_an_update_one_after_another(words: dict[str, Any], last: list[str]) -> None:
    tasks = built("zero1", **words).graph.tasks
    found = [t.name for t in tasks[next(i for i, t in enumerate(tasks) if t.name == last[0]) :]]
    assert found[: len(last)] == last
    named = [i for i, t in enumerate(tasks) if t.name in last]
    for before, after in pairwise(named):
        assert tasks[after].deps == (before,)


def test_blocks_on_the_host_come_while_the_step_runs_and_the_update_waits() -> None:
    program = built("zero1", offload=Offload(blocks=1))
    assert waits(program, "blocks to and from the host") == [{"copy input"}]
    assert "blocks to and from the host" in waits(program, "optimizer")[0]
    assert not waits(built("zero1"), "blocks to and from the host")


DRIVER = {"trainer_loop": TrainerLoop(micro_step=1.0, layer=0.0, adapter=0.0)}


@pytest.mark.parametrize(
    ("model", "words", "between"),
    [
        (MODEL, {}, []),
        (MODEL.replace(frozen=(FROZEN,)), {}, ["frozen networks"]),
        (MODEL, {"precision": "amp-bf16"}, ["cast weights"]),
    ],
)
def test_what_comes_before_the_first_forward(
    model: Workload, words: dict[str, Any], between: list[str]
) -> None:
    """One after another; then the earlier micro-steps, and forward."""
    program = built("zero1", model, **words)
    names = ["load batch", "copy input", *between, "earlier micro-steps", "forward"]
    tasks = [t.name for t in program.graph.tasks if not t.name.startswith("issue")]
    assert tasks[: len(names)] == names
    for before, after in pairwise(names):
        assert waits(program, after)[0] == {before}


def test_a_trainer_that_reads_each_loss_copies_its_input_after() -> None:
    names = [t.name for t in built("zero1", host=DRIVER).graph.tasks]
    assert names[:3] == ["load batch", "between micro-steps", "copy input"]
    assert waits(built("zero1", host=DRIVER), "copy input") == [{"between micro-steps"}]


def test_activations_that_leave_come_back_before_the_update() -> None:
    """Backward waits for the last copy to the host, which waits for the earlier micro-steps."""
    kept = replace(A, offloaded=Saved(low=3.0))
    for name in ("zero1", "zero3"):
        program = built(name, workload([kept, B]))
        assert waits(program, "activations to host") == [{"earlier micro-steps"}]
        assert waits(program, "activations to device") == [{"activations to host"}]
        assert "activations to device" in waits(program, "optimizer")[0]
        backward = "backward" if name == "zero1" else "backward b"
        assert "activations to host" in waits(program, backward)[0]
        assert not waits(built(name), "activations to host")
