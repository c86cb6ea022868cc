"""A plan looks through chunks of layers where they could be its answer."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from simcore import api
from simcore.base.errors import SimcoreError
from simcore.planning.planner import Plan
from simcore.strategy.cuts import chunk_counts

WORDS: dict[str, Any] = {"precision": "bf16", "tp": "8", "strategy": "zero1", "micro_batch": "1"}


def planned(model: str, gpus: str, **words: Any) -> Plan:
    return api.plan(model, gpus, samples=1e5, objective="time", **WORDS, **words)


@pytest.mark.parametrize(
    ("model", "gpus", "batch"),
    [
        ("llama3-70b", "8x8xH100", 16),
        ("llama3.1-405b", "64x8xH100", 64),
        ("gpt3-175b", "16x8xH100", 32),
    ],
)
def test_no_number_of_chunks_is_faster_than_the_plan(model: str, gpus: str, batch: int) -> None:
    best = planned(model, gpus, pp="2..16*2", recompute="full", global_batch=batch).best[0]
    assert best.form.layout.vpp > 1
    others = []
    for pp, vpp in product((2, 4, 8, 16), (1, 2, 4, 8)):
        try:
            p = api.predict(
                model, gpus, tp=8, pp=pp, vpp=vpp, strategy="zero1", micro_batch=1,
                recompute="full", precision="bf16", global_batch=batch, software="auto",
            )  # fmt: skip
        except SimcoreError:
            continue
        if p.fits and (vpp == 1 or p.grad_accum % pp == 0):
            others.append(p.step_time_s.value)
    assert best.step_time_s <= min(others) * (1 + 1e-9)
    assert best.prediction is not None
    assert best.prediction.step_time_s.value == pytest.approx(best.step_time_s, rel=1e-9)


def test_what_was_said_of_chunks_and_stages_is_kept() -> None:
    words: dict[str, Any] = {"pp": "4", "recompute": "full", "global_batch": 16}
    one = planned("llama3-70b", "8x8xH100", vpp="1", **words)
    even = planned("llama3-70b", "8x8xH100", stages="even", **words)
    free = planned("llama3-70b", "8x8xH100", **words)
    assert {o.form.layout.vpp for p in (one, even) for o in p.best} == {1}
    assert free.best[0].step_time_s < one.best[0].step_time_s
    assert any("vpp" in a for a in free.assumptions)
    assert not any("vpp" in a for p in (one, even) for a in p.assumptions)


def test_programs_without_an_interleaved_schedule_are_given_none() -> None:
    words: dict[str, Any] = {"pp": "4", "recompute": "full", "global_batch": 16}
    plan = planned("llama3-70b", "8x8xH100", software="deepspeed", **words)
    assert plan.best[0].form.layout.vpp == 1


def test_chunks_divide_the_layers() -> None:
    assert chunk_counts(80, 4) == (2, 4, 5)
    assert chunk_counts(126, 16) == (2, 4, 8)  # with embedding and head
    assert chunk_counts(61, 16) == ()
