"""A run's time, cost and energy follow from the step by hand; its odds from the step's interval."""

from __future__ import annotations

import math

import pytest

from simcore import api
from simcore.base.errors import InvalidConfig

JOB = ("gpt2", "4xH100")
TOKENS_A_STEP = 4 * 8 * 1024  # GPUs, sequences a GPU, tokens a sequence


def test_a_run_of_tokens_is_steps_times_the_step() -> None:
    p = api.predict(*JOB, tokens="1B", price="H100=2", cost=True)
    assert p.run is not None and p.cost is not None
    steps = math.ceil(1e9 / TOKENS_A_STEP)
    assert p.run_steps == p.run.steps == steps
    assert p.run.tokens == steps * TOKENS_A_STEP >= 1e9
    step = p.step_time_s
    assert p.run_time_s == p.run.time_s.value == pytest.approx(steps * step.value)
    assert p.run.time_s.high == pytest.approx(steps * step.high)
    hours = steps * step.value / 3600
    assert p.run.cost_usd == pytest.approx(4 * 2.0 * hours)
    assert p.cost.usd_per_h == 8.0
    assert p.cost.usd_per_million == pytest.approx(8.0 / 3600 / p.tokens_per_s * 1e6)  # type: ignore[operator]
    column = api.compare(*JOB, price="H100=2").columns[0].to_dict()
    assert p.cost.usd_per_million == pytest.approx(column["usd_per_million_tokens"])
    assert p.cost.kwh_per_million == pytest.approx(column["kwh_per_million_tokens"])
    assert p.run.energy_kwh == pytest.approx(p.cost.kwh_per_million * p.run.tokens / 1e6)  # type: ignore[operator]


def test_the_odds_of_a_deadline_are_those_of_the_interval() -> None:
    """Ends of the 80 % interval: the run ends in time with 10 and 90 %; its centre is even."""
    run = api.predict(*JOB, steps=1e6).run
    assert run is not None
    for end, odds in ((run.time_s.low, 0.1), (run.time_s.value, 0.5), (run.time_s.high, 0.9)):
        found = api.predict(*JOB, steps=1e6, deadline=f"{end}s").run
        assert found is not None and found.deadline_prob == pytest.approx(odds, abs=1e-3)


def test_lengths_that_cannot_be_are_refused() -> None:
    for words, message in (
        ({"tokens": "1B", "epochs": 3}, "give --epochs or --tokens, not both"),
        ({"deadline": "3d"}, "--deadline needs the length of the run"),
        ({"tokens": "many"}, "is not a number, such as 1e12, 300B or 15T"),
        ({"steps": 0}, "steps must be above zero"),
        ({"steps": 10, "deadline": "soon"}, "neither a duration nor a date"),
        ({"price": "H100=cheap"}, "H100=cheap"),
    ):
        with pytest.raises(InvalidConfig, match=message):
            api.predict(*JOB, **words)
    with pytest.raises(InvalidConfig, match="has no tokens: give --steps or --epochs"):
        api.predict("resnet-50", "1xH100", tokens=1e9)


def test_a_result_knows_its_run_when_it_is_changed() -> None:
    found = api.predict(*JOB, tokens="1B").replace(gpus="8xH100")
    assert found.run is not None and found.n_gpus == 8
    again = found.replace(steps=10)
    assert again.run is not None and again.run.steps == 10


def test_the_terms_of_a_job_are_listed_with_their_values() -> None:
    terms = api.terms(*JOB)
    assert {"step_time", "mfu", "memory.activations", "time.communication_exposed"} <= set(terms)
    assert terms["step_time"] == api.explain(*JOB, "step_time").value
    assert "speedup" not in api.terms("gpt2", "1xH100")
