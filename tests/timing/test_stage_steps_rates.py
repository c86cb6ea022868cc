"""Stages wait for the slowest of their own devices: against a lottery of devices, played."""

from dataclasses import replace

import numpy as np
import pytest

from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.strategy.layout import Layout
from simcore.timing.points import Points
from simcore.timing.stage_steps import stage_paces
from simcore.timing.steps import values_of

SD = 0.02


def points(ranks: int) -> Points:
    return Points.of({"n_ranks": float(ranks)}, 1)


@pytest.mark.parametrize(("tp", "pp", "dp"), [(8, 8, 1), (2, 4, 4), (1, 16, 2)])
def test_a_stage_with_most_work_waits_for_its_own_devices_alone(tp: int, pp: int, dp: int) -> None:
    """The last stage has a quarter more work: what it takes is the slowest of tp dp devices."""
    draw = np.random.default_rng(1).normal(1.0, SD, (20_000, dp, pp, tp)).max(axis=3)
    work = np.ones(pp)
    work[-1] = 1.25
    played = (draw * work).max(axis=(1, 2)).mean() / 1.25
    found = stage_paces(points(tp * pp * dp), Layout(tp=tp, pp=pp), (pp - 1, 1), SD)
    every = np.random.default_rng(2).normal(1.0, SD, (20_000, tp * pp * dp)).max(axis=1).mean()
    assert every / found.slowest[1, 0] == pytest.approx(played, rel=2e-3)
    assert found.slowest[1, 0] > found.slowest[0, 0] >= 1.0


def test_what_passes_through_all_stages_meets_average_groups() -> None:
    draw = np.random.default_rng(3).normal(1.0, SD, (20_000, 8, 8)).max(axis=2)
    found = stage_paces(points(64), Layout(tp=8, pp=8), (8,), SD)
    every = np.random.default_rng(4).normal(1.0, SD, (20_000, 64)).max(axis=1).mean()
    assert every / found.typical[0] == pytest.approx(draw.sum(axis=1).mean() / 8, rel=2e-3)
    assert found.slowest[0, 0] == 1.0


def test_equal_devices_wait_for_none() -> None:
    found = stage_paces(points(64), Layout(tp=8, pp=8), (7, 1), 0.0)
    assert found.slowest == pytest.approx(1.0)
    assert found.typical == pytest.approx(1.0)


def test_a_pipeline_is_no_slower_than_all_at_the_pace_of_the_slowest_device() -> None:
    """Without a spread of devices it is faster still."""
    request = make_request(
        "gpt3-175b", "8x8xA100-SXM-80GB", tp=8, pp=8, micro_batch=1, global_batch=64
    )
    slowest = float(values_of(request)["compute"])
    runtime = dict(request.profile.runtime)
    runtime["device_spread"] = {**runtime["device_spread"], "value": 0.0}
    equal = replace(request, profile=replace(request.profile, runtime=runtime))
    without = predict(equal).step_time_s.value
    assert without < predict(request).step_time_s.value < without / slowest
