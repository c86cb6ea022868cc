"""Pulses on a device whose speed changes, with a clock that moves when told."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from bench_fakes import FakeClock, FakeDevice, case

from simcore.calibrate.bench.case import Run, Sample, World
from simcore.calibrate.bench.harness import run_cases
from simcore.calibrate.bench.pulse import Pulses, between, take
from simcore.calibrate.bench.store import Store

RUNS = {"compute": (lambda: 0.001,), "memory": (lambda: 0.002, lambda: 0.008)}


@dataclass
class DriftingDevice(FakeDevice):
    """From ``slow_from_s`` on, every call takes ``factor`` times as long."""

    slow_from_s: float = float("inf")
    factor: float = 2.0
    took: list[float] = field(default_factory=list)

    def time(self, run: Run) -> Sample:
        slow = self.clock.now_s >= self.slow_from_s
        seconds = (run() or 0.0) * (self.factor if slow else 1.0)
        self.clock.now_s += seconds
        return Sample(seconds)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_a_pulse_is_the_median_call_of_each_kind_within_its_time(clock: FakeClock) -> None:
    device = DriftingDevice(clock)
    assert take(RUNS, device, 0.1, clock) == pytest.approx({"compute": 0.001, "memory": 0.004})
    # one untimed turn, then ten turns of 11 ms
    assert clock.now_s == pytest.approx(0.121)


def test_a_pulse_is_taken_again_once_it_is_old(clock: FakeClock) -> None:
    device = DriftingDevice(clock, slow_from_s=1.0)
    pulses = Pulses(device, World(), RUNS, clock)
    first = pulses.beside("alone", 0.5)
    assert pulses.beside("alone", 0.5) is first
    clock.now_s = 1.0
    assert pulses.beside("alone", 0.5) == pytest.approx({"compute": 0.002, "memory": 0.008})


class Pair(World):
    """This rank and another of other speeds."""

    size = 2

    def gather(self, value):  # type: ignore[no-untyped-def]
        return [value, {"compute": 0.004, "memory": 0.001}]


def test_of_ranks_at_once_the_mean_counts_and_alone_is_kept_apart(clock: FakeClock) -> None:
    pulses = Pulses(DriftingDevice(clock), Pair(), RUNS, clock)
    assert pulses.beside("lockstep") == pytest.approx({"compute": 0.002, "memory": 0.002})
    assert pulses.beside("alone") == pytest.approx({"compute": 0.001, "memory": 0.004})


def test_between_two_pulses_lies_their_geometric_mean() -> None:
    assert between({"compute": 1.0, "memory": 2.0}, {"compute": 4.0, "memory": 2.0}) == {
        "compute": 2.0, "memory": 2.0,
    }  # fmt: skip


def test_each_benchmark_is_stored_with_the_pulse_beside_it(
    tmp_path: Path, clock: FakeClock
) -> None:
    """Speed halves while ``mul`` runs: its pulses took 4 and 8 ms, whose geometric mean is 5.66."""
    device = DriftingDevice(clock, slow_from_s=6.0)
    cases = [case("add", 0.3), case("mul", 0.7), case("relu", 0.3)]
    store = Store(tmp_path)
    run_cases(
        cases, device, World(), store, budget_s=100.0,
        pulses=Pulses(device, World(), RUNS, clock), clock=clock,
    )  # fmt: skip
    rows, problems = store.rows()
    assert not problems
    memory = {r.cells["op"]: r.pulse["memory"] for r in rows}
    assert memory == pytest.approx({"add": 0.004, "mul": 0.0056569, "relu": 0.008}, rel=1e-4)
    assert not store.rows()[0][0].slower
