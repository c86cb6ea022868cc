"""Order, budget, interruption, resumption and failure of a run, on a fake clock and device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bench_fakes import FakeClock, FakeDevice, case

from simcore.calibrate.bench import harness, load_families
from simcore.calibrate.bench.case import Case, World, spread_over
from simcore.calibrate.bench.harness import plan, run_cases
from simcore.calibrate.bench.store import Store
from simcore.calibrate.bench.timing import Typical


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def device(clock: FakeClock) -> FakeDevice:
    return FakeDevice(clock)


def test_every_case_is_measured_and_stored(
    tmp_path: Path, device: FakeDevice, clock: FakeClock
) -> None:
    cases = [case("add", 0.01), case("mul", 0.02), case("relu", 0.04)]
    store = Store(tmp_path)
    done = run_cases(cases, device, World(), store, budget_s=100.0, clock=clock)
    assert (done.done, done.left, done.failed) == (3, 0, {})
    rows, problems = store.rows()
    assert not problems
    assert {r.cells["op"]: r.seconds for r in rows} == pytest.approx(
        {"add": 0.01, "mul": 0.02, "relu": 0.04}
    )


def test_the_budget_ends_it_between_cases(
    tmp_path: Path, device: FakeDevice, clock: FakeClock
) -> None:
    cases = [case(f"op{i}", 1.0) for i in range(20)]
    done = run_cases(cases, device, World(), Store(tmp_path), budget_s=30.0, clock=clock)
    assert 0 < done.done < 20
    assert done.done + done.left == 20
    # the last case began within the budget: two warm-up calls and five timed ones of a second
    assert 30.0 <= clock.now_s <= 30.0 + 7.0


def test_an_interruption_loses_only_what_was_running(
    tmp_path: Path, device: FakeDevice, clock: FakeClock
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    cases = [case("add"), case("mul"), case("relu", on_run=interrupt), case("gelu")]
    store = Store(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_cases(cases, device, World(), store, budget_s=100.0, clock=clock)
    rows, _ = store.rows()
    assert [r.cells["op"] for r in rows] == ["add", "mul"]
    # resumed: the two are kept, the rest is measured
    whole = [case("add"), case("mul"), case("relu"), case("gelu")]
    device.ran.clear()
    done = run_cases(
        whole, device, World(), store, budget_s=100.0, clock=clock, known={r.key for r in rows}
    )
    assert (done.done, done.skipped) == (2, 2)
    assert device.ran == ["relu", "gelu"]
    assert len(store.rows()[0]) == 4


def test_a_case_that_fails_loses_none_of_the_others(
    tmp_path: Path, device: FakeDevice, clock: FakeClock
) -> None:
    def fail() -> None:
        raise RuntimeError("out of memory\nwith a long story")

    cases = [case("add"), case("mul", on_run=fail), case("relu")]
    done = run_cases(cases, device, World(), Store(tmp_path), budget_s=100.0, clock=clock)
    assert done.done == 2
    (told,) = done.failed.items()
    assert "op mul" in told[0]
    assert told[1] == "out of memory"


def test_caches_are_flushed_before_cold_calls_only(
    tmp_path: Path, device: FakeDevice, clock: FakeClock
) -> None:
    run_cases([case("add")], device, World(), Store(tmp_path), budget_s=100.0, clock=clock)
    assert device.flushes == 0
    run_cases(
        [case("mul", cold=True)], device, World(), Store(tmp_path), budget_s=100.0, clock=clock
    )
    assert device.flushes >= 5


def test_families_are_spread_evenly() -> None:
    """A budget that ends half way has seen half of each."""
    merged = spread_over([["a"] * 10, ["b"] * 4, ["c"] * 2])
    half = merged[: len(merged) // 2]
    assert [half.count(x) for x in "abc"] == [5, 2, 1]


class Pair(World):
    """Two ranks, of which this one decides; the other gives the same values."""

    size = 2


def test_a_disturbed_case_of_several_ranks_is_taken_once_more_at_the_end(
    tmp_path: Path, device: FakeDevice, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = iter([0.4, 0.0, 0.1, 0.9, 0.5])  # of add, mul, add again, then of two tries of relu
    order: list[str] = []

    def measured(case: Case, *_: object) -> Typical:
        order.append(str(case.columns["op"]))
        share = next(noise)
        return Typical(1.0 + share, 0.01, 5, share)

    monkeypatch.setattr(harness, "measure", measured)
    cases = [replace(case(op), mode="together") for op in ("add", "mul", "relu")]
    store = Store(tmp_path)
    done = run_cases(cases[:2], device, Pair(), store, budget_s=100.0, clock=clock)
    assert order == ["add", "mul", "add"] and done.done == 2
    run_cases(cases[2:], device, Pair(), store, budget_s=100.0, clock=clock)
    rows, problems = store.rows()
    assert not problems
    assert {r.cells["op"]: r.seconds for r in rows} == pytest.approx(
        {"mul": 1.0, "add": 1.1, "relu": 1.5}
    )


def test_a_case_that_is_listed_twice_is_measured_twice_and_stored_once(
    tmp_path: Path, device: FakeDevice, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scatter of 2 and 7 %, with 1 % of every measurement: weights 1 / 0.0005 and 1 / 0.005."""
    times = [(1.0, 0.02), (3.0, 0.0), (2.0, 0.07)]
    found = iter([Typical(seconds, sd, 5, 0.0) for seconds, sd in times])
    monkeypatch.setattr(harness, "measure", lambda *_: next(found))
    cases = [case("add"), case("mul"), case("add")]
    store = Store(tmp_path)
    done = run_cases(cases, device, World(), store, budget_s=100.0, clock=clock)
    assert (done.done, done.skipped, done.left) == (2, 0, 0)
    rows, problems = store.rows()
    assert not problems
    assert {r.cells["op"]: r.seconds for r in rows} == pytest.approx(
        {"mul": 3.0, "add": 2.0 ** (1.0 / 11.0)}, rel=1e-5
    )
    again = run_cases(
        cases, device, World(), store, budget_s=100.0, clock=clock, known={r.key for r in rows}
    )
    assert (again.done, again.skipped, again.left) == (0, 2, 0)


def test_a_reference_step_is_measured_at_the_start_and_again_among_the_others() -> None:
    load_families()
    order = plan(FakeDevice(FakeClock()), World(), ("steps", "memory-bound"))
    at = [i for i, c in enumerate(order) if c.columns.get("net") == "reference_dense"]
    assert len(at) == 4 and at[1] < 10 < len(order) // 4 < at[3]
