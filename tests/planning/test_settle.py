"""What a plan shows fits as ``predict`` says, at the edge of memory too."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest

from simcore import api
from simcore.answer.request import make_request
from simcore.memory.fits import settled
from simcore.memory.job import memory_result
from simcore.planning import settle
from simcore.planning.planner import Plan

SAMPLES = 1e7
#: Micro-batches about which formula and replay differ: a replay finds that less fits, or more.
EDGE = [
    ("gpt2", "A100", (48, 62, 64, 66, 68, 70, 72)),
    ("dit-xl-2", "A100", (80, 96, 100, 102, 104, 112)),
    ("vit-l-16", "T4", (40, 48, 50, 53, 54, 55)),
]


def planned(model: str, gpu: str, batches: tuple[int, ...], **words: Any) -> Plan:
    return api.plan(
        model, f"{gpu}:1x1,2", samples=SAMPLES, objective="time", strategy="ddp",
        price=["A100=1.8", "T4=0.2"], grad_accum="1",
        micro_batch=",".join(map(str, batches)), **words,
    )  # fmt: skip


@pytest.mark.parametrize(("model", "gpu", "batches"), EDGE)
@pytest.mark.parametrize("margin", [0.0, 0.01])
@pytest.mark.parametrize("confidence", [None, 0.01])
def test_what_is_shown_is_the_fastest_that_predict_says_fits(
    model: str, gpu: str, batches: tuple[int, ...], margin: float, confidence: float | None
) -> None:
    limits: dict[str, Any] = {"margin_frac": margin}
    if confidence is not None:
        limits |= {"confidence": confidence, "deadline": "300d"}
    plan = planned(model, gpu, batches, **limits)
    differ, fastest = 0, {}
    for n, batch in product((1, 2), batches):
        request = make_request(
            model, f"1x{n}x{gpu}", micro_batch=batch, grad_accum=1, strategy="ddp"
        )
        formula = memory_result(request)
        memory = settled(request, formula)
        differ += memory.fits != formula.fits
        if memory.margin_frac >= margin:
            step_s = api.predict(model, f"1x{n}x{gpu}", micro_batch=batch, grad_accum=1,
                                 strategy="ddp").step_time_s.value  # fmt: skip
            time_s = math.ceil(SAMPLES / (n * batch)) * step_s
            fastest[n] = min(fastest.get(n, (math.inf, 0)), (time_s, batch))
    assert differ  # else the rules would not be told apart
    assert {o.n_gpus: o.micro_batch for o in plan.best} == {n: b for n, (_, b) in fastest.items()}
    assert all(o.prediction is not None and o.prediction.fits for o in plan.best)
    assert {(o.n_gpus, o.micro_batch) for o in plan.front} <= {
        (n, b) for n, (_, b) in fastest.items()
    }


def test_only_what_is_shown_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counted(*args: Any) -> Any:
        asked.append(args)
        return settled(*args)

    monkeypatch.setattr(settle, "settled", counted)
    planned("gpt2", "A100", (4, 8, 16))
    assert not asked
    planned("gpt2", "A100", tuple(range(40, 73)))
    assert 0 < len(asked) < 33
