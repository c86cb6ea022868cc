"""The closed loop's verdict, and that its networks are unlike those that calibration measures."""

from __future__ import annotations

import math
from typing import Any

import pytest

from simcore.calibrate.bench import load_families
from simcore.calibrate.bench.timing import Typical
from simcore.calibrate.machine.selftest import (
    Round,
    Step,
    busy,
    drift,
    judged,
    row_of,
    steps_to_run,
)
from simcore.calibrate.training import NETS, SELFTEST
from simcore.workload.resolve import resolve_model
from simcore.workload.settings import TrustedName

load_families()


def rows(errors: list[float], inside: list[bool], counted: bool = True) -> list[dict[str, Any]]:
    return [
        {"error_frac": e, "inside": i, "counted": counted}
        for e, i in zip(errors, inside, strict=True)
    ]


def test_it_holds_with_a_median_of_8_percent_and_seven_of_eight_inside() -> None:
    errors = [0.01, -0.02, 0.03, -0.08, 0.08, 0.3, -0.4, 0.5]
    found = judged(rows(errors, [True] * 7 + [False]))
    assert found == {"holds": True, "median_error_frac": 0.08, "inside": 7, "steps": 8}
    assert not judged(rows(errors, [True] * 6 + [False] * 2))["holds"]
    assert not judged(rows([0.09] * 8, [True] * 8))["holds"]


def test_a_busy_machine_is_told_in_one_sentence() -> None:
    quiet = [{**r, "disturbed_frac": 0.01} for r in rows([0.0] * 8, [True] * 8)]
    assert busy(quiet, 0.02) == ""
    noisy = [{**r, "disturbed_frac": 0.3 * (i < 3)} for i, r in enumerate(quiet)]
    told = busy(noisy, 0.02)
    assert told.startswith("The machine was busy") and "3 of 8 steps" in told
    assert told.count(".") == 1 and "50% of the calibration" in busy(quiet, 0.5)


STEP = Step("mlp", 256, 1, "single")
PREDICTED = {"predicted_s": 0.11, "low_s": 0.09, "high_s": 0.13}
SHARES = {"compute": 0.75, "memory": 0.25}
REFERENCE = {"alone": {"compute": 1e-3, "memory": 4e-3}}


def one_round(
    seconds: float, compute: float = 1.0, memory: float = 1.0, *, after: float = 1.0,
    disturbed: float = 0.0,
) -> Round:  # fmt: skip
    """A round beside pulses that took so many times as long as the reference's."""
    before = {"compute": 1e-3 * compute, "memory": 4e-3 * memory}
    pulse = {kind: s * after for kind, s in before.items()}
    return Round(Typical(seconds, 0.01, 9, disturbed), before, pulse)


def test_a_drift_between_calibration_and_step_leaves_the_stated_error_unchanged() -> None:
    steady = row_of(STEP, PREDICTED, [one_round(0.1), one_round(0.1)], SHARES, REFERENCE)
    assert steady["stated_s"] == steady["measured_s"] == pytest.approx(0.1)
    assert steady["error_frac"] == pytest.approx(0.1) and steady["inside"]
    # all takes 1.5 times as long; then compute twice, memory as long: 2^0.75 = 1.6818
    for factor, pulse in ((1.5, (1.5, 1.5)), (2.0**0.75, (2.0, 1.0))):
        slow = row_of(STEP, PREDICTED, [one_round(0.1 * factor, *pulse)], SHARES, REFERENCE)
        assert slow["measured_s"] == pytest.approx(0.1 * factor)
        assert slow["error_frac"] == pytest.approx(0.1) and slow["inside"]
        assert slow["measured_error_frac"] == pytest.approx(1.1 / factor - 1.0)
        assert slow["slower_frac"] == pytest.approx(factor - 1.0)


def test_rounds_weigh_by_how_steady_the_machine_was() -> None:
    """Equal rounds: the geometric mean; of several ranks none that others disturbed by a fifth."""
    both = row_of(STEP, PREDICTED, [one_round(0.09), one_round(0.16)], SHARES, REFERENCE)
    assert both["measured_s"] == pytest.approx(0.12)
    noisy, together = one_round(0.2, disturbed=0.3), Step("mlp", 256, 2, "ddp")
    quiet = row_of(together, PREDICTED, [noisy, one_round(0.1)], SHARES, REFERENCE)
    assert quiet["measured_s"] == pytest.approx(0.1) and quiet["disturbed_frac"] == 0.0
    alone = row_of(STEP, PREDICTED, [noisy, one_round(0.05)], SHARES, REFERENCE)
    assert alone["measured_s"] == pytest.approx(0.1) and alone["disturbed_frac"] == 0.3
    # calls scatter by 1 %; the speed changed by 22 % in the second round: 0.0002 over 0.0102
    moved = one_round(0.2, after=math.exp(0.2))
    found = row_of(STEP, PREDICTED, [one_round(0.1), moved], SHARES, REFERENCE)
    share = (1 / 0.0102) / (1 / 0.0002 + 1 / 0.0102)
    assert found["measured_s"] == pytest.approx(0.1 * 2.0**share)
    assert found["rounds"][1]["moved_frac"] == pytest.approx(math.expm1(0.2))


def test_a_calibration_without_pulses_states_what_was_measured() -> None:
    found = row_of(STEP, PREDICTED, [one_round(0.1, 3.0, 3.0)], SHARES, {})
    assert found["stated_s"] == found["measured_s"] == pytest.approx(0.1)


def test_a_drift_is_told_in_one_sentence_from_8_percent_on() -> None:
    calm = [{"counted": True, "slower_frac": x} for x in (-0.05, 0.08)]
    assert drift(calm) == ""
    told = drift([*calm, {"counted": True, "slower_frac": 0.31}])
    assert "between 5% faster and 31% slower than in the calibration" in told
    assert told.count(".") == 1
    assert drift([{"counted": False, "slower_frac": 0.5}, {"counted": True}]) == ""


def test_what_is_not_counted_does_not_help() -> None:
    bad = rows([0.5] * 8, [False] * 8)
    good = rows([0.0] * 8, [True] * 8, counted=False)
    assert judged([*bad, *good]) == {
        "holds": False, "median_error_frac": 0.5, "inside": 0, "steps": 8,
    }  # fmt: skip
    assert not judged(good)["holds"]


def test_four_networks_on_one_rank_and_on_all() -> None:
    counted = [s for s in steps_to_run("cpu", 2) if s.counted]
    assert len(counted) == 8
    assert {(s.ranks, s.kind) for s in counted} == {(1, "single"), (2, "ddp")}
    assert {s.kind for s in steps_to_run("cpu", 2)} == {"single", "ddp", "zero1", "zero3"}
    assert all(s.ranks == 1 for s in steps_to_run("cuda", 1))


@pytest.mark.parametrize("name", SELFTEST)
def test_the_engine_sees_the_parameters_that_torch_trains(name: str) -> None:
    net = NETS[name]
    module = net.build()
    workload = resolve_model(TrustedName(net.model)).build()
    assert workload.trainable_numel == sum(p.numel() for p in module.parameters())
    assert workload.forward_flop > 1e6


def test_calibration_has_seen_none_of_them() -> None:
    """No reference network shares a product's shape with a network of the selftest."""

    def products(name: str) -> set[tuple[float, ...]]:
        blocks = resolve_model(TrustedName(NETS[name].model)).build().blocks
        kernels = (k for b in blocks for op in b.ops for k in op.fwd if k.kind == "gemm")
        return {(k.n.fixed, k.k.fixed) for k in kernels}

    seen = set().union(*(products(n) for n in NETS if n not in SELFTEST))
    assert seen
    for name in SELFTEST:
        assert not products(name) & seen, name
