"""Work on the rows of tables, divided among processes; results are in the order of the rows.

Each process gets several rows at a time, those of one model together, so that its caches serve them
all.
"""

from __future__ import annotations

import gc
import os
import signal
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from simcore.base.errors import SimcoreError
from simcore.base.lookup import one_question

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

T = TypeVar("T")
R = TypeVar("R")

#: Least number of rows that a process gets at a time; the last ones end at different times.
STRETCH = 12
#: Least number of portions for each process into which the rows of one model are divided.
_SHARES = 8
#: Rows below which a further process costs more (start-up, empty caches) than it saves.
LEAST_ROWS = 100
#: Largest useful number of processes: start, statistics and the last rows are not divided.
MOST = 8


def default_jobs() -> int:
    """Number of processes that this machine has processors for."""
    usable = getattr(os, "sched_getaffinity", None)  # Linux: those this process may run on
    return min(MOST, len(usable(0)) if usable else os.cpu_count() or 1)


def in_order(
    function: Callable[[T], R],
    rows: Sequence[T],
    jobs: int,
    alike: Callable[[T], Hashable] = lambda _: None,
) -> list[R]:
    """``function`` of each row, in the order of the rows, by up to ``jobs`` processes.

    ``function`` must belong to a module, and its argument and result must be picklable. ``alike``:
    equal for rows that share work, such as their model. Few rows are processed here. Raises
    SimcoreError where processes are killed.
    """
    jobs = min(jobs, len(rows) // LEAST_ROWS)
    if jobs < 2:
        return _each(function, rows)
    from concurrent.futures.process import BrokenProcessPool  # few tables are large enough

    with shared():
        processes = _shared.get()
        assert processes is not None
        try:
            stretches = _stretches([alike(row) for row in rows], jobs)
            given = [[rows[i] for i in s] for s in stretches]
            parts = processes.of(jobs).map(partial(_each, function), given)
            in_turn = zip(chain.from_iterable(stretches), chain.from_iterable(parts), strict=True)
            found = dict(in_turn)
        except BrokenProcessPool:
            raise SimcoreError("processes that predicted rows ended: try fewer --jobs") from None
    return [found[i] for i in range(len(rows))]


class _Processes:
    """Processes for rows of tables, started when the first large table needs them."""

    def __init__(self) -> None:
        self._jobs = 0
        self._pool: ProcessPoolExecutor | None = None

    def of(self, jobs: int) -> ProcessPoolExecutor:
        """At least so many processes."""
        if self._pool is None or jobs > self._jobs:
            from concurrent.futures import ProcessPoolExecutor

            self.end()
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
            self._jobs, self._pool = jobs, ProcessPoolExecutor(jobs, initializer=_begin)
        return self._pool

    def end(self, *, wait: bool = True) -> None:
        """End them once the rows that have begun are ready, for which to ``wait``.

        Python prints a traceback if it ends between their end and that of the thread beside them.
        """
        if self._pool is not None:
            self._pool.shutdown(wait=wait, cancel_futures=True)
            self._pool = None


#: The processes of the command at hand.
_shared: ContextVar[_Processes | None] = ContextVar("_shared", default=None)


@contextmanager
def shared() -> Iterator[None]:
    """A context in which calls of ``in_order`` share processes, which keep what rows had in common.

    One within another is part of it.
    """
    if _shared.get() is not None:
        yield
        return
    processes = _Processes()
    token = _shared.set(processes)
    try:
        yield
    except KeyboardInterrupt:  # rows that have begun end by themselves
        processes.end(wait=False)
        raise
    finally:
        _shared.reset(token)
        processes.end()


def _stretches(keys: Sequence[Hashable], jobs: int) -> list[list[int]]:
    """The rows that a process gets at a time, by their places, those of equal key together.

    The longest come first, so that the processes end at about the same time.
    """
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        alike[key].append(place)
    most = max(STRETCH, len(keys) // (_SHARES * jobs))
    stretches: list[list[int]] = [[]]
    for places in alike.values():
        for start in range(0, len(places), most):
            if len(stretches[-1]) >= STRETCH:
                stretches.append([])
            stretches[-1] += places[start : start + most]
    return sorted(stretches, key=len, reverse=True)


def _each(function: Callable[[T], R], rows: Sequence[T]) -> list[R]:
    """``function`` of each row, all of them one question: files are looked up once.

    Python's collector of cycles rests meanwhile. What rows leave behind are caches and results,
    which it would walk again and again, for a seventh of the time, to free nothing.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with one_question():
            return [function(row) for row in rows]
    finally:
        if collects:
            gc.enable()


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
