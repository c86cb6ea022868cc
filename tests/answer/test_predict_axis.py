"""Predictions of jobs that share the configuration axis, and what is kept on it."""

from __future__ import annotations

from typing import Any

import pytest

from simcore.answer import predict as predicting
from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.answer.result import Prediction
from simcore.timing.points import Points
from simcore.timing.steps import steps_of

JOBS: tuple[dict[str, Any], ...] = (
    {"tp": 4, "pp": 4},
    {"tp": 4, "pp": 4, "recompute": "full"},
    {"tp": 2, "pp": 4, "strategy": "zero1"},
    {"strategy": "zero3"},
)


def figures(p: Prediction) -> tuple[object, ...]:
    step = p.step_time_s
    return step.value, step.low, step.high, p.time_s, p.what_if, p.memory.terms


@pytest.fixture
def axes(monkeypatch: pytest.MonkeyPatch) -> list[Points]:
    """The axes of predictions, in their order."""
    seen: list[Points] = []

    def watched(request: Any, points: Points, **how: Any) -> Any:
        seen.append(points)
        return steps_of(request, points, **how)

    monkeypatch.setattr(predicting, "steps_of", watched)
    return seen


def test_jobs_of_one_cluster_and_batch_share_an_axis_and_are_predicted_as_alone(
    axes: list[Points],
) -> None:
    requests = [
        make_request("llama3-8b", "4x8xH100", micro_batch=1, grad_accum=8, **job) for job in JOBS
    ]
    predicting._axis.cache_clear()
    together = [figures(predict(request)) for request in requests]
    assert all(axis is axes[0] for axis in axes)
    for request, found in zip(requests, together, strict=True):
        predicting._axis.cache_clear()
        assert figures(predict(request)) == found


@pytest.mark.parametrize(
    ("gpus", "other"),
    [("4x8xH100", {"grad_accum": 16}), ("4x8xH100", {"micro_batch": 2}), ("8x8xH100", {})],
)
def test_another_batch_or_cluster_has_its_own_axis(
    axes: list[Points], gpus: str, other: dict[str, Any]
) -> None:
    same: dict[str, Any] = {"micro_batch": 1, "grad_accum": 8, "tp": 4}
    predict(make_request("llama3-8b", "4x8xH100", **same))
    predict(make_request("llama3-8b", gpus, **same | other))
    assert axes[0] is not axes[1]
