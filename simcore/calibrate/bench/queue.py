"""Times calls on a device with a queue: the device's own time, without what the host takes.

The host queues calls behind work that keeps the device busy. If the device reaches the first of
them only after the last was queued, it never waited for the host, and the time between the first
and the last is its own. Calls take copies of their tensors in rotation, together larger than the
cache, and keep each copy's last result, so that results too are written to other memory.

A sequence has no such work in front: calls follow each other as in a loop of training, and host and
device wait for each other as they do there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, Final

from simcore.calibrate.bench.case import Case, Device, Line, Run, Sample, World
from simcore.calibrate.bench.timing import WARM_UP, Clock, Typical, measure_calls, typical

#: Copies of a case's tensors together exceed the cache by this factor.
BEYOND_CACHE: Final = 2.0
MAX_COPIES: Final = 48
#: Share of the device's memory that copies and their results may take.
COPIES_FRAC: Final = 0.3
#: Device seconds of the calls of one queue, and their number. A GPU's queue takes some 1,000
#: kernels before the host waits for it, so that a call of up to 10 kernels fits.
QUEUE_S: Final = 3e-3
LEAST_QUEUED, MOST_QUEUED = 4, 96
#: Seconds of work in front of the calls, over what the host takes to queue them; where the device
#: came first, the work is made this many times longer, a few times.
AHEAD: Final = 1.5
LONGER, MOST_TRIES = 2.5, 3
#: Seconds of a sequence.
SEQUENCE_S: Final = 0.1


def measure(
    case: Case, device: Device, world: World, budget_s: float, clock: Clock = time.perf_counter
) -> Typical:
    """The typical call of one case, the same on every rank that takes part.

    ``budget_s``: seconds to spend, unless the case asks for more. ``clock`` is replaced in tests.
    """
    if case.how == "call" or case.mode != "alone" or device.line is None:
        return measure_calls(case, device, world, budget_s, clock)
    return measure_in_line(case, device, device.line, budget_s, clock)


def measure_in_line(
    case: Case, device: Device, line: Line, budget_s: float, clock: Clock
) -> Typical:
    """The typical call of a case that is timed in a queue or a sequence.

    Calls whose queue the device reached too early count as disturbed. If it always did, ``how`` is
    ``call``: the host is part of the time.
    """
    queued = case.how == "queue"
    runs = copies_of(case, device, line) if queued else [case.prepare(device)]
    for run in (*runs, *runs[:1] * WARM_UP):
        device.time(run)
    once_s = min(device.time(run).seconds for run in runs[:WARM_UP])
    span_s = QUEUE_S if queued else SEQUENCE_S
    calls = min(MOST_QUEUED, max(LEAST_QUEUED, math.ceil(span_s / max(once_s, 1e-9))))
    ahead_s = AHEAD * calls * _issue_s(runs[0], line, clock) if queued else 0.0
    turns = Turns(runs)
    in_line(turns, max(calls, len(runs)), ahead_s, line)  # the allocator then knows all results
    samples: list[Sample] = []
    until, tries = clock() + max(budget_s, case.seconds), 0
    while len(samples) < case.calls or clock() < until:
        samples.append(in_line(turns, calls, ahead_s, line))
        if samples[-1].disturbed and tries < MOST_TRIES:
            samples.pop()
            ahead_s, tries = ahead_s * LONGER, tries + 1
    found = typical(samples)
    how = case.how if found.disturbed_frac < 1.0 else "call"
    return Typical(found.seconds, found.sd_log, found.calls * calls, found.disturbed_frac, how)


def copies_of(case: Case, device: Device, line: Line) -> list[Run]:
    """Calls of a case with tensors of their own, together larger than the device's cache."""
    before = line.allocated_bytes()
    runs = [case.prepare(device)]
    held = runs[0]()  # results take memory too, and are kept
    n_bytes = max(line.allocated_bytes() - before, 1)
    del held
    wanted = math.ceil(BEYOND_CACHE * device.cache_bytes / n_bytes) if case.cold else 1
    possible = int(COPIES_FRAC * device.memory_bytes / n_bytes)
    for _ in range(min(wanted, possible, MAX_COPIES) - 1):
        runs.append(case.prepare(device))
    return runs


def _issue_s(run: Run, line: Line, clock: Clock) -> float:
    """Seconds that the host takes to queue a call."""
    took = []
    for _ in range(WARM_UP):
        line.wait()
        begin = clock()
        run()
        took.append(clock() - begin)
    return max(took)


class Turns:
    """Runs that take turns; the last result of each is kept until its next one is there."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = runs
        self._held: list[Any] = [None] * len(runs)
        self._next = 0

    def __call__(self) -> None:
        """Call the next one."""
        self._held[self._next] = self._runs[self._next]()
        self._next = (self._next + 1) % len(self._runs)


def in_line(run: Run, calls: int, ahead_s: float, line: Line) -> Sample:
    """Seconds a call of ``calls`` calls of ``run``.

    ``ahead_s``: seconds of other work in front of them; 0: none, and they are never disturbed.
    """
    line.wait()
    if ahead_s:
        line.busy(ahead_s)
    first = line.mark()
    for _ in range(calls):
        run()
    last = line.mark()
    early = ahead_s > 0.0 and first()
    return Sample(line.seconds_between(first, last) / calls, early)
