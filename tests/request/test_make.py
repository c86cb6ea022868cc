"""Requests that differ in recompute alone share what is looked up."""

from __future__ import annotations

from typing import Any

import pytest

from simcore.base.errors import InvalidConfig
from simcore.request.make import look_up, read_request, resolved

JOBS: list[tuple[str, str, dict[str, Any]]] = [
    ("llama3-8b", "2x8xH100", {"tp": 4, "pp": 2, "grad_accum": 8}),
    ("llama3-8b", "1x8xH100", {"strategy": "zero3", "software": "transformers"}),
    ("latte-xl", "1x8xA100", {}),
]


@pytest.mark.parametrize("mode", ["none", "selective", "full"])
@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job[0]} {job[2]}")
def test_recompute_may_be_given_later(job: tuple[str, str, dict[str, Any]], mode: str) -> None:
    model, gpus, options = job
    shared = look_up(model, gpus, **options)
    resolved(shared, recompute="none")  # changes nothing for the next one
    later, at_once = (
        resolved(shared, recompute=mode),
        read_request(model, gpus, recompute=mode, **options),
    )
    assert later == at_once
    assert later.request.options == at_once.request.options


def test_what_is_wrong_with_recompute_is_told_of_its_request_alone() -> None:
    shared = look_up("llama3-8b", "1x8xH100")
    with pytest.raises(InvalidConfig, match="recompute"):
        resolved(shared, recompute="nothing")
    assert resolved(shared, recompute="full").request.strategy.recompute == "full"
