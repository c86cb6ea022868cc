"""Runs cases in random order within a time budget, and saves each result so that it can resume."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import field
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
from simcore.calibrate.bench.timing import DOUBTED_FRAC, Clock, Typical

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
    and families are spread evenly, so that a short budget covers a part of each family.
    """
    rng = random.Random(SEED)
    lists: list[list[Case]] = []
    for name in families if families is not None else FAMILIES:
        cases = list(FAMILIES[name](device, world))
        rng.shuffle(cases)
        if cases:
            lists.append(cases)
    order = spread_over(lists)
    return [c for c in order if c.first] + [c for c in order if not c.first]


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

    A case of several ranks that other processes disturbed is measured once more after all others,
    if there is time, and the less disturbed result counts.
    """
    reports = progress or Progress()
    todo = [c for c in cases if c.key not in known]
    if world.rank == 0:
        reports.start(len(todo), budget_s)
    begin = clock()
    done, failed, disturbed = 0, {}, 0.0
    order, before = deque(todo), dict[tuple[str, ...], tuple[Case, Typical, Pulse]]()
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
            failed[_label(case)] = problem
            continue
        if pulses is not None:
            pulse = between(pulse, pulses.beside(case.mode))
        if case.key in before:
            tries = (call, pulse), before.pop(case.key)[1:]
            call, pulse = min(tries, key=lambda of: of[0].disturbed_frac)
        elif case.mode != "alone" and world.share(call.disturbed_frac > DOUBTED_FRAC):
            before[case.key] = case, call, pulse
            order.append(case)
            continue
        done += 1
        disturbed = max(disturbed, 0.0) + call.disturbed_frac
        if world.rank == 0:
            store.add(_measured(case, call, pulse), world.size)
    for case, call, pulse in before.values():  # no time for another try
        done, disturbed = done + 1, disturbed + call.disturbed_frac
        if world.rank == 0:
            store.add(_measured(case, call, pulse), world.size)
    if world.rank == 0:
        reports.end(done, len(todo))
    return Outcome(
        done, len(cases) - len(todo), len(todo) - done - len(failed), failed,
        disturbed / done if done else 0.0,
    )  # fmt: skip


def _measured(case: Case, call: Typical, pulse: Pulse) -> Measured:
    beside = {PULSES[kind]: seconds / MICRO for kind, seconds in pulse.items()}
    return Measured(case, call.seconds, call.sd_log, call.calls, call.disturbed_frac, beside,
                    call.how)  # fmt: skip


def _label(case: Case) -> str:
    named = (f"{k} {v}" for k, v in case.columns.items() if k not in ("gpu", "gpu_type"))
    return f"{case.family}: {', '.join(named)}"
