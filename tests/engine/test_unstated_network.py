"""The interval of a job whose network nobody stated: slower as far as communication is exposed."""

from __future__ import annotations

import math

import pytest

from simcore.engine.options import Options
from simcore.engine.predict import predict
from simcore.engine.request import make_request
from simcore.engine.result import Prediction
from simcore.hardware.calibrations import Knob
from simcore.hardware.profile import Profile, load_profile

GPUS, OWN = "4x8xA100-SXM-80GB", "8xib-hdr"


def asked(model: str, *, profile: Profile | None = None, **words: object) -> Prediction:
    options: Options = {"profile": profile or load_profile(), **words}  # type: ignore[typeddict-item]
    return predict(make_request(model, GPUS, **options))


@pytest.mark.parametrize("overlap", ["none", "grads"])
def test_only_the_high_end_moves_and_by_the_time_with_few_adapters(overlap: str) -> None:
    """What it moves by is the central step of a profile whose network has 8 ** -0.9 of its rate."""
    words = {"strategy": "ddp", "micro_batch": 2, "overlap": overlap}
    stated = asked("gpt2-medium", network=OWN, **words).step_time_s
    found = asked("gpt2-medium", **words).step_time_s
    few = load_profile().with_knobs(
        (Knob(knob="inter", value=8.0**-0.9, sd_log=0.1),), "few", "few", 0.1
    )
    slow = asked("gpt2-medium", profile=few, network=OWN, **words).step_time_s
    assert (found.value, found.low) == (stated.value, stated.low)
    assert slow.value > 1.05 * stated.value
    expected = math.hypot(math.log(stated.high / stated.value), math.log(slow.value / stated.value))
    assert math.log(found.high / found.value) == pytest.approx(expected)


def test_a_calibration_that_met_the_link_has_its_own_spread_instead() -> None:
    knob = Knob(knob="inter", value=0.5, sd_log=0.05, link="ib-hdr")
    met = load_profile().with_knobs((knob,), "met", "met", 0.1)
    words = {"strategy": "ddp", "micro_batch": 2, "profile": met}
    assert asked("gpt2-medium", **words).step_time_s == asked(
        "gpt2-medium", network=OWN, **words
    ).step_time_s  # fmt: skip


def test_what_waits_for_no_network_is_as_sure_without_its_name() -> None:
    """A large batch hides the gradients: even a few adapters send them in its time."""
    words = {"strategy": "ddp", "micro_batch": 64, "recompute": "full"}
    stated = asked("gpt2", network=OWN, **words).step_time_s
    found = asked("gpt2", **words).step_time_s
    assert found.high / found.value == pytest.approx(stated.high / stated.value, rel=0.03)
