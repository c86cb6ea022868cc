"""A whole space evaluated: the best points, why others fell out, and all of them on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simcore.base.arrays import NDArray, keep_freed_memory
from simcore.base.errors import UsageError
from simcore.planning.parallel import parallel_batches
from simcore.planning.points import Batch, batches
from simcore.planning.ranking import Leaders, Point, front, merged
from simcore.planning.space import Space
from simcore.planning.store import COLUMNS, Store, columns_of

#: Told after every batch: points done, points in all, the best point so far.
Progress = Callable[[int, int, Point | None], None]


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """What a sweep found. ``best`` holds the leading points that fit, best first.

    ``invalid`` counts points by the reason they fell out; what does not fit is among them.
    ``evaluated`` points have a time and memory; ``finished`` says whether all were asked.
    ``batches`` holds every evaluated point where they were kept in memory.
    """

    n_points: int
    n_done: int
    n_evaluated: int
    n_fit: int
    invalid: dict[str, int]
    best: tuple[Point, ...]
    ranked_by: str
    seconds: float
    finished: bool
    output: str | None = None
    space: Space | None = None
    batches: tuple[Batch, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, units in the names."""
        return {
            "n_points": self.n_points,
            "n_done": self.n_done,
            "n_evaluated": self.n_evaluated,
            "n_fit": self.n_fit,
            "finished": self.finished,
            "seconds": self.seconds,
            "invalid": self.invalid,
            "ranked_by": self.ranked_by,
            "best": [p.to_dict() for p in self.best],
            "output": self.output,
        }

    def columns(self) -> dict[str, np.ndarray[Any, Any]]:
        """Every evaluated point as columns, arrays [C]. Raises UsageError where none was kept."""
        if self.space is None or (self.n_evaluated and not self.batches):
            where = f": they are in {self.output}" if self.output else ""
            raise UsageError(f"this sweep did not keep its points{where}")
        parts = [columns_of(b, self.space.clusters) for b in self.batches]
        sizes = [len(b) for b in self.batches]
        return {
            c: np.concatenate(
                [np.broadcast_to(np.asarray(p[c]), n) for p, n in zip(parts, sizes, strict=True)]
            )
            if parts
            else np.array([])
            for c in COLUMNS
        }

    def front(self, columns: Mapping[str, np.ndarray[Any, Any]]) -> tuple[str, NDArray[np.bool_]]:
        """The Pareto front of ``columns``: (column of the resource, whether a point is on it [C]).

        On it is what fits while nothing that fits is as fast with as few GPUs, or with as little
        memory where all points have as many.
        """
        resource = "n_gpus" if len(np.unique(columns["n_gpus"])) > 1 else "memory_bytes"
        gain = np.where(columns["fits"], columns["samples_per_s"], 0.0)
        return resource, front(columns[resource], gain, columns["memory_bytes"])


def run_sweep(
    space: Space,
    *,
    output: Path | None = None,
    resume: bool = False,
    by: str = "throughput",
    top: int = 10,
    keep: bool = False,
    jobs: int = 1,
    progress: Progress | None = None,
) -> SweepResult:
    """Evaluate a space. Ctrl-C ends it early: what was found is returned, ``finished`` False.

    ``output`` streams every point to a file and lets an interrupted sweep ``resume``; ``keep``
    holds them in memory instead. ``jobs``: processes; the result is the same for any number.
    """
    keep_freed_memory()
    started = time.perf_counter()
    leaders = Leaders(space.clusters, by, top)
    store = Store(output, space, resume) if output is not None else None
    tally = _Tally(leaders)
    finished = False
    kept: list[Batch] = []
    try:
        if store is not None:
            for part in store.parts():
                for batch in part:
                    tally.add(batch)
        first = store.next if store is not None else (0, 0)
        found = batches(space, first=first)
        if jobs > 1:
            found = parallel_batches(space, jobs, first=first)
        for batch in found:
            tally.add(batch)
            if keep and len(batch):
                kept.append(batch)
            if store is not None:
                store.add(batch)
            if progress is not None:
                progress(tally.done, len(space), leaders.points[0][1] if leaders.points else None)
        if store is not None:
            store.finish()
        finished = True
    except KeyboardInterrupt:
        if store is not None:
            store.flush()
    return SweepResult(
        n_points=len(space),
        n_done=tally.done,
        n_evaluated=tally.evaluated,
        n_fit=tally.fit,
        invalid=merged([tally.invalid]),
        best=tuple(leaders.best),
        ranked_by=by,
        seconds=time.perf_counter() - started,
        finished=finished,
        output=str(output) if output is not None else None,
        space=space,
        batches=tuple(kept),
    )


class _Tally:
    """Counts over the batches seen."""

    def __init__(self, leaders: Leaders) -> None:
        self.leaders = leaders
        self.done = self.evaluated = self.fit = 0
        self.invalid: dict[str, int] = {}

    def add(self, batch: Batch) -> None:
        self.done += batch.n_points
        for reason, n in batch.invalid.items():
            self.invalid[reason] = self.invalid.get(reason, 0) + n
        if len(batch):
            self.evaluated += len(batch)
            self.fit += int(np.count_nonzero(batch.fits))
            self.leaders.add(batch)
