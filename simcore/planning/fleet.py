"""Simulates many jobs in the queue of one cluster: waiting times and utilisation by policy.

A job gets all its GPUs at once or waits (gang scheduling). Policies: ``fifo`` (in order of
arrival); ``backfill`` (EASY: a later job may start early if, by the stated run times, it does not
delay the first job in the queue); ``priority`` (the larger number first, then by arrival);
``preempt`` (as ``priority``, but a waiting job stops running jobs of lower priority, which later
continue from their last checkpoint).
"""

from __future__ import annotations

import csv
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite, nan
from pathlib import Path
from typing import Any

from simcore.base.errors import DataError, InvalidConfig, UnknownName, UsageError
from simcore.base.names import between, decoded
from simcore.base.untrusted import bounded_bytes, rows_of

POLICIES = ("fifo", "backfill", "priority", "preempt")


@dataclass(frozen=True, slots=True)
class FleetJob:
    """A job: time of submission, number of GPUs, run time, and the run time that it states.

    ``limit_s``: stated run time, on which backfilling relies; None: the true one.
    """

    name: str
    submit_s: float
    gpus: int
    run_s: float
    priority: int = 0
    limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """A finished job: when it started and ended, and how often it was preempted."""

    job: FleetJob
    start_s: float
    end_s: float
    preempted: int

    @property
    def wait_s(self) -> float:
        """Seconds in the queue before its first start."""
        return self.start_s - self.job.submit_s


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The result of a simulation.

    makespan_s        time until the last job ends
    utilisation_frac  GPU-seconds in use over all GPU-seconds until then
    lost_gpu_s        GPU-seconds of work that preemptions lost
    """

    gpus: int
    policy: str
    done: tuple[Done, ...]
    makespan_s: float
    utilisation_frac: float
    lost_gpu_s: float
    preemptions: int

    def wait_s(self, quantile: float) -> float:
        """A quantile of the waiting times [s], by nearest rank."""
        waits = sorted(d.wait_s for d in self.done)
        return waits[min(len(waits) - 1, int(quantile * len(waits)))] if waits else 0.0

    @property
    def mean_wait_s(self) -> float:
        """Mean seconds in the queue."""
        return sum(d.wait_s for d in self.done) / max(1, len(self.done))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with units in the names."""
        return {
            "gpus": self.gpus,
            "policy": self.policy,
            "n_jobs": len(self.done),
            "makespan_s": self.makespan_s,
            "utilisation_frac": self.utilisation_frac,
            "mean_wait_s": self.mean_wait_s,
            **{f"wait_p{q}_s": self.wait_s(q / 100) for q in (50, 90, 95, 99)},
            "preemptions": self.preemptions,
            "lost_gpu_s": self.lost_gpu_s,
        }


@dataclass(slots=True)
class _State:
    """A job that waits or runs; ``left_s``: run time that remains."""

    job: FleetJob
    order: int
    left_s: float
    first_s: float | None = None
    began_s: float = 0.0
    preempted: int = 0
    process: Any = None


class _Scheduler:
    """The queue and the free GPUs; jobs start by the policy after every change of either."""

    def __init__(self, env: Any, gpus: int, policy: str, checkpoint_s: float) -> None:
        self.env, self.free, self.policy, self.checkpoint_s = env, gpus, policy, checkpoint_s
        self.queue: list[_State] = []
        self.running: list[_State] = []
        self.done: list[Done] = []
        self.used_gpu_s = self.lost_gpu_s = 0.0
        self.preemptions = 0
        self.ranked = policy in ("priority", "preempt")

    def rank(self, state: _State) -> tuple[int, int]:
        """Sort key of a job in the queue."""
        return (-state.job.priority if self.ranked else 0, state.order)

    def submit(self, state: _State) -> None:
        self.queue.append(state)
        self.queue.sort(key=self.rank)
        self.dispatch()

    def dispatch(self) -> None:
        while self.queue and self._fits(self.queue[0]):
            self._start(self.queue.pop(0))
        if self.queue and self.policy == "backfill":
            self._backfill()

    def _fits(self, state: _State) -> bool:
        if state.job.gpus <= self.free:
            return True
        if self.policy != "preempt":
            return False
        # Stop jobs of the lowest priority first; among these, the one that started last.
        weaker = sorted(
            (r for r in self.running if r.job.priority < state.job.priority),
            key=lambda r: (r.job.priority, -r.began_s),
        )
        chosen, found = [], self.free
        for r in weaker:
            if found >= state.job.gpus:
                break
            chosen.append(r)
            found += r.job.gpus
        if found < state.job.gpus:
            return False
        for r in chosen:
            self._stop(r)
        return True

    def _start(self, state: _State) -> None:
        self.free -= state.job.gpus
        state.began_s = self.env.now
        if state.first_s is None:
            state.first_s = self.env.now
        self.running.append(state)
        state.process = self.env.process(self._run(state))

    def _run(self, state: _State) -> Generator[Any, Any, None]:
        import simpy

        try:
            yield self.env.timeout(state.left_s)
        except simpy.Interrupt:
            return
        self.used_gpu_s += state.left_s * state.job.gpus
        self._release(state)
        assert state.first_s is not None
        self.done.append(Done(state.job, state.first_s, self.env.now, state.preempted))
        self.dispatch()

    def _release(self, state: _State) -> None:
        self.free += state.job.gpus
        self.running.remove(state)

    def _stop(self, state: _State) -> None:
        """Preempt a job, which loses the work since its last checkpoint."""
        ran = self.env.now - state.began_s
        saved = ran // self.checkpoint_s * self.checkpoint_s if self.checkpoint_s > 0 else ran
        self.used_gpu_s += ran * state.job.gpus
        self.lost_gpu_s += (ran - saved) * state.job.gpus
        state.left_s -= saved
        state.preempted += 1
        self.preemptions += 1
        self._release(state)
        state.process.interrupt()
        self.queue.append(state)
        self.queue.sort(key=self.rank)

    def _backfill(self) -> None:
        """EASY backfilling: start jobs that do not delay the first one in the queue.

        Such a job fits now, and it ends before the first can start or leaves enough GPUs for it.
        """
        first = self.queue[0]
        ends = sorted(
            (max(r.began_s + (r.job.limit_s or r.left_s), self.env.now), r.job.gpus)
            for r in self.running
        )
        free, shadow_s = self.free, self.env.now
        for end, gpus in ends:
            if free >= first.job.gpus:
                break
            free, shadow_s = free + gpus, end
        spare = free - first.job.gpus  # GPUs that the first job will not need when it starts
        for state in self.queue[1:]:
            if not self.free:
                return
            if state.job.gpus > self.free:
                continue
            stated = state.job.limit_s or state.left_s
            short = self.env.now + stated <= shadow_s
            if short or state.job.gpus <= spare:
                self.queue.remove(state)
                self._start(state)
                if not short:
                    spare -= state.job.gpus


def run_fleet(
    jobs: Sequence[FleetJob], gpus: int, *, policy: str = "backfill", checkpoint_s: float = 3600.0
) -> Fleet:
    """Simulate the jobs on ``gpus`` GPUs.

    ``checkpoint_s``: time between checkpoints [s], for preempted jobs; 0: they lose no work. Raises
    UnknownName, InvalidConfig (a job larger than the cluster), UsageError without simpy.
    """
    try:
        import simpy
    except ImportError:
        raise UsageError("a fleet needs simpy: pip install '.[sim]'") from None
    if policy not in POLICIES:
        raise UnknownName("policy", policy, POLICIES)
    problems = [
        f"{j.name if j.name.startswith('job') else f'job {j.name}'}: {text}"
        for j in jobs
        for wrong, text in (
            (j.gpus > gpus, f"{j.gpus} GPUs on a cluster of {gpus}"),
            (j.gpus < 1 or not j.run_s > 0 or j.submit_s < 0, "needs GPUs and time above zero"),
        )
        if wrong
    ]
    if problems:
        raise InvalidConfig([*problems[:5], *([f"and {len(problems) - 5} more"]
                                             if len(problems) > 5 else [])])  # fmt: skip
    env = simpy.Environment()
    scheduler = _Scheduler(env, gpus, policy, checkpoint_s)

    def arrivals() -> Generator[Any, Any, None]:
        for order, job in enumerate(sorted(jobs, key=lambda j: j.submit_s)):
            yield env.timeout(max(0.0, job.submit_s - env.now))
            scheduler.submit(_State(job, order, job.run_s))

    env.process(arrivals())
    env.run()
    end = float(env.now)
    return Fleet(
        gpus=gpus,
        policy=policy,
        done=tuple(sorted(scheduler.done, key=lambda d: d.job.submit_s)),
        makespan_s=end,
        utilisation_frac=scheduler.used_gpu_s / (gpus * end) if end else 0.0,
        lost_gpu_s=scheduler.lost_gpu_s,
        preemptions=scheduler.preemptions,
    )


#: GPUs of a node, and the most GPUs of a cluster, in the search for the smallest cluster.
_NODE_GPUS, _MOST_GPUS = 8, 1_000_000


def fewest_gpus(
    jobs: Sequence[FleetJob], wait_s: float, *, quantile: float = 0.95, policy: str = "backfill",
    checkpoint_s: float = 3600.0,
) -> Fleet:  # fmt: skip
    """The result on the smallest cluster where the ``quantile`` of waiting times is at most
    ``wait_s`` [s]; its nodes have ``_NODE_GPUS``.

    The search is a bisection, which assumes that more GPUs shorten the waiting. Policies that
    reorder jobs may violate this slightly. Raises InvalidConfig where ``_MOST_GPUS`` are too few.
    """
    simulate = partial(run_fleet, jobs, policy=policy, checkpoint_s=checkpoint_s)
    low = -(-max((j.gpus for j in jobs), default=1) // _NODE_GPUS)
    high = low
    while (found := simulate(high * _NODE_GPUS)).wait_s(quantile) > wait_s:
        if high * _NODE_GPUS >= _MOST_GPUS:
            raise InvalidConfig([f"not even {_MOST_GPUS:,} GPUs bring the wait below {wait_s:g} s"])
        low, high = high + 1, high * 2
    while low < high:
        middle = (low + high) // 2
        tried = simulate(middle * _NODE_GPUS)
        if tried.wait_s(quantile) <= wait_s:
            high, found = middle, tried
        else:
            low = middle + 1
    return found


def read_jobs(path: Path) -> list[FleetJob]:
    """The jobs in a CSV file or a file in the Standard Workload Format (.swf).

    CSV: columns submit_s, gpus, run_s and optionally name, priority, limit_s. SWF: fields 2
    (submission), 4 (run time), 5 or 8 (processors), 9 (stated run time), 15 (queue, taken as the
    priority); jobs that never ran are left out. Raises DataError with the line.
    """
    try:
        text = decoded(bounded_bytes(path))
    except UnicodeDecodeError as err:
        raise DataError(f"cannot be read: {err}", file=path) from None
    jobs = list(_swf(path, text) if path.suffix.lower() == ".swf" else _csv(path, text))
    if not jobs:
        raise DataError("holds no job", file=path)
    return jobs


def _csv(path: Path, text: str) -> Iterable[FleetJob]:
    lines = text.splitlines()
    reader = csv.DictReader(lines, delimiter=between(lines[0] if lines else ""))
    reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
    missing = {"submit_s", "gpus", "run_s"} - set(reader.fieldnames)
    if missing:
        found = f"; it has {', '.join(reader.fieldnames)}" if lines else ""
        raise DataError(f"has no column {', '.join(sorted(missing))}{found}", file=path, line=1)
    for line, row in enumerate(rows_of(reader, path), 2):
        try:
            yield FleetJob(
                name=row.get("name") or f"job {line - 1}",
                submit_s=_cell(row, "submit_s"),
                gpus=int(_cell(row, "gpus")),
                run_s=_cell(row, "run_s"),
                priority=int(_cell(row, "priority")) if row.get("priority") else 0,
                limit_s=_cell(row, "limit_s") if row.get("limit_s") else None,
            )
        except ValueError as err:
            raise DataError(str(err), file=path, line=line) from None


def _cell(row: Mapping[str, str | None], column: str) -> float:
    text, seconds = row[column] or "", column.endswith("_s")
    try:
        value = float(text)
    except ValueError:
        value = nan
    if not isfinite(value) or not (seconds or value.is_integer()):
        raise ValueError(
            f"{column}: {text!r} is not a {'number of seconds' if seconds else 'whole number'}"
        )
    return value


def _swf(path: Path, text: str) -> Iterable[FleetJob]:
    for line, row in enumerate(text.splitlines(), 1):
        if not row.strip() or row.startswith(";"):
            continue
        fields = row.split()
        try:
            submit, run = float(fields[1]), float(fields[3])
            processors = int(fields[4]) if int(fields[4]) > 0 else int(fields[7])
            stated, queue = float(fields[8]), int(fields[14])
        except (IndexError, ValueError) as err:
            raise DataError(f"not a job of 18 fields: {err}", file=path, line=line) from None
        if run > 0 and processors > 0:
            yield FleetJob(fields[0], submit, processors, run, max(0, queue),
                           stated if stated > 0 else None)  # fmt: skip
