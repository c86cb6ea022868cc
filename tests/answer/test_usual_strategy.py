"""Which strategy a job has where nobody names one: the model's own, unless tp or pp cuts it."""

from __future__ import annotations

from typing import Any

import pytest

from simcore import api
from simcore.answer.request import make_request

MEGATRON = "zero1"


@pytest.mark.parametrize(
    ("words", "taken"),
    [
        ({}, "zero3"),
        ({"tp": 1, "pp": 1}, "zero3"),
        ({"cp": 2}, "zero3"),
        ({"tp": 2}, MEGATRON),
        ({"pp": 2}, MEGATRON),
        ({"stages": "16,16"}, MEGATRON),
        ({"tp": 2, "strategy": "zero3"}, "zero3"),
        ({"tp": 2, "strategy": "ddp"}, "ddp"),
    ],
)
def test_a_model_that_is_cut_shards_its_optimizer_alone(words: dict[str, Any], taken: str) -> None:
    request = make_request("llama3-8b", "2x8xH100", **words)
    assert request.strategy.parallelism == taken
    told = [a for a in request.assumptions if a.startswith("strategy:")]
    assert bool(told) is (taken == MEGATRON)
    assert (f"strategy {taken}" in request.defaults) is ("strategy" not in words)


def test_a_model_without_sharding_keeps_its_own() -> None:
    request = make_request("gpt2", "1x8xA100", tp=2)
    assert request.strategy.parallelism == "ddp"
    assert not [a for a in request.assumptions if a.startswith("strategy:")]


def test_points_of_a_sweep_have_each_its_own() -> None:
    found = api.sweep("llama3-8b", "2x8xH100", tp="1,2", recompute="full")
    assert {p.form.layout.tp: p.form.strategy for p in found.best} == {1: "zero3", 2: MEGATRON}
    alone = api.predict("llama3-8b", "2x8xH100", tp=2, recompute="full")
    best = next(p for p in found.best if p.form.layout.tp == 2)
    assert best.step_time_s == pytest.approx(alone.step_time_s.value, rel=1e-9)
