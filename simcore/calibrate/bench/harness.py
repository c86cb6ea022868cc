"""Runs cases: in random order, within a time budget, each saved as it ends, resumable."""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from simcore.calibrate.bench.case import (
    FAMILIES,
    Case,
    Device,
    Measured,
    World,
    spread_over,
)
from simcore.calibrate.bench.store import Store
from simcore.calibrate.bench.timing import Clock, measure

SEED: Final = 20261121
#: Share of the budget that is planned for calls; preparing takes the rest.
CALLS_FRAC: Final = 0.6
#: No case is given more than this, however few there are.
MOST_S: Final = 3.0


class Progress(Protocol):
    """Who is told how far it is."""

    def start(self, total: int, budget_s: float) -> None:
        """``total`` cases are to be run in at most ``budget_s``."""

    def step(self, what: str, done: int, left_s: float) -> None:
        """A case is about to run."""

    def end(self, done: int, total: int) -> None:
        """No more cases will run."""


class Silent:
    """Says nothing."""

    def start(self, total: int, budget_s: float) -> None:
        """Nothing."""

    def step(self, what: str, done: int, left_s: float) -> None:
        """Nothing."""

    def end(self, done: int, total: int) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Outcome:
    """What a run of the harness did. ``failed`` holds cases that raised, with the reason."""

    done: int
    skipped: int
    left: int
    failed: dict[str, str] = field(default_factory=dict)
    disturbed_frac: float = 0.0


def plan(device: Device, world: World, families: Iterable[str] | None = None) -> list[Case]:
    """Every case in the order to run: random within a family, families spread evenly.

    A short budget then still sees some of each, after what no profile can do without. The order is
    the same on every rank.
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
    progress: Progress | None = None,
    clock: Clock = time.perf_counter,
) -> Outcome:
    """Run what is not ``known`` yet until the budget is spent. Rank 0 decides, stores and tells.

    A case that fails (out of memory, an operation that a backend lacks) is reported and loses
    none of the others. KeyboardInterrupt passes through: what has ended is stored.
    """
    told = progress or Silent()
    todo = [c for c in cases if c.key not in known]
    if world.rank == 0:
        told.start(len(todo), budget_s)
    begin = clock()
    done, failed, disturbed = 0, {}, 0.0
    for i, case in enumerate(todo):
        left_s = budget_s - (clock() - begin)
        go, slot = world.share((left_s > 0, min(MOST_S, CALLS_FRAC * left_s / (len(todo) - i))))
        if not go:
            break
        if world.rank == 0:
            told.step(_label(case), done, left_s)
        if case.mode == "alone" and world.rank != 0:
            continue
        problem = ""
        try:
            got = measure(case, device, world, slot, clock)
        except (RuntimeError, NotImplementedError, OSError, ValueError) as err:
            problem = (str(err).splitlines() or [type(err).__name__])[0][:160]
            if case.mode != "alone" and world.size > 1:
                raise  # the other ranks are in the middle of it
        if problem:
            failed[_label(case)] = problem
            continue
        done += 1
        disturbed = max(disturbed, 0.0) + got.disturbed_frac
        if world.rank == 0:
            found = Measured(case, got.seconds, got.sd_log, got.calls, got.disturbed_frac)
            store.add(found, world.size)
    if world.rank == 0:
        told.end(done, len(todo))
    return Outcome(
        done, len(cases) - len(todo), len(todo) - done - len(failed), failed,
        disturbed / done if done else 0.0,
    )  # fmt: skip


def _label(case: Case) -> str:
    named = (f"{k} {v}" for k, v in case.columns.items() if k not in ("gpu", "gpu_type"))
    return f"{case.family}: {', '.join(named)}"
