"""Evaluates a whole space: the best points, the reasons of invalid ones, and all points on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from simcore.answer.result import Faster
from simcore.base.arrays import NDArray, keep_freed_memory, rare_collections
from simcore.base.errors import DataError, UsageError
from simcore.base.record import dataclass
from simcore.planning.evaluator import Evaluator
from simcore.planning.output import Coded, as_array, columns_of, joined_words
from simcore.planning.parallel import shared_parts
from simcore.planning.parts import Span
from simcore.planning.points import COLUMNS, WORDS, Batch
from simcore.planning.ranking import Point, front, front_resource, merged
from simcore.planning.space import Space
from simcore.planning.store import Say, Store, warn
from simcore.planning.tally import Summary, Tally, Wanted
from simcore.planning.workers import Workers, workers_of

#: Called after every part with the finished points, all points, and the best point so far.
Progress = Callable[[int, int, Point | None], None]


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """The result of a sweep.

    n_points     number of points in the space
    n_done       number of points that were processed; ``n_before`` of them before a resumption
    n_evaluated  number of valid points, which have a time and memory
    n_fit        number of points that fit in memory
    invalid      number of points by the reason why they are invalid or do not fit
    best         the best points that fit, best first
    front        Pareto front of throughput and GPUs (memory where all clusters have the
                 same number of GPUs) among the points that fit, least resource first
    finished     whether all points were processed
    batches      all evaluated points, where they were kept in memory
    nearest      the point that lacks the least memory, where nothing fits
    fixes        changes with which ``nearest`` fits; ``instead``: other kinds of training with
                 which it does; ``why_none``: why there are none
    faster       changes outside the space that make the best point faster

    ``api.sweep`` sets the last four.
    """

    n_points: int
    n_done: int
    n_evaluated: int
    n_fit: int
    invalid: dict[str, int]
    best: tuple[Point, ...]
    front: tuple[Point, ...]
    ranked_by: str
    seconds: float
    finished: bool
    output: str | None = None
    space: Space | None = None
    batches: tuple[Batch, ...] = ()
    nearest: Point | None = None
    fixes: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()
    why_none: str = ""
    faster: tuple[Faster, ...] = ()
    n_before: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with units in the names."""
        return {
            "n_points": self.n_points,
            "n_done": self.n_done,
            "n_before": self.n_before,
            "n_evaluated": self.n_evaluated,
            "n_fit": self.n_fit,
            "finished": self.finished,
            "seconds": self.seconds,
            "invalid": self.invalid,
            "ranked_by": self.ranked_by,
            "best": [p.to_dict() for p in self.best],
            "front": [p.to_dict() for p in self.front],
            "nearest": self.nearest.to_dict() if self.nearest is not None else None,
            "fixes": list(self.fixes),
            "instead": list(self.instead),
            "why_none": self.why_none,
            "faster": [asdict(f) for f in self.faster],
            "output": self.output,
        }

    def columns(self) -> dict[str, np.ndarray[Any, Any]]:
        """All evaluated points as columns, arrays [C]. Raises UsageError if they were not kept."""
        return {c: as_array(v, self.n_evaluated) for c, v in self.coded_columns().items()}

    def coded_columns(self) -> dict[str, np.ndarray[Any, Any] | Coded]:
        """``columns`` in less memory: columns of text hold each text once (``Coded``)."""
        if self.space is None or (self.n_evaluated and not self.batches):
            where = f": they are in {self.output}" if self.output else ""
            raise UsageError(f"this sweep did not keep its points{where}")
        parts = [(columns_of(b, self.space.clusters), len(b)) for b in self.batches]
        if not parts:
            return {c: np.array([]) for c in COLUMNS}
        return {
            c: joined_words([(part[c], n) for part, n in parts])
            if c in WORDS
            else np.concatenate([as_array(part[c], n) for part, n in parts])
            for c in COLUMNS
        }

    @property
    def front_of(self) -> str:
        """The column of the front's resource: GPUs or memory."""
        return front_resource(self.space.clusters) if self.space is not None else "n_gpus"

    def throughput(self, columns: Mapping[str, Any]) -> NDArray[np.float64]:
        """Tokens per second of every point of ``columns``, samples where they are not text [C]."""
        tokens = np.array(columns["tokens_per_s"], dtype=np.float64)
        return np.where(np.isnan(tokens), columns["samples_per_s"], tokens)

    def on_front(self, columns: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Which points of ``columns`` are on the front [C]."""
        gain = np.where(columns["fits"], self.throughput(columns), 0.0)
        return front(columns[self.front_of], gain, columns["memory_bytes"])


@rare_collections()
def run_sweep(
    space: Space,
    *,
    output: Path | None = None,
    resume: bool = False,
    by: str = "throughput",
    top: int = 10,
    keep: bool = False,
    jobs: int = 1,
    cluster: Any = None,
    progress: Progress | None = None,
    say: Say = warn,
) -> SweepResult:
    """Evaluate a space. Ctrl-C ends it early and returns what was computed, not ``finished``.

    output    file to which every point is written
    resume    continue the interrupted sweep that wrote ``output``
    by, top   ranking, and how many of the best points to return
    keep      hold all points in the result
    jobs      processes that share the work
    cluster   Dask cluster that does the work instead: address, ``local``, ``local:N`` or a client
    progress  called with the finished points, all points, and the best point so far
    say       called with a message about damaged or missing parts, which are computed again

    The result does not depend on which processes evaluate. Raises UsageError where the output is in
    use or belongs to another sweep, DataError where it cannot be written.
    """
    keep_freed_memory()
    started = time.perf_counter()
    wanted = Wanted(by, top, points=keep or output is not None)
    tally = Tally(space.clusters, wanted)
    workers = workers_of(jobs, cluster)
    evaluator = Evaluator(space)
    store: Store | None = None
    n_before = 0
    finished = False
    kept: list[Batch] = []
    try:
        gaps = [(0, len(evaluator))]
        if output is not None:
            store = Store(output, evaluator, resume=resume, say=say)
            gaps = store.gaps
            tally = _tally_of(store, wanted)
            n_before = tally.n_points
        if progress is not None:
            progress(tally.n_points, len(space), tally.best)
        with closing(_parts(evaluator, workers, wanted, gaps)) as parts:
            for found in parts:
                tally.add(found)
                if isinstance(found, Batch):
                    if keep and len(found):
                        kept.append(found)
                    if store is not None:
                        store.add(found)
                if progress is not None:
                    progress(tally.n_points, len(space), tally.best)
        if store is not None:
            store.flush()
            if any(last < len(evaluator) for _, last in gaps):  # gaps were added out of order
                tally = _tally_of(store, wanted)
            store.finish()
        finished = True
    except KeyboardInterrupt:  # return the best so far
        finished = store is not None and store.finished
        if store is not None:
            store.suspend()
    except BaseException as err:
        if store is not None:
            _keep(store, err, say)
        raise
    return SweepResult(
        n_points=len(space),
        n_done=tally.n_points,
        n_before=n_before,
        n_evaluated=tally.n_evaluated,
        n_fit=tally.n_fit,
        invalid=merged([tally.invalid]),
        best=tuple(tally.leaders.best),
        front=tuple(tally.front.points),
        ranked_by=by,
        seconds=time.perf_counter() - started,
        finished=finished,
        output=str(output) if output is not None else None,
        space=space,
        batches=tuple(kept),
        nearest=tally.nearest if not tally.n_fit else None,
    )


def _parts(
    evaluator: Evaluator, workers: Workers | None, wanted: Wanted, spans: Sequence[Span]
) -> Generator[Batch | Summary, None, None]:
    """The results of the ranges in order, from ``workers`` or, without any, this process."""
    if workers is None:
        for span in spans:
            yield from evaluator.batches(*span)
    else:
        yield from shared_parts(evaluator, workers, wanted, spans)


def _tally_of(store: Store, wanted: Wanted) -> Tally:
    """The counts and the best points of all points that the sweep has written to disk."""
    tally = Tally(store.clusters, wanted)
    for batch in store.batches():
        tally.add(batch)
    return tally


def _keep(store: Store, err: BaseException, say: Say) -> None:
    """Save the finished points of a sweep that fails, and say where unless the error does."""
    try:
        store.suspend()
    except DataError as full:
        say(str(full))
    if store.going_on and store.going_on not in str(err):
        say(store.going_on)
