"""One GPU without torchrun: nothing wraps the model, so that it has no buckets of gradients."""

from __future__ import annotations

import pytest

from simcore import api

FP32 = 4


def buckets(found: api.Prediction) -> float:
    return found.memory.terms.get("gradient_buckets", 0.0)


def test_a_default_wraps_nothing_on_one_gpu() -> None:
    plain = api.predict("resnet-50", "1xA100")
    wrapped = api.predict("resnet-50", "1xA100", strategy="ddp")
    assert buckets(plain) == 0
    assert buckets(wrapped) == FP32 * wrapped.n_params
    less = wrapped.memory.allocated_bytes - plain.memory.allocated_bytes
    assert less == pytest.approx(FP32 * plain.n_params, rel=0.01)
    assert plain.step_time_s == wrapped.step_time_s  # priced alone either way


def test_several_gpus_are_wrapped() -> None:
    assert buckets(api.predict("resnet-50", "2xA100")) > 0


def test_the_title_says_so() -> None:
    assert "one process (default)" in str(api.predict("resnet-50", "1xA100"))
    assert "one process" not in str(api.predict("resnet-50", "1xA100", strategy="ddp"))
    assert "ddp (default)" in str(api.predict("resnet-50", "2xA100"))


def test_a_sweep_over_both_agrees() -> None:
    found = api.sweep("resnet-50", "A100:1x1..2").to_pandas().set_index("n_gpus")
    for n in (1, 2):
        held = api.predict("resnet-50", f"{n}xA100").memory.device_bytes
        assert found.loc[n, "memory_bytes"] == pytest.approx(held)
