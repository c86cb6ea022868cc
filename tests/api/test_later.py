"""What a prediction does at once and what it leaves until somebody asks: counts, not times."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from costs import cost_ratio

import simcore.answer.request
from simcore import api
from simcore.memory import job

TOO_LARGE: dict[str, Any] = {"model": "llama3-70b", "gpus": "1x8xH100"}
SLOW: dict[str, Any] = {"model": "gpt3-175b", "gpus": "16x8xH100", "tp": 8, "pp": 8}


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The clusters of the requests that were resolved."""
    found: list[str] = []
    read = simcore.answer.request.read_request

    def counted(model: Any, gpus: Any, **options: Any) -> Any:
        found.append(str(gpus))
        return read(model, gpus, **options)

    monkeypatch.setattr(simcore.answer.request, "read_request", counted)
    return found


@pytest.mark.parametrize("words", [TOO_LARGE, SLOW, {**SLOW, "micro_batch": "max"}])
def test_a_request_is_resolved_once(words: dict[str, Any], resolved: list[str]) -> None:
    found = api.predict(**words)
    assert found.step_time_s.value > 0.0 and found.memory.terms and found.bound_by
    assert len(resolved) == 1


def test_advice_is_found_once_when_it_is_asked_for(resolved: list[str]) -> None:
    found = api.predict(**TOO_LARGE)
    assert found.fixes
    tried = len(resolved)
    assert tried > 1
    assert not found.faster and found.advice.fixes is found.fixes and found.to_dict()["fixes"]
    assert len(resolved) == tried


def test_a_job_that_needs_no_advice_tries_nothing(resolved: list[str]) -> None:
    found = api.predict("gpt2", "8xA100", grad_accum=2)
    assert not (found.fixes or found.faster or found.uneven or found.why_none)
    assert len(resolved) == 1


def test_a_pickle_knows_the_advice() -> None:
    found = api.predict(**SLOW)
    again = pickle.loads(pickle.dumps(found))
    assert again == found and again.faster == found.faster != ()
    assert again.to_dict() == found.to_dict()


def test_the_largest_batch_is_found_in_a_few_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred micro-batches at a time: three looks are enough for a million."""
    looks: list[int] = []
    look = job.memory_over

    def counted(request: Any, micro_batch: Any, *others: Any) -> Any:
        looks.append(len(micro_batch))
        return look(request, micro_batch, *others)

    monkeypatch.setattr(job, "memory_over", counted)
    assert api.make_request("llama3-8b", "8xH100", micro_batch="max").micro_batch > 0
    assert len(looks) <= 3 and max(looks) <= 100


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({**SLOW, "grad_accum": 8}, {**SLOW, "grad_accum": 32_768}),
        ({**SLOW, "pp": 2, "grad_accum": 96}, {**SLOW, "pp": 16, "grad_accum": 96}),
    ],
)
def test_a_pipeline_costs_the_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Whatever its micro-batches and its stages."""
    ratio = cost_ratio(lambda: api.predict(**one), lambda: api.predict(**other))
    assert 0.5 < ratio < 2.0
