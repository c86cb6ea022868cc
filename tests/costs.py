"""What one call costs beside another, within one run: no test asserts an absolute time.

A slower processor slows both sides of a ratio. Absolute times are measured and printed by
``python -m benchmarks.latency`` and ``python -m benchmarks.page``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median


def least_s(call: Callable[[], object], calls: int) -> float:
    """Processor seconds of the quickest of so many calls.

    Some systems count a process's time in ticks of 10 ms: a call that is over within one is made
    again until the clock has moved, and its mean counts.
    """
    found = float("inf")
    for _ in range(calls):
        begun, made, took = time.process_time(), 0, 0.0
        while not took:
            call()
            made, took = made + 1, time.process_time() - begun
        found = min(found, took / made)
    return found


def cost_ratio(
    small: Callable[[], object], large: Callable[[], object], *, rounds: int = 5, calls: int = 3
) -> float:
    """How many times the processor time of ``small`` the call ``large`` takes.

    Both are called once before (what is cached is then there) and measured in turns, so that a
    machine that slows down in between slows both; the median of all rounds counts.
    """
    small()
    large()
    return median(1.0 / (least_s(small, calls) / least_s(large, calls)) for _ in range(rounds))
