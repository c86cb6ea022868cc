"""Jobs at the edge of memory: a replay of the allocator tells, and only where holes decide."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.memory import fits as edge
from simcore.memory.fits import largest_batch, settled
from simcore.memory.job import fullest, fullest_batch, memory_result
from simcore.memory.over_time import memory_timeline
from simcore.memory.result import MemoryResult
from simcore.request.resolved import Request

EDGE: list[tuple[str, str, dict[str, Any]]] = [
    ("gpt2-xl", "1x8xA100", {"strategy": "zero1", "precision": "bf16"}),
    ("vit-l-16", "1x1xT4", {}),
    ("bert-large", "1x8xT4", {"precision": "amp-fp16"}),
]


def at(request: Request, share: float) -> tuple[MemoryResult, MemoryResult]:
    """The formula's answer and the settled one, of a device filled so far by its tensors."""
    found = memory_result(request)
    small = replace(found, capacity_bytes=found.device_bytes / share)
    return small, settled(request, small)


@pytest.mark.parametrize(("model", "gpus", "options"), EDGE)
def test_the_answer_is_that_of_the_replay(model: str, gpus: str, options: dict[str, Any]) -> None:
    """Held against the timeline of memory, which replays by itself."""
    for batch in range(1, 81):
        request = make_request(model, gpus, micro_batch=batch, **options)
        found = predict(request).memory
        if found.device_bytes > found.capacity_bytes:
            break
        if found.needed_bytes < 0.9 * found.capacity_bytes:
            continue
        assert found.fits == memory_timeline(request).fits, batch
    assert 2 < batch < 80


@pytest.mark.parametrize("shares", [None, "3:1", "1:3"])
def test_the_batch_replayed_is_that_of_the_fullest_rank(shares: str | None) -> None:
    request = make_request("resnet-50", "1x2xA100+1x2xT4", micro_batch=32, shares=shares)
    assert fullest_batch(request) == fullest(request)[2]
    assert (fullest_batch(request) == 32) == (shares is None)


@pytest.mark.parametrize(("model", "gpus", "options"), EDGE)
def test_what_is_needed_agrees_with_the_verdict(
    model: str, gpus: str, options: dict[str, Any]
) -> None:
    request = make_request(model, gpus, micro_batch=8, **options)
    verdicts = []
    for share in (0.5, 0.9, 0.94, 0.97, 0.999, 1.01):
        formula, found = at(request, share)
        assert found.fits == (found.needed_bytes <= found.capacity_bytes)
        assert replace(found, needed_bytes=formula.needed_bytes) == formula
        verdicts.append(found.fits)
    assert verdicts[0]
    assert not verdicts[-1]
    assert verdicts == sorted(verdicts, reverse=True)  # more room never makes it fail


def test_far_from_the_edge_nothing_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("replayed")

    monkeypatch.setattr("simcore.memory.events.step_events", never)
    request = make_request("gpt2-xl", "1x8xA100", micro_batch=17, precision="bf16")
    for share in (0.5, 1.001):
        formula, found = at(request, share)
        assert found == formula
    with pytest.raises(AssertionError, match="replayed"):
        at(request, 0.99)


@pytest.mark.parametrize("options", [{"pp": 2}, {"growing_segments": "on"}])
def test_what_no_replay_covers_keeps_the_formula(options: dict[str, Any]) -> None:
    request = make_request("gpt2-xl", "1x8xA100", micro_batch=8, precision="bf16", **options)
    formula, found = at(request, 0.99)
    assert found == formula


def test_tensor_ranks_are_replayed_with_their_part_of_the_model() -> None:
    """Of equal holes a device that is nearly full of tensors runs out."""
    request = make_request("llama3-8b", "1x8xH100", micro_batch=2, precision="bf16", tp=2,
                           software="plain", recompute="full")  # fmt: skip
    _, found = at(request, 0.999)
    assert found.needed_bytes > found.capacity_bytes
    assert not found.fits
    _, found = at(request, 0.9)
    assert found.fits


def test_the_largest_batch_fits_and_the_next_does_not() -> None:
    for model, gpus, options in EDGE:
        request = make_request(model, gpus, **options)
        best = largest_batch(request, 4096)
        assert predict(replace(request, micro_batch=best)).fits
        assert not predict(replace(request, micro_batch=best + 1)).fits


@pytest.mark.parametrize("formula", [0, 1, 7, 300, 4096])
@pytest.mark.parametrize("truly", [0, 1, 6, 8, 299, 301, 500, 4095, 4096])
def test_the_largest_batch_is_found_in_few_replays(
    formula: int, truly: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large batches of small networks: a replay a sample took half a minute."""
    tried: list[int] = []

    def fits(_request: object, batch: int) -> bool:
        tried.append(batch)
        return batch <= truly

    monkeypatch.setattr(edge, "fitting_batch", lambda *_: formula)
    monkeypatch.setattr(edge, "_fits", fits)
    assert largest_batch(make_request("gpt2", "1xA100"), 4096) == truly
    assert len(tried) <= 26 and all(0 < batch <= 4096 for batch in tried)
    if abs(formula - truly) <= 1:
        assert len(tried) <= 4
