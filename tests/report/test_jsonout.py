"""The JSON contract: the published schema is current, and what is printed obeys it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from simcore import api
from simcore.answer.result import SCHEMA_VERSION, MeasuredRow
from simcore.base.figures import Interval
from simcore.base.lookup import Later
from simcore.report.jsonout import dumps, explanation_to_dict, to_dict
from simcore.report.schema import build
from simcore.report.terms import BUBBLE, MEMORY, TIME

PUBLISHED = Path(__file__).parents[2] / "docs" / "prediction.schema.json"
CHECK = jsonschema.Draft202012Validator(build())


def test_published_schema_is_current() -> None:
    """Else: ``python -m simcore.report.schema > docs/prediction.schema.json``."""
    assert PUBLISHED.read_text(encoding="utf-8") == dumps(build())


def test_schema_is_valid_and_closed() -> None:
    jsonschema.Draft202012Validator.check_schema(build())

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if node.get("type") == "object":
                assert node["additionalProperties"] is False
                assert all(p.get("description") for p in node["properties"].values())
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(build())


@pytest.mark.parametrize(
    ("gpus", "options"),
    [
        ("T4", {}),
        ("4x8xA6000ada", {"steps": 100}),
        ("2x8xA100", {"strategy": "zero3", "offload": "optimizer:cpu,params:cpu"}),
        ("1x2xA100+1x3xT4", {"network": "eth-10", "precision": "amp-fp16"}),
        ("8xRTX4090", {"strategy": "dp", "micro_batch": 4096}),
        ("8xRTX4090", {"strategy": "manual", "recompute": "full", "grad_accum": 2}),
    ],
)
@pytest.mark.parametrize("model", ["bert-base", "latte-l", "mnist-cnn"])
def test_real_answers_obey_it(model: str, gpus: str, options: dict[str, Any]) -> None:
    answer = api.predict(model, gpus, **options)
    data = json.loads(dumps(to_dict(answer)))
    CHECK.validate(data)
    assert data["schema_version"] == SCHEMA_VERSION
    times = dict(data["time_s"])
    assert set(times) == set(TIME) - {BUBBLE}
    assert set(data["memory_bytes"]["terms"]) <= set(MEMORY)
    times.pop("compute"), times.pop("communication_hidden")
    assert sum(times.values()) == pytest.approx(data["step_time_s"]["value"], rel=1e-6)
    memory = data["memory_bytes"]
    assert sum(memory["terms"].values()) == pytest.approx(memory["device"])
    assert data["fits"] is (memory["device"] <= memory["capacity"])


def test_an_answer_of_a_model_that_is_cut_obeys_it() -> None:
    answer = api.predict("gpt2", "2x8xA100", pp=4, grad_accum=8, precision="bf16")
    data = json.loads(dumps(to_dict(answer)))
    CHECK.validate(data)
    assert data["time_s"][BUBBLE] > 0


def test_not_a_number_becomes_null(fake: Callable) -> None:
    row = MeasuredRow(source="s", quantity="q", measured=0.0, predicted=float("nan"))
    p = fake(later_measured=Later(lambda: (row,)), run_time_s=float("inf"), run_steps=None)
    text = dumps(to_dict(p))
    data = json.loads(text, parse_constant=lambda c: pytest.fail(f"{c} in JSON"))
    assert data["run_time_s"] is None and data["measured"][0]["error_frac"] is None


def test_unknown_terms_break_the_contract(fake: Callable) -> None:
    times = {**fake().time_s, "teleport": 1.0}
    with pytest.raises(jsonschema.ValidationError):
        CHECK.validate(to_dict(fake(time_s=times)))


def test_values_are_carried_over(fake: Callable) -> None:
    data = to_dict(fake(step_time_s=Interval(2.0, 1.0, 3.0, "here")))
    assert data["step_time_s"] == {"value": 2.0, "low": 1.0, "high": 3.0, "origin": "here"}
    assert data["inputs"]["n_params"] == 673_681_568
    assert data["margin_frac"] == pytest.approx(0.25)
    assert data["measured"][0]["error_frac"] == pytest.approx(0.1)
    CHECK.validate(data)


def test_explanation() -> None:
    told = explanation_to_dict(api.explain("mnist-cnn", "T4", "memory.parameters"))
    assert set(told) == {"term", "value", "formula", "inputs", "source"}
    json.loads(dumps(told))
