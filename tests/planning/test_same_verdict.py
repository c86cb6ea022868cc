"""Sweep, plan, ``--micro-batch max`` and predict say the same about what fits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simcore import api
from simcore.answer.request import make_request
from simcore.base.errors import SimcoreError
from simcore.memory.job import largest_batch
from simcore.planning.evaluator import batches

#: Jobs of every kind of layout and strategy; ``random_job`` draws their batches near the limit.
MODELS: list[tuple[str, str, dict[str, Any]]] = [
    ("gpt2", "1x{n}xA100", {"precision": "amp-bf16"}),
    ("gpt2-xl", "2x{n}xA100", {"precision": "bf16"}),
    ("vit-l-16", "1x{n}xT4", {}),
    ("resnet-50", "1x{n}xV100", {"precision": "amp-fp16"}),
    ("bert-large", "1x{n}xRTX3090", {"precision": "fp16"}),
    ("dit-xl-2", "1x{n}xA6000ada", {}),
    ("llama3.2-1b", "2x{n}xH100", {"precision": "bf16", "tp": 2}),
    ("llama3.2-1b", "2x{n}xH100", {"precision": "bf16", "pp": 2}),
    ("llama3-8b", "4x{n}xH100", {"precision": "bf16", "pp": 2, "tp": 2}),
    ("mixtral-8x7b", "8x8xH100", {"precision": "bf16", "ep": 8, "tp": 2, "pp": 2}),
]
STRATEGIES = ("ddp", "zero1", "zero2", "zero3")


def random_job(seed: int) -> tuple[str, str, dict[str, Any]]:
    """A job with a strategy, recompute and accumulation; its micro-batch is not yet chosen."""
    rng = np.random.default_rng(seed)
    model, gpus, words = MODELS[seed % len(MODELS)]
    return (
        model,
        gpus.format(n=rng.choice([2, 4, 8])),
        {
            **words,
            "strategy": str(rng.choice(STRATEGIES)),
            "recompute": str(rng.choice(["none", "full"])),
            "grad_accum": int(rng.choice([2, 4])),
        },
    )


@pytest.mark.parametrize("seed", range(40))
def test_a_sweep_says_of_each_point_what_predict_says(seed: int) -> None:
    model, gpus, words = random_job(seed)
    try:
        best = largest_batch(make_request(model, gpus, **words), 4096)
    except SimcoreError:
        pytest.skip("not a valid job")
    tried = range(max(1, best - 2), best + 4)
    space = api.make_space(model, gpus, micro_batch=",".join(map(str, tried)), **words)
    swept: dict[int, tuple[bool, float, float]] = {}
    for batch in batches(space):
        assert batch.micro_batch is not None and len(batch)
        columns = (batch.micro_batch, batch.fits, batch.needed_bytes, batch.memory_bytes)
        swept |= {int(m): (bool(f), n, d) for m, f, n, d in zip(*columns, strict=True)}
    for micro_batch in tried:
        memory = api.predict(model, gpus, micro_batch=micro_batch, **words).memory
        fits, needed_bytes, device_bytes = swept[micro_batch]
        assert fits == memory.fits == (micro_batch <= best)
        assert needed_bytes == pytest.approx(memory.needed_bytes, rel=1e-12)
        assert device_bytes == pytest.approx(memory.device_bytes, rel=1e-12)
    if best:
        largest = make_request(model, gpus, **{**words, "micro_batch": "max"})
        assert largest.micro_batch == best == max(m for m, (fits, *_) in swept.items() if fits)


@pytest.mark.parametrize("shares", ["3:1", "1:1"])
def test_unequal_gpus_too(shares: str) -> None:
    gpus, verdicts = "1x2xA100+1x2xT4", set()
    for micro_batch in (16, 128, 256, 512, 1024):
        words: dict[str, Any] = {"micro_batch": micro_batch, "shares": shares}
        (batch,) = batches(api.make_space("resnet-50", gpus, **words))
        memory = api.predict("resnet-50", gpus, **words).memory
        assert batch.fits.tolist() == [memory.fits]
        assert batch.needed_bytes == pytest.approx([memory.needed_bytes], rel=1e-12)
        verdicts.add(memory.fits)
    assert verdicts == {True, False}


@pytest.mark.parametrize("margin", [0.0, 0.01])
@pytest.mark.parametrize(
    ("model", "gpu", "tried"),
    [("dit-xl-2", "A100", range(88, 116, 2)), ("vit-l-16", "T4", range(44, 60))],
)
def test_a_plan_shows_the_largest_that_predict_says_fits(
    model: str, gpu: str, tried: range, margin: float
) -> None:
    words: dict[str, Any] = {"strategy": "ddp", "grad_accum": 1, "recompute": "none"}
    plan = api.plan(
        model, f"{gpu}:1x2", samples=1e7, objective="time", price=["A100=1.8", "T4=0.2"],
        micro_batch=",".join(map(str, tried)), margin_frac=margin, **words,
    )  # fmt: skip
    fitting = {
        m
        for m in tried
        if api.predict(model, f"1x2x{gpu}", micro_batch=m, **words).memory.margin_frac >= margin
    }
    assert 0 < len(fitting) < len(tried)
    assert plan.n_feasible == len(fitting)
    assert {o.micro_batch for o in (*plan.best, *plan.front)} <= fitting
    assert all(o.prediction is not None and o.prediction.fits for o in plan.best)
