"""--ema: a moving average of any model's parameters, in memory and in the step."""

from __future__ import annotations

import pytest

from simcore import api


@pytest.mark.parametrize(("precision", "width"), [("fp32", 4), ("amp-bf16", 4), ("bf16-true", 2)])
def test_a_copy_of_the_parameters_is_held_and_updated(precision: str, width: int) -> None:
    job = {"precision": precision, "optimizer": "sgd", "micro_batch": 1}
    plain = api.predict("gpt2", "1xA100", **job)
    with_it = api.predict("gpt2", "1xA100", ema="on", **job)
    assert with_it.memory.terms["ema"] == width * with_it.n_params
    assert with_it.memory.allocated_bytes - plain.memory.allocated_bytes == pytest.approx(
        width * with_it.n_params
    )
    assert with_it.time_s["ema"] > 0.0 == plain.time_s["ema"]


def test_a_record_with_an_average_can_be_trained_without() -> None:
    assert api.predict("latte-l", "8xA100").memory.terms["ema"] > 0.0
    assert "ema" not in api.predict("latte-l", "8xA100", ema=False).memory.terms
