"""Unequal stages in the engine: against every cut there is, and against what they are made of."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from simcore import api
from simcore.answer.request import make_request
from simcore.answer.stages import layer_costs, with_balanced_stages, with_stages
from simcore.base.errors import InvalidConfig
from simcore.memory.job import memory_over
from simcore.request.resolved import Request
from simcore.timing.exchanges import data_points, exchanges_s, exposed
from simcore.timing.points import Points
from simcore.timing.steps import job_of, steps_of, values_of
from simcore.workload.graph import Workload
from simcore.workload.models import ModelRecord
from simcore.workload.resolve import resolve_model

BASE: dict[str, Any] = {"precision": "bf16", "strategy": "zero1", "micro_batch": 1,
                        "grad_accum": 16}  # fmt: skip


def short(layers: int = 8, name: str = "gpt2-medium", **config: Any) -> ModelRecord:
    """A model of few layers, so that every cut can be tried."""
    known = resolve_model(name)
    assert isinstance(known, ModelRecord)
    return known.model_copy(update={"config": {**known.config, "layers": layers, **config}})


def every_cut(n_layers: int, n_stages: int) -> list[tuple[int, ...]]:
    marks = combinations(range(1, n_layers), n_stages - 1)
    return [tuple(b - a for a, b in zip((0, *m), (*m, n_layers), strict=True)) for m in marks]


def micro_steps_s(request: Request) -> list[float]:
    """Of every stage, as the engine has them."""
    steps = steps_of(request, Points.of(values_of(request), 1))
    placed = request.placed
    assert placed is not None and steps.micro_steps_s is not None
    return [float(steps.micro_steps_s[part][0]) for part, n in placed.runs for _ in range(n)]


def needed_bytes(request: Request) -> float:
    cluster = request.cluster
    over = (request.micro_batch, request.grad_accum, cluster.n_gpus, cluster.n_nodes)
    return max(
        float(m.needed[0]) for m in memory_over(request, *(np.array([float(v)]) for v in over))
    )


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("gpt2-medium", {}),
        ("gpt2-medium", {"recompute": "full", "micro_batch": 4}),
        ("llama3-8b", {"tp": 2, "recompute": "selective", "overlap": "grads,tensor"}),
        ("mixtral-8x7b", {"ep": 2, "recompute": "full"}),
    ],
)
def test_what_layers_cost_is_what_the_engine_prices(model: str, words: dict[str, Any]) -> None:
    """The sum over a stage's layers is the engine's micro-step of that stage."""
    request = make_request(short(12, model), "1x8xA100", pp=4, **{**BASE, **words})
    placed = request.placed
    assert placed is not None
    costs = layer_costs(request)
    points = Points.of(values_of(request), 1)
    transfer = exposed(
        {k: v for k, v in exchanges_s(points, placed, 3).items() if k == "pipeline transfer"},
        placed, np.ones(1), np.zeros(1),
    )["pipeline transfer"][0]  # fmt: skip
    assert len(data_points(points, placed)) == 1
    assert job_of(request).classes[0].overlap_slowdown_frac >= 0
    for s, micro in enumerate(micro_steps_s(request)):
        assert costs.stage_s(3 * s, 3 * s + 3) + transfer == pytest.approx(micro, rel=2e-3)


@pytest.mark.parametrize(
    ("model", "n_stages", "words"),
    [
        (short(8), 4, {}),
        (short(9), 3, {"micro_batch": 4, "recompute": "full"}),
        (short(7, "llama3-8b", vocab=256_000), 4, {"strategy": "ddp"}),
        (short(6, vocab=64), 4, {}),
        (short(8, "mixtral-8x7b"), 2, {"ep": 2, "recompute": "full"}),
    ],
)
def test_the_best_cut_of_all(model: ModelRecord, n_stages: int, words: dict[str, Any]) -> None:
    """By the engine: the slowest stage is the least slow of all cuts, the step within 1 %."""
    gpus = f"1x{n_stages * words.get('ep', 1)}xH200"
    request = make_request(model, gpus, pp=n_stages, **{**BASE, **words})
    even = request.placed
    assert even is not None
    found = with_balanced_stages(request)
    assert found.placed is not None
    n_layers = sum(s.n_layers for s in even.stages)
    cuts = [with_stages(request, sizes) for sizes in every_cut(n_layers, n_stages)]
    least = min(max(micro_steps_s(c)) for c in cuts)
    assert max(micro_steps_s(found)) == pytest.approx(least, rel=2e-3)

    def step(r: Request) -> float:
        return float(steps_of(r, Points.of(values_of(r), 1)).step_s[0])

    assert step(found) <= min(map(step, cuts)) * 1.01
    assert step(found) <= step(request) * (1 + 1e-12), "never slower than the even cut"


def test_memory_decides_where_it_is_short() -> None:
    """First stages hold the most micro-batches: with little memory they get fewer layers."""
    request = make_request(short(12, "llama3-8b"), "1x4xH100", pp=4, **{**BASE, "micro_batch": 2})
    free = with_balanced_stages(request)
    assert free.placed is not None
    n_layers = 12
    sizes = {s: needed_bytes(with_stages(request, s)) for s in every_cut(n_layers, 4)}
    whole = needed_bytes(free)
    room = sorted(sizes.values())[len(sizes) // 50]
    assert room < whole, "the case does not bind"
    gpu = request.cluster.groups[0].gpu
    small = gpu.model_copy(
        update={"memory_cuda": gpu.memory_size.model_copy(update={"value": room * 1.001})}
    )
    group = replace(request.cluster.groups[0], gpu=small)
    tight = replace(request, cluster=replace(request.cluster, groups=(group,)))
    assert tight.cluster.groups[0].gpu.usable_memory_bytes == pytest.approx(room * 1.001)
    found = with_balanced_stages(tight)
    assert found.placed is not None
    assert needed_bytes(found) <= room * 1.001
    fitting = [s for s, held in sizes.items() if held <= room * 1.001]
    assert fitting
    least = min(max(micro_steps_s(with_stages(request, s))) for s in fitting)
    assert max(micro_steps_s(found)) == pytest.approx(least, rel=2e-3)
    layers = [s.n_layers for s in found.placed.stages]
    assert layers[0] < layers[2]


def test_no_cut_fits_is_told() -> None:
    found = api.predict("llama3-70b", "1x8xT4", pp=8, stages="auto", precision="fp16",
                        strategy="ddp", grad_accum=8)  # fmt: skip
    assert not found.fits
    assert any("no division of the layers into stages fits" in a for a in found.assumptions)


def test_a_cut_of_equal_stages_is_the_even_one() -> None:
    plain = api.predict("llama3-8b", "1x8xH100", pp=4, tp=2, **BASE)
    told = api.predict("llama3-8b", "1x8xH100", stages="4x8", tp=2, **BASE)
    assert told.step_time_s == plain.step_time_s
    assert told.memory == plain.memory
    assert told.layout == "tp2 pp4 stages 4x8"


def test_embedding_and_head_stay_on_the_ends() -> None:
    """Whatever the cut: parts together are the model, ends hold what belongs to them."""
    request = make_request("llama3-8b", "1x8xH100", stages="5,11,9,7", tp=2, **BASE)
    placed = request.placed
    assert placed is not None
    parts: list[Workload] = [s.workload for s in placed.stages]
    assert sum(p.trainable_numel for p in parts) == placed.part.trainable_numel
    assert sum(p.forward_flop for p in parts) == pytest.approx(placed.part.forward_flop)
    layer = next(b.numel for b in placed.part.blocks if b.recomputable)
    extra = [
        p.trainable_numel - s.n_layers * layer for p, s in zip(parts, placed.stages, strict=True)
    ]
    assert extra[0] == pytest.approx(128_256 * 4096 / 2), "half of the embedding"
    assert extra[1] == extra[2] == 0
    assert extra[3] == pytest.approx(128_256 * 4096 / 2 + 4096), "half of the head, and its norm"


def test_a_layer_moved_to_the_slowest_stage_slows_the_step_by_its_micro_steps() -> None:
    """M more micro-steps of one layer, less what it waits: the slowest stage rules."""
    words = {**BASE, "grad_accum": 64, "overlap": "none"}
    model = short(16, vocab=64)
    steps = [api.predict(model, "1x4xA100", stages=s, **words) for s in ("4x4", "4,5,4,3")]
    micro = [max(s.micro_step_s for s in p.stages) for p in steps]
    more = steps[1].step_time_s.value - steps[0].step_time_s.value
    assert more == pytest.approx(64 * (micro[1] - micro[0]), rel=0.1)


def test_stages_are_told_with_time_and_memory() -> None:
    found = api.predict("llama3-8b", "1x8xH100", stages="7,9,9,7", tp=2, **BASE)
    assert [(s.first, s.count, s.layers) for s in found.stages] == [(0, 1, 7), (1, 2, 9), (3, 1, 7)]
    assert max(s.memory_bytes for s in found.stages) == pytest.approx(found.memory.device_bytes)
    assert found.stages[1].micro_step_s > found.stages[0].micro_step_s
    assert api.predict("llama3-8b", "1x8xH100", tp=8, **BASE).stages == ()


def test_a_pipeline_of_torch_s_holds_buffers_of_each_micro_batch() -> None:
    """Until May 2025 of outputs and of their gradients, then of gradients alone: as large as a
    layer's output each, 8,192 x 4,096 in 16 bits over two tensor ranks, for four micro-batches."""

    def held(software: str) -> float:
        cut = {"stages": "14,6,6,6", "tp": 2, "pp": 4}
        found = api.predict("llama3-8b", "1x8xH100", software=software, **BASE, **cut)
        return found.memory.terms["activations"]

    before, after = held("torchtitan@2025-06"), held("torchtitan@2025")
    assert before - after == pytest.approx(4 * 8192 * 4096 * 2 / 2)


def test_a_library_cuts_as_it_does() -> None:
    """scaling fills stages up to 5.1 layers: embedding and head are 4.1 of 12 x 1,024 squared."""

    def layers(**words: Any) -> list[int]:
        placed = make_request(short(12), "4xA100-80GB", pp=4, **BASE, **words).placed
        assert placed is not None
        return [stage.n_layers for stage in placed.stages]

    assert layers() == [3, 3, 3, 3]
    assert layers(software="scaling") == [1, 5, 5, 1]
    assert layers(software="scaling", stages="3,4,3,2") == [3, 4, 3, 2]
    assert layers(software="deepspeed-2022") == [3, 3, 3, 3]
    # nanotron: a layer of 1,024 is 16 x 1,024 squared, the head 50,257 x 1,024, 3.07 of them; a
    # stage ends with the layer that takes it beyond a quarter, 6.77, of 27.07
    placed = make_request(short(24), "4xA100-80GB", pp=4, **BASE, software="nanotron").placed
    assert placed is not None
    assert [stage.n_layers for stage in placed.stages] == [7, 7, 7, 3]
    with pytest.raises(InvalidConfig, match="leave stage 3 without a layer"):
        make_request(short(5), "4xA100-80GB", pp=4, **BASE, software="scaling")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"stages": "8,8,8,9"}, ["have 33 layers, not the model's 32"]),
        ({"stages": "8,8,8", "pp": 4}, ["are 3, not pp=4", "have 24 layers"]),
        ({"stages": "8,8,8,8", "pp": 1}, ["need pp above 1"]),
        ({"stages": "auto"}, ["stages auto need pp above 1"]),
        ({"stages": "auto", "pp": 4, "micro_batch": "max"}, ["not both"]),
        ({"stages": "8;8"}, ["is no count of layers"]),
        ({"stages": "9,rest,9", "pp": 4, "vpp": 8}, ["less than its 8 chunks"]),
    ],
)
def test_every_rule_at_once(words: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(InvalidConfig) as caught:
        api.predict("llama3-8b", "1x8xH100", **{**BASE, **words})
    for part in said:
        assert any(part in told for told in caught.value.violations), caught.value.violations


def test_a_cut_that_makes_it_fit_is_named() -> None:
    words = {"tp": 4, "pp": 4, "strategy": "zero1", "micro_batch": 1, "global_batch": 128,
             "recompute": "selective"}  # fmt: skip
    found = api.predict("llama3-70b", "8x8xH100", **words)
    assert not found.fits
    (fix,) = [f for f in found.fixes if f.startswith("stages ")]
    cut = api.predict("llama3-70b", "8x8xH100", **words, stages="auto")
    assert cut.fits
    assert fix == f"stages auto ({cut.samples_per_s:.3g}/s)"
