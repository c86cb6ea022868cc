"""Ops on the roofline and the sensitivity: the same prices and the same schedule."""

from __future__ import annotations

import pytest

from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.answer.views import roofline, sensitivity

JOBS = [("latte-xl", "4x8xA6000ada", {}), ("gpt2", "8xA100", {"precision": "bf16"}),
        ("resnet152", "1x1xV100", {"precision": "fp32"})]  # fmt: skip


@pytest.mark.parametrize(("model", "gpus", "options"), JOBS)
def test_the_times_of_all_ops_add_up_to_the_compute_of_the_step(
    model: str, gpus: str, options: dict[str, str]
) -> None:
    request = make_request(model, gpus, **options)
    answer = predict(request)
    seen = roofline(request)
    by_part = {
        part: sum(op.time_s for op in seen.ops if op.part == part)
        for part in ("forward", "backward", "frozen forward")
    }
    alone = predict(make_request(model, f"1x1x{seen.gpu}", **options))
    # Collectives beside it slow backward down: one GPU has none. Autocast's casts are no op's.
    assert by_part["forward"] == pytest.approx(alone.time_s["forward"])
    assert by_part["backward"] == pytest.approx(alone.time_s["backward"])
    assert by_part["frozen forward"] == pytest.approx(alone.time_s["frozen_networks"])
    flop = sum(op.flop for op in seen.ops if op.part == "forward")
    assert flop == pytest.approx(request.workload.forward_flop * answer.micro_batch)


def test_no_op_is_above_the_roof() -> None:
    """Peak and bandwidth are the datasheet's, and efficiencies are shares of them."""
    seen = roofline(make_request("latte-xl", "4x8xA6000ada"))
    for op in seen.ops:
        roof = min(seen.peak_flop_per_s, op.intensity_flop_per_byte * seen.bw_bytes_per_s)
        assert op.achieved_flop_per_s <= roof, op.name
    assert [op.time_s for op in seen.ops] == sorted((op.time_s for op in seen.ops), reverse=True)


def test_a_pipeline_shows_its_first_stage() -> None:
    whole = roofline(make_request("llama-3-8b", "1x4xH100"))
    half = roofline(make_request("llama-3-8b", "1x4xH100", pp=2))
    calls = {op.name: op.calls for op in half.ops if op.part == "forward"}
    both = {op.name: op.calls for op in whole.ops if op.part == "forward"}
    assert calls["attention"] * 2 == both["attention"]


def test_sensitivity_is_the_what_ifs_of_the_prediction_and_their_opposite() -> None:
    request = make_request("latte-xl", "4x8xA6000ada")
    answer = predict(request)
    centre, swings = sensitivity(request)
    assert centre == pytest.approx(answer.step_time_s.value)
    doubled = {w.resource: w.step_time_s for w in answer.what_if}
    assert {s.resource: s.double_s for s in swings} == pytest.approx(doubled)
    assert all(s.double_s <= centre * (1 + 1e-12) <= s.half_s * (1 + 1e-9) for s in swings)
    widths = [s.half_s - s.double_s for s in swings]
    assert widths == sorted(widths, reverse=True)
