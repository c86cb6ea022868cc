"""Times of calls in a queue and in a sequence, on a simulated host and device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from simcore.calibrate.bench.case import Case, Device, How, Run, Sample, World
from simcore.calibrate.bench.queue import BEYOND_CACHE, MAX_COPIES, copies_of, measure

MICRO, MIB = 1e-6, 2**20


@dataclass
class Simulated:
    """A host and a device with a queue of ``depth`` calls; it is a device and its own line."""

    issue_s: float
    kernel_s: float
    depth: int = 1000
    name: str = "simulated"
    kind: str = "cuda"
    cache_bytes: int = 50 * MIB
    memory_bytes: int = 10**11
    now_s: float = 0.0
    ends_s: list[float] = field(default_factory=lambda: [0.0])
    bytes_held: int = 0

    @property
    def line(self) -> Simulated:
        return self

    def __call__(self) -> float:
        return self.now_s

    def run(self) -> None:
        self.now_s += self.issue_s
        if len(self.ends_s) > self.depth:  # the queue is full: the host waits
            self.now_s = max(self.now_s, self.ends_s[-self.depth])
        self.busy(self.kernel_s)

    def busy(self, seconds: float) -> None:
        self.ends_s.append(max(self.ends_s[-1], self.now_s) + seconds)

    def mark(self) -> Callable[[], bool]:
        reached_s = max(self.ends_s[-1], self.now_s)
        return cast("Callable[[], bool]", Mark(self, reached_s))

    def seconds_between(self, first: Any, last: Any) -> float:
        self.wait()
        return float(last.at_s - first.at_s)

    def wait(self) -> None:
        self.now_s = max(self.now_s, self.ends_s[-1])

    def time(self, run: Run) -> Sample:
        begin = self.now_s
        run()
        self.wait()
        return Sample(self.now_s - begin)

    def allocated_bytes(self) -> int:
        return self.bytes_held


@dataclass
class Mark:
    of: Simulated
    at_s: float

    def __call__(self) -> bool:
        return self.of.now_s >= self.at_s


def _case(how: How, n_bytes: int = MIB) -> Case:
    def prepare(device: Any) -> Run:
        device.bytes_held += n_bytes
        return cast(Run, device.run)

    return Case("f", "gemm", {}, prepare, cold=True, how=how)


@pytest.mark.parametrize(("issue_us", "kernel_us"), [(50.0, 10.0), (5.0, 100.0), (20.0, 20.0)])
def test_in_a_queue_the_host_takes_no_part(issue_us: float, kernel_us: float) -> None:
    d = Simulated(issue_us * MICRO, kernel_us * MICRO)
    found = measure(_case("queue"), cast(Device, d), World(), 0.01, d)
    assert found.seconds == pytest.approx(kernel_us * MICRO, rel=1e-9)
    assert (found.how, found.disturbed_frac) == ("queue", 0.0)


def test_a_host_that_the_device_overtakes_is_said_to_be_part_of_the_time() -> None:
    """The queue takes two calls only, so that the host is never ahead of the device."""
    d = Simulated(50 * MICRO, 10 * MICRO, depth=2)
    found = measure(_case("queue"), cast(Device, d), World(), 0.01, d)
    assert (found.how, found.disturbed_frac) == ("call", 1.0)
    assert found.seconds == pytest.approx(50 * MICRO, rel=0.1)


@pytest.mark.parametrize(("issue_us", "kernel_us"), [(50.0, 10.0), (5.0, 100.0)])
def test_in_a_sequence_the_slower_of_both_counts(issue_us: float, kernel_us: float) -> None:
    d = Simulated(issue_us * MICRO, kernel_us * MICRO)
    found = measure(_case("sequence"), cast(Device, d), World(), 0.01, d)
    assert found.seconds == pytest.approx(max(issue_us, kernel_us) * MICRO, rel=0.05)
    assert found.how == "sequence"


@pytest.mark.parametrize(
    ("mib", "copies"), [(1, MAX_COPIES), (10, 10), (100, 1), (1000, 1)]
)  # fmt: skip
def test_copies_exceed_the_cache(mib: int, copies: int) -> None:
    d = Simulated(MICRO, MICRO)
    made = copies_of(_case("queue", mib * MIB), cast(Device, d), d)
    assert len(made) == copies
    assert copies == MAX_COPIES or copies * mib * MIB >= BEYOND_CACHE * d.cache_bytes
