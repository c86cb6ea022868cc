"""State that a rank holds, by hand: 1,000 parameters in two blocks, bf16 and Adam on 4 ranks."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from strategies import block, strategy, workload

from simcore.step.parallel import PARALLELISMS, Holdings
from simcore.strategy.precision import with_main_grads
from simcore.strategy.programs import program_named
from simcore.strategy.strategy import Offload, Strategy

MODEL = workload([block("a", [500, 100]), block("b", [400])])
#: bf16: 2 bytes of weight and of gradient, 4 of master weight and 8 of Adam's moments.
RANKS = np.array([1.0, 4.0])


def _how(name: str, precision: str = "bf16", **words: Any) -> Strategy:
    """A strategy under a program without particulars; words of its parts are given by part."""
    parts = {k: words.pop(k) for k in ("gradients", "optimizer_state", "zero3", "fsdp")
             if k in words}  # fmt: skip
    program = program_named("plain")
    changed = {k: replace(getattr(program, k), **v) for k, v in parts.items()}
    main = words.pop("main", "weights")
    how = strategy(
        name, precision, optimizer="adam", program=replace(program, **changed),
        **{"wraps_alone": False, **words},
    )  # fmt: skip
    return replace(how, precision=with_main_grads(how.precision, main))


def _held(name: str, precision: str = "bf16", **words: Any) -> dict[str, list[float]]:
    how = _how(name, precision, **words)
    held = PARALLELISMS[name].holdings(MODEL, how, RANKS)
    return {f.name: getattr(held, f.name).tolist() for f in fields(Holdings)
            if getattr(held, f.name).any()}  # fmt: skip


def test_what_is_not_named_is_zero_everywhere() -> None:
    held = Holdings.of(np.ones(3), parameters=2.0, ema=np.array([1.0, 2.0, 3.0]))
    assert held.parameters.tolist() == [2.0] * 3 and held.ema.tolist() == [1.0, 2.0, 3.0]
    assert held.nvme.tolist() == held.buckets.tolist() == [0.0] * 3


@pytest.mark.parametrize(
    ("name", "words", "held"),
    [
        ("ddp", {}, {"parameters": [2000, 2000], "gradients": [2000, 2000],
                     "optimizer_state": [12000, 12000], "buckets": [0, 2000]}),
        ("ddp", {"views": True}, {"parameters": [2000, 2000], "gradients": [2000, 0],
                     "optimizer_state": [12000, 12000], "buckets": [0, 2000]}),
        ("ddp", {"ema": True}, {"parameters": [2000, 2000], "gradients": [2000, 2000],
                     "optimizer_state": [12000, 12000], "buckets": [0, 2000], "ema": [4000, 4000]}),
        ("manual", {"views": True}, {"parameters": [2000, 2000], "gradients": [2000, 2000],
                     "optimizer_state": [12000, 12000]}),
        ("dp", {"views": True}, {"parameters": [2000, 2000], "gradients": [2000, 2000],
                     "optimizer_state": [12000, 12000], "replicas": [0, 2000]}),
        ("zero1", {}, {"parameters": [2000, 2000], "gradients": [2000, 2000],
                     "optimizer_state": [12000, 3000], "buckets": [0, 2000]}),
        ("zero1", {"zero_numel": 10}, {"parameters": [2000, 2000],
                     "gradients": [2000, 2000], "optimizer_state": [12000, 3000],
                     "buckets": [0, 20]}),
        ("zero2", {"shard_ranks": 2}, {"parameters": [2000, 2000], "gradients": [2000, 1000],
                     "optimizer_state": [12000, 6000], "buckets": [0, 2000]}),
        ("zero3", {"ema": True}, {"parameters": [2000, 500], "gradients": [2000, 500],
                     "optimizer_state": [12000, 3000], "ema": [4000, 4000]}),
    ],
)  # fmt: skip
def test_each_strategy(name: str, words: dict[str, Any], held: dict[str, list[float]]) -> None:
    assert _held(name, **words) == held


@pytest.mark.parametrize(
    ("name", "words", "term", "bytes_"),
    [
        # gradients are reduced from copies in 4 bytes beside them
        ("zero1", {"gradients": {"bucket_copy_bytes": 4}}, "buckets", [0, 6000]),
        # of blocks of 600 and 400 the larger one's flat copy
        ("zero2", {"fsdp": {"outer_layers_one_unit": True}}, "buckets", [0, 1200]),
        ("zero3", {"fsdp": {"outer_layers_one_unit": True}}, "buckets", None),
        # a flat buffer where a program keeps so many elements alive
        ("zero3", {"zero3": {"live_numel": 10}}, "buckets", [0, 2000]),
        # whole tensors: the largest has 500 elements
        ("zero1", {"optimizer_state": {"owned_tensor_by_tensor": True}}, "optimizer_state",
         [12000, 6000]),
    ],
)  # fmt: skip
def test_particulars_of_programs(
    name: str, words: dict[str, Any], term: str, bytes_: list[float] | None
) -> None:
    assert _held(name, **words).get(term) == bytes_


def test_shards_as_wide_as_the_optimizer_works() -> None:
    """FSDP's fp32 shards are the master weights: 4 bytes of each, 4 of gradient, 8 of moments."""
    assert _held("zero3", main="fp32") == {
        "parameters": [4000, 1000], "gradients": [4000, 1000], "optimizer_state": [8000, 2000],
    }  # fmt: skip


def test_a_model_that_is_wrapped_alone_has_its_buckets_there() -> None:
    assert _held("ddp", wraps_alone=True)["buckets"] == [2000, 2000]
    assert "gradients" not in _held("ddp", wraps_alone=True, views=True)


@pytest.mark.parametrize(
    ("stage", "offload", "held"),
    [
        (1, {"optimizer": "cpu"}, {"parameters": [2000, 2000], "gradients": [2000, 2000],
                                   "buckets": [0, 2000], "host": [14000, 3500]}),
        (2, {"optimizer": "cpu-far"}, {"parameters": [2000, 2000], "buckets": [0, 2000],
                                       "host": [14000, 3500]}),
        (3, {"optimizer": "nvme", "params": "cpu"}, {"host": [2000, 500], "nvme": [14000, 3500]}),
        (3, {"optimizer": "cpu", "params": "cpu"}, {"host": [16000, 4000]}),
    ],
)  # fmt: skip
def test_offloaded_state(stage: int, offload: dict[str, Any], held: dict[str, list[float]]) -> None:
    assert _held(f"zero{stage}", offload=Offload(**offload)) == held


def test_experts_are_shared_by_fewer_replicas() -> None:
    """8 ranks, 4 of which hold different experts: 600 dense by 8, 400 routed by 2."""
    first = MODEL.blocks[1]
    routed = replace(first, params=(replace(first.params[0], routed=True),))
    model = workload([MODEL.blocks[0], routed])
    held = PARALLELISMS["zero3"].holdings(model, _how("zero3"), np.array([8.0, 2.0]), 4.0)
    assert held.parameters.tolist() == [2 * (75 + 200), 2 * (300 + 400)]


def test_main_gradients_are_buckets_and_gradients_in_one() -> None:
    """4 bytes of main gradient a parameter, and no bucket beside it."""
    for name in ("ddp", "zero1"):
        held = _held(name, main="fp32", views=True)
        assert held["gradients"] == [4000, 4000] and "buckets" not in held
    narrow = {"gradients": {"ddp_buckets_of_weight_width": True}}
    assert _held("ddp", main="fp32", **narrow)["buckets"] == [0, 2000]
    both = _held("zero2", main="fp32", gradients={"narrow_beside_fp32_sums": True})
    assert both["gradients"] == [6000, 1500]
    # without main gradients there is none beside: 2 bytes of gradient
    plain = _held("zero1", gradients={"narrow_beside_fp32_sums": True})
    assert plain["optimizer_state"] == [12000, 3000] and plain["gradients"] == [2000, 2000]
    flat = _held("zero2", main="fp32", fsdp={"outer_layers_one_unit": True})
    assert flat["buckets"] == [0, 600 * 4]


def test_weights_in_8_bits_of_layers_alone() -> None:
    """A copy of one byte of each of 600 in a layer, 2 bytes of each of the other 400."""
    layer = replace(MODEL.blocks[0], recomputable=True)
    model = workload([layer, MODEL.blocks[1]])
    how = _how("zero1", fp8_copies=1)
    held = PARALLELISMS["zero1"].holdings(model, how, RANKS)
    assert held.parameters.tolist() == [600 + 800] * 2


@pytest.mark.parametrize("name", ["dp", "manual", "ddp"])
def test_two_ranks_hold_what_many_do_where_nothing_is_divided(name: str) -> None:
    for words in ({}, {"main": "fp32"}, {"views": True}):
        held = PARALLELISMS[name].holdings(MODEL, _how(name, **words), np.array([2.0, 3.0, 512.0]))
        for f in fields(Holdings):
            assert len(set(getattr(held, f.name).tolist())) == 1, (f.name, words)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_shards_halve_where_ranks_double(stage: int) -> None:
    """Two ranks hold twice as much of the optimizer's state as four; buckets are whole on both."""
    held = PARALLELISMS[f"zero{stage}"].holdings(MODEL, _how(f"zero{stage}"), np.array([2.0, 4.0]))
    assert held.optimizer_state.tolist() == [6000, 3000]
    assert held.buckets[0] == held.buckets[1]
