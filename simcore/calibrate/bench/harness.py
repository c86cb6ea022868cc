"""Runs cases in random order within a time budget, and saves each result so that it can resume."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import field, replace
from typing import Final

from simcore.base.record import dataclass
from simcore.base.units import MICRO
from simcore.calibrate.bench.case import (
    FAMILIES,
    Case,
    Device,
    Measured,
    World,
    spread_over,
)
from simcore.calibrate.bench.pulse import Pulse, Pulses, between
from simcore.calibrate.bench.queue import measure
from simcore.calibrate.bench.store import PULSES, Store
from simcore.calibrate.bench.timing import (
    DOUBTED_FRAC,
    Clock,
    Typical,
    weighted_mean,
    weights,
)

SEED: Final = 20261121
#: Share of the budget that is planned for timed calls; preparing the cases takes the rest.
CALLS_FRAC: Final = 0.6
#: The longest time in seconds that is planned for one case, however few cases there are.
MOST_S: Final = 3.0


class Progress:
    """Receives reports on the progress of a run; this one ignores them."""

    def start(self, total: int, budget_s: float) -> None:
        """Called before the first of ``total`` cases, which may take ``budget_s`` seconds."""

    def step(self, what: str, done: int, left_s: float) -> None:
        """Called before each case ``what``; ``done`` cases are done, ``left_s`` seconds left."""

    def end(self, done: int, total: int) -> None:
        """Called after the last case."""


@dataclass(frozen=True)
class Outcome:
    """The counts of a run of the harness.

    ``done`` cases were measured, ``skipped`` ones were known from an earlier run, ``left`` ones
    did not fit into the budget. ``failed`` maps cases that raised an error to its message;
    ``disturbed_frac`` is the mean over the measured cases.
    """

    done: int
    skipped: int
    left: int
    failed: dict[str, str] = field(default_factory=dict)
    disturbed_frac: float = 0.0


def plan(device: Device, world: World, families: Iterable[str] | None = None) -> list[Case]:
    """All cases in the order to run them, which is the same on every rank.

    The cases that every profile needs come first. The others are in random order within a family,
    and families are spread evenly, so that a short budget covers a part of each family. Among them
    are those that are measured twice, once more.
    """
    rng = random.Random(SEED)
    lists: list[list[Case]] = []
    for name in families if families is not None else FAMILIES:
        cases = list(FAMILIES[name](device, world))
        rng.shuffle(cases)
        if cases:
            lists.append(cases)
    order = spread_over(lists)
    others, twice = [c for c in order if not c.first], [c for c in order if c.twice]
    return [c for c in order if c.first] + spread_over([others, twice])


def run_cases(
    cases: Sequence[Case],
    device: Device,
    world: World,
    store: Store,
    *,
    budget_s: float,
    known: Collection[tuple[str, ...]] = (),
    pulses: Pulses | None = None,
    progress: Progress | None = None,
    clock: Clock = time.perf_counter,
) -> Outcome:
    """Run the cases whose key is not ``known`` until ``budget_s`` seconds are spent.

    Rank 0 decides what runs, stores the results and reports progress. A case that fails (out of
    memory, an operation that a backend lacks) is recorded, and the others still run; if it fails
    while several ranks take part, the error is raised. KeyboardInterrupt passes through: finished
    cases are stored already.

    Where there are ``pulses``, each result has one beside it.

    A case that is listed twice is measured twice. One of several ranks that other processes
    disturbed is measured once more after all others, if there is time. The results of one case are
    joined (:func:`joined`).
    """
    reports = progress or Progress()
    todo = [c for c in cases if c.key not in known]
    if world.rank == 0:
        reports.start(len({c.key for c in todo}), budget_s)
    begin = clock()
    done, failed, disturbed = 0, {}, 0.0
    order, visits = deque(todo), Counter(c.key for c in todo)
    held: dict[tuple[str, ...], list[Measured]] = defaultdict(list)

    def keep(case: Case) -> None:
        nonlocal done, disturbed
        found = joined(held.pop(case.key))
        done, disturbed = done + 1, disturbed + found.disturbed_frac
        if world.rank == 0:
            store.add(found, world.size)

    while order:
        case, n_left = order[0], len(order)
        left_s = budget_s - (clock() - begin)
        go, slot = world.share((left_s > 0, min(MOST_S, CALLS_FRAC * left_s / n_left)))
        if not go:
            break
        order.popleft()
        if world.rank == 0:
            reports.step(_label(case), done, left_s)
        if case.mode == "alone" and world.rank != 0:
            continue
        problem = ""
        pulse: Pulse = {} if pulses is None else pulses.beside(case.mode)
        try:
            call = measure(case, device, world, slot, clock)
        except (RuntimeError, NotImplementedError, OSError, ValueError) as err:
            problem = (str(err).splitlines() or [type(err).__name__])[0][:160]
            if case.mode != "alone" and world.size > 1:
                raise  # the other ranks are inside the same case and would wait forever
        if problem:
            if case.key not in held:  # else it was measured once
                failed[_label(case)] = problem
            continue
        if pulses is not None:
            pulse = between(pulse, pulses.beside(case.mode))
        held[case.key].append(_measured(case, call, pulse))
        visits[case.key] -= 1
        if visits[case.key] > 0:
            continue
        doubted = case.mode != "alone" and world.share(call.disturbed_frac > DOUBTED_FRAC)
        if doubted and visits[case.key] == 0:
            order.append(case)
        else:
            keep(case)
    for results in list(held.values()):  # no time for another try
        keep(results[0].case)
    if world.rank == 0:
        reports.end(done, len(visits))
    skipped = len({c.key for c in cases} - visits.keys())
    return Outcome(
        done, skipped, len(visits) - done - len(failed), failed, disturbed / done if done else 0.0
    )


def joined(results: Sequence[Measured]) -> Measured:
    """The results of one case as one: the weighted geometric mean of times and pulses."""
    if len(results) == 1:
        return results[0]
    calls = [Typical(r.seconds, r.sd_log, r.calls, r.disturbed_frac) for r in results]
    by = weights(calls, alone=results[0].case.mode == "alone")
    counted = [r for r, w in zip(results, by, strict=True) if w]
    return replace(
        results[0],
        seconds=weighted_mean([r.seconds for r in results], by),
        values={
            name: weighted_mean([r.values[name] for r in results], by) for name in results[0].values
        },
        sd_log=max(r.sd_log for r in counted),
        calls=sum(r.calls for r in counted),
        disturbed_frac=max(r.disturbed_frac for r in counted),
    )


def _measured(case: Case, call: Typical, pulse: Pulse) -> Measured:
    beside = {PULSES[kind]: seconds / MICRO for kind, seconds in pulse.items()}
    return Measured(case, call.seconds, call.sd_log, call.calls, call.disturbed_frac, beside,
                    call.how)  # fmt: skip


def _label(case: Case) -> str:
    named = (f"{k} {v}" for k, v in case.columns.items() if k not in ("gpu", "gpu_type"))
    return f"{case.family}: {', '.join(named)}"
