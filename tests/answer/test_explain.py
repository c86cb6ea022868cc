"""Explanations: every term has one, and its inputs give back the value."""

from __future__ import annotations

from typing import Any

import pytest

from simcore.answer.explain import HEADLINES, TERMS, explain, find_terms
from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.answer.result import Explanation
from simcore.base.errors import UsageError

CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("latte-xl", "4x8xA6000ada", {}),
    ("bert-base", "1x2xA100+1x3xT4", {"network": "eth-10", "precision": "amp-fp16"}),
    ("gpt2", "2x8xA100", {"strategy": "zero3", "recompute": "full", "grad_accum": 2,
                          "offload": "optimizer:cpu,params:cpu"}),
    ("gpt2", "8xA100", {"strategy": "zero1", "precision": "fp16"}),
    ("mnist-cnn", "4xV100", {"strategy": "dp"}),
    ("resnet-50", "T4", {}),
]  # fmt: skip


def _all(model: str, gpus: str, options: dict[str, Any]) -> tuple[Any, dict[str, Explanation]]:
    request = make_request(model, gpus, **options)
    result = predict(request)
    return result, {term: explain(request, result, term) for term in TERMS}


@pytest.mark.parametrize(("model", "gpus", "options"), CASES)
def test_every_term_has_formula_inputs_and_source(
    model: str, gpus: str, options: dict[str, Any]
) -> None:
    result, told = _all(model, gpus, options)
    for key in result.time_s:
        assert f"time.{key}" in told
    for key in result.memory.terms:
        assert f"memory.{key}" in told
    for term, e in told.items():
        assert e.term == term and e.value and e.formula and e.source
        assert all(name and value for name, value in e.inputs), term
        assert "nan" not in f"{e.value} {e.inputs}".replace("nano", "")


@pytest.mark.parametrize("chunks", [1, 2])
def test_a_pipelines_bubble_is_explained(chunks: int) -> None:
    """Equal stages' (pp - 1)/vpp x (f + b); the last one's head makes it a little longer."""
    request = make_request("gpt3-13b", "1x4xH100", pp=4, grad_accum=8, micro_batch=4, vpp=chunks,
                           software="plain")  # fmt: skip
    result = predict(request)
    told = explain(request, result, "bubble")
    assert told.term == "time.pipeline_bubble"
    assert told.formula.startswith("equal stages: (pp - 1)")
    inputs = dict(told.inputs)
    assert inputs["stages"].startswith("4") and inputs["micro-batches"] == "8 a step"
    fast = min(s.micro_step_s for s in result.stages)
    slow = max(s.micro_step_s for s in result.stages)
    bubble = result.time_s["pipeline_bubble"]
    assert 0.9 * fast < bubble * chunks / 3 < 1.1 * slow


def test_headlines() -> None:
    assert {"step_time", "speedup", "mfu", "interval", "bound_by"} <= set(HEADLINES)


def _number(e: Explanation, name: str) -> float:
    return float(dict(e.inputs)[name].split()[0].replace(",", ""))


@pytest.mark.parametrize(("model", "gpus", "options"), CASES)
def test_inputs_give_back_the_bytes(model: str, gpus: str, options: dict[str, Any]) -> None:
    result, told = _all(model, gpus, options)
    terms = result.memory.terms
    n = _number(told["memory.parameters"], "parameters")
    assert n == result.n_params

    def product(term: str, *factors: str) -> float:
        e = told[f"memory.{term}"]
        value = 1.0
        for factor in factors:
            value *= _number(e, factor)
        return value / _number(e, "ranks that share it")

    if options.get("offload") is None:
        assert product("parameters", "parameters", "bytes each") == terms["parameters"]
        e = told["memory.optimizer_state"]
        state = n * (_number(e, "state") + _number(e, "master copy"))
        shared = state / _number(e, "ranks that share it")
        assert shared == pytest.approx(terms.get("optimizer_state", 0.0))
    frozen = told["memory.frozen_models"]
    parts = [v.replace(",", "").split(" x ") for _, v in frozen.inputs]
    total = sum(float(a) * float(b.split()[0]) for a, b in parts)
    assert total == pytest.approx(terms.get("frozen_models", 0.0), rel=1e-9)


def test_the_roofline_bounds_the_forward_time() -> None:
    """FLOP over sustained peak, and bytes over bandwidth, can each not exceed the time."""
    result, told = _all("latte-xl", "4x8xA6000ada", {})
    inputs = dict(told["time.forward"].inputs)
    flop = float(inputs["work"].split()[0]) * 1e12  # 2 clips x 3.79 TFLOP
    assert flop == pytest.approx(2 * 3.79e12, rel=0.01)
    peak = float(inputs["peak tf32"].split()[0]) * 1e12
    assert result.time_s["forward"] > flop / peak
    moved = float(inputs["work"].split(", ")[1].split()[0]) * 1e9
    assert result.time_s["forward"] > moved / 960e9


def test_a_gradient_all_reduce_sends_the_gradients() -> None:
    _, told = _all("latte-xl", "4x8xA6000ada", {})
    sent = dict(told["time.communication_hidden"].inputs)["all_reduce"]
    assert float(sent.split(", ")[1].split()[0]) == pytest.approx(4 * 673_681_568 / 1e9, rel=1e-2)


def test_what_a_layout_exchanges_is_among_the_inputs() -> None:
    """Four tensors of 1,024 tokens of 4,096 in 2 bytes each way; two sums each way of a half,
    and one of two gatherings that backward repeats."""
    words = {"strategy": "zero1", "precision": "bf16", "seq_len": 8192, "micro_batch": 1,
             "recompute": "none"}  # fmt: skip
    _, told = _all("llama2-7b", "1x8xH100", {**words, "cp": 8, "cp_comm": "ulysses"})
    inputs = dict(told["time.communication_exposed"].inputs)
    assert inputs["context ranks"] == "8 exchanges per layer and micro-batch, 8.39 MB each"
    assert "tensor ranks" not in inputs
    _, told = _all("llama2-7b", "1x8xH100", {**words, "tp": 2})
    inputs = dict(told["time.communication_exposed"].inputs)
    assert inputs["tensor ranks"] == "5 exchanges per layer and micro-batch, 67.1 MB each"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("comm", "time.communication_exposed"), ("comm. hidden", "time.communication_hidden"),
        ("communication_hidden", "time.communication_hidden"),
        ("step.comm", "time.communication_exposed"), ("memory.act", "memory.activations"),
        ("Activations", "memory.activations"), ("memory", "memory.device"),
        ("optimizer", "time.optimizer"), ("memory.optimizer", "memory.optimizer_state"),
        ("time_s.host", "time.host"), ("mfu", "mfu"), ("step", "step_time"),
        ("input copy", "time.input_copy"), ("memory_bytes.ema", "memory.ema"),
    ],
)  # fmt: skip
def test_what_people_say(said: str, meant: str) -> None:
    assert find_terms(said)[0] == meant


def test_several_matches_are_all_told() -> None:
    assert find_terms("comm") == ["time.communication_exposed", "time.communication_hidden"]


@pytest.mark.parametrize("nonsense", ["nonsense", "", "   ", "x" * 500])
def test_unknown_terms_list_the_known(nonsense: str) -> None:
    with pytest.raises(UsageError, match=r"known are step_time, .*memory\.cuda_context"):
        find_terms(nonsense)


def test_the_rate_of_elements_taken_one_by_one_is_told_where_there_are_any() -> None:
    """51 operations on 64 lanes of 108 SMs at 1.41 GHz: 191 elements a nanosecond."""
    _, told = _all("transformer-xl-base", "A100", {})
    assert dict(told["time.forward"].inputs)["indexed elements"].startswith(
        "at most 191 Gelements/s"
    )
    _, told = _all("resnet-50-xla", "A100", {})
    assert "indexed elements" not in dict(told["time.forward"].inputs)
