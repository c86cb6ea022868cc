"""A prediction in the terms of a trace, where the model is cut."""

from __future__ import annotations

from typing import Any

import pytest

from simcore.answer.explain_facts import Facts
from simcore.answer.kinds import collective_seconds
from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.validate.trace_terms import predicted_terms

CASES: dict[str, tuple[str, str, dict[str, Any], set[str]]] = {
    "tensor": ("llama3-8b", "1x8xH100", {"tp": 8, "strategy": "ddp", "grad_accum": 2},
               {"reduce_scatter", "all_gather"}),
    "tensor, norms whole": ("llama3-8b", "1x8xH100",
                            {"tp": 8, "strategy": "ddp", "sequence_parallel": False},
                            {"all_reduce"}),
    "expert": ("deepseek-v2-lite", "2x8xH100", {"ep": 8, "strategy": "zero1"},
               {"all_to_all", "reduce_scatter", "all_gather"}),
    "pipeline": ("llama3-8b", "2x8xH100",
                 {"tp": 2, "pp": 4, "vpp": 2, "strategy": "zero1", "grad_accum": 8},
                 {"reduce_scatter", "all_gather", "send_recv"}),
    "context": ("llama3-8b", "1x8xH100", {"cp": 8, "strategy": "ddp", "grad_accum": 2},
                {"send_recv", "all_reduce"}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_exchanges_have_their_kinds(case: str) -> None:
    model, gpus, words, ops = CASES[case]
    request = make_request(model, gpus, micro_batch=1, software="plain", **words)
    p = predict(request, keep_timeline=True)
    found = collective_seconds(request, p)
    assert found.keys() == ops
    told = p.time_s["communication_exposed"] + p.time_s["communication_hidden"]
    assert Facts(request, p).collectives_s == pytest.approx(sum(found.values()), rel=1e-6)
    if case == "pipeline":  # stages do not wait for all of each other's
        assert told * 0.8 < sum(found.values()) < told
    else:
        assert sum(found.values()) == pytest.approx(told, rel=1e-6)


@pytest.mark.parametrize("micro_steps", [1, 8])
def test_terms_of_a_cut_model_add_up_and_backward_is_the_longer(micro_steps: int) -> None:
    request = make_request("llama3-8b", "2x8xH100", tp=2, pp=2, strategy="zero1", micro_batch=1,
                           grad_accum=micro_steps)  # fmt: skip
    p = predict(request)
    terms = predicted_terms(request, p)
    assert sum(terms.values()) == pytest.approx(p.step_time_s.value)
    assert 1.8 < terms["backward"] / terms["forward"] < 2.6  # two products for each of forward
